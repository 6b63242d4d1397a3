"""Distillation: what a student learns from a teacher besides the references, its output distributions and its layers.

Wu, Passban, Rezagholizadeh and Liu 2020, "Why Skip If You Can Combine". A teacher is another model, or the full model
in training, which then teaches its own shallower exits. Every choice of layers that a step runs is a student of its
own depth.

Shapes: e exits, r real positions, c copies of a batch, d width, b batch, h heads, s source length.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.config import ModelConfig, TeacherConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.depth.maps import LayerMap, check_map, layer_map
from anydepth.errors import UserError
from anydepth.model import States, Transformer
from anydepth.objectives.cross_entropy import SoftTargets
from anydepth.objectives.outputs import ForwardOutputs, StackOutputs, real_positions

SIDES = {"encoder": ("encoder",), "decoder": ("decoder",), "both": ("encoder", "decoder")}


class TeacherOutputs(NamedTuple):
    """What a teacher computed for a batch."""

    states: dict[str, States]  # of each side
    features_rd: Tensor | None  # at real target tokens, if they were asked for
    matrix_vd: Tensor


@dataclass(frozen=True)
class Teacher:
    """The model that teaches, at one of its depths. Without a model, the one in training teaches itself.

    Not a module: its weights are neither trained nor saved with the student's.
    """

    model: Transformer | None
    config: ModelConfig
    sub: SubNetwork

    @property
    def is_student(self) -> bool:
        return self.model is None

    def depth(self, side: str) -> int:
        return len(_layers(self.sub, side))

    @torch.no_grad()
    def forward(
        self, student: Transformer, batch: Batch, real_r: Tensor, *, with_features: bool, with_attention: bool
    ) -> TeacherOutputs:
        """The teacher's states for a batch, without dropout.

        Call it after the student has run: under autocast, weights that are first cast here have no gradient there.
        """
        model = student if self.model is None else self.model
        was_training = model.training
        model.eval()
        encoded, decoded = model.encode(batch.source, self.sub, batch.source_padding, with_attention), States([])
        features_rd = None
        if with_features and self.sub.decoder:
            decoded = model.decode(batch.target_in, model.memory(encoded[-1]), self.sub, batch.source_padding)
            features_rd = model.features(decoded[-1].flatten(0, 1)[real_r])
        elif with_features:
            features_rd = model.read_out(encoded[-1], batch.source_padding, real_r)
        model.train(was_training)
        matrix_vd = model.output.weight
        if features_rd is not None:
            features_rd, matrix_vd = model.output_product(features_rd)
        return TeacherOutputs({"encoder": encoded, "decoder": decoded}, features_rd, matrix_vd.detach())


def _layers(sub: SubNetwork, side: str) -> tuple[int, ...]:
    return sub.encoder if side == "encoder" else sub.decoder


class LayerMatch(nn.Module):
    """Fuses some layers of the teacher and computes the distance of a student layer to the result (Eq. 3).

    `project: teacher` projects the fused layers to the student's width, f = W [l1 . l2 ...] + b, as in the paper;
    `project: student` projects the student to theirs, as in the authors' code. `distance: square` is the mean square;
    `direction` normalises both to length 1 first. With `teacher` and `square`, W and the student can collapse to near
    zero (docs/lab-notes.md).
    """

    def __init__(
        self, config: TeacherConfig, layers: tuple[int, ...], of_teacher: int, widths: tuple[int, int]
    ) -> None:
        super().__init__()
        self.fusion, self.onto_student = config.fusion, config.project == "teacher"
        self.by_direction = config.distance == "direction"
        self.layers = tuple(range(1, of_teacher + 1)) if self.fusion == "attention" else layers  # from 1
        teacher, student = widths
        joined = self.fusion == "concat" and len(self.layers) > 1
        fused = teacher * len(self.layers) if joined else teacher
        self.logits = nn.Parameter(torch.zeros(len(self.layers))) if self.fusion == "attention" else None
        sizes = (fused, student) if self.onto_student else (student, fused)
        projects = joined or teacher != student or config.always_project
        self.project = nn.Linear(*sizes) if projects else None
        if self.project is not None:
            nn.init.xavier_uniform_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def fused(self, teacher: Mapping[int, Tensor]) -> Tensor:
        chosen = [teacher[layer] for layer in self.layers]
        if self.fusion == "concat":
            return torch.cat(chosen, dim=-1)
        return mixture(chosen, self.shares())

    def shares(self) -> Tensor | None:
        """The learned weight of each of its layers; None: all the same."""
        return None if self.logits is None else self.logits.softmax(dim=0)

    def forward(self, student_crd: Tensor, teacher: Mapping[int, Tensor], weight_cr: Tensor | None = None) -> Tensor:
        """The distance, [c], to the teacher's layers, by their number from 1, [r, d] each: the mean over positions,
        each of which may have a weight."""
        target = self.fused(teacher)
        if self.project is not None and self.onto_student:
            target = self.project(target)
        elif self.project is not None:
            student_crd = self.project(student_crd)
        student_crd, target = student_crd.float(), target.float()
        if self.by_direction:  # the squared distance of two vectors of length 1
            distance_cr = 2 - 2 * F.cosine_similarity(student_crd, target, dim=-1)
        else:
            distance_cr = (student_crd - target).square().mean(dim=-1)
        return distance_cr.mean(dim=1) if weight_cr is None else (distance_cr * weight_cr).mean(dim=1)


def mixture(layers: Sequence[Tensor], shares: Tensor | None) -> Tensor:
    stacked = torch.stack(list(layers))
    return stacked.mean(dim=0) if shares is None else torch.tensordot(shares.to(stacked), stacked, dims=1)


def match_attention(
    student_bhss: Tensor, teacher: Sequence[Tensor], padding_bs: Tensor | None, shares: Tensor | None = None
) -> Tensor:
    """KL of the student's attention to the mean of the teacher's layers, the mean over heads and positions.

    If the numbers of heads differ, the means over heads are compared.
    """
    target_bhss, own_bhss = mixture(teacher, shares), student_bhss
    if target_bhss.shape[1] != own_bhss.shape[1]:
        target_bhss, own_bhss = target_bhss.mean(1, keepdim=True), own_bhss.mean(1, keepdim=True)
    tiny = torch.finfo(torch.float32).tiny  # padding has probability 0 in both
    target_bhss, own_bhss = target_bhss.float(), own_bhss.float()
    kl_bhss = target_bhss * (target_bhss.clamp(min=tiny).log() - own_bhss.clamp(min=tiny).log())
    kl_bs = kl_bhss.sum(dim=-1).mean(dim=1)
    if padding_bs is None:
        return kl_bs.mean()
    return kl_bs.masked_fill(padding_bs, 0.0).sum() / (~padding_bs).sum()


class DistillationLosses(NamedTuple):
    """How a teacher changes the loss: the share left for the references, its outputs as soft targets, and the losses of
    layers, means over source and target tokens.

    The parts are the layer losses before lambda, for the logs, and which of them are means over source tokens.
    """

    reference_share_er: Tensor
    soft_targets: SoftTargets | None
    encoder_total: Tensor | None
    decoder_total: Tensor | float
    parts: dict[str, Tensor]
    source_parts: dict[str, Tensor]


class Distillation(nn.Module):
    """Its parameters, the projections, are trained with the student but not part of it."""

    def __init__(
        self, config: TeacherConfig, teacher: Teacher, student: ModelConfig, menu: DepthMenu, seed: int
    ) -> None:
        super().__init__()
        self.config, self.teacher = config, teacher
        self.sides = SIDES[config.sides] if config.matches_layers else ()
        self.needs_attention = config.attention and "encoder" in self.sides
        widths = teacher.config.width, student.width
        self.matches = nn.ModuleDict()  # by side, student depth and student layer
        with torch.random.fork_rng(devices=[]):  # the student is initialised as without a teacher
            torch.manual_seed(seed)
            for side in self.sides:
                by_depth = {
                    str(depth): nn.ModuleDict(
                        {str(own): LayerMatch(config, each, teacher.depth(side), widths) for own, each in one.items()}
                    )
                    for depth, one in self._maps(side, menu).items()
                }
                self.matches[side] = nn.ModuleDict(by_depth)

    def _maps(self, side: str, menu: DepthMenu) -> dict[int, LayerMap]:
        """For each depth of the student, the teacher layers of each student layer."""
        depths = sorted({len(_layers(entry.subnetwork, side)) for entry in menu})
        if self.teacher.is_student:
            depths = [depth for depth in depths if depth < self.teacher.depth(side)]
        if not depths:
            raise UserError(
                f"the {side} has only one depth, so none can learn from a deeper one: "
                "set teacher.sides to the other side, or teacher.method=rkd"
            )
        return {depth: self._map(side, depth, len(depths)) for depth in depths}

    def _map(self, side: str, student_depth: int, depths: int) -> LayerMap:
        given, teacher_depth = self.config.map, self.teacher.depth(side)
        if given is None:
            given = "last" if self.config.method == "pkd" else "regular"
        if isinstance(given, str):
            return layer_map(given, teacher_depth, student_depth)
        if depths > 1:
            raise UserError(
                "an explicit teacher.map is for a student of one depth, and this one has several: give the name of a "
                "map, such as overlap"
            )
        try:
            return check_map(given, teacher_depth, student_depth)
        except UserError as error:
            raise UserError(f"of the {side}, {error}") from error

    def forward(self, model: Transformer, batch: Batch, outputs: ForwardOutputs) -> DistillationLosses:
        config = self.config
        teacher = self.teacher.forward(
            model,
            batch,
            outputs.real_r,
            with_features=config.eta > 0 or "decoder" in self.sides,
            with_attention=self.needs_attention,
        )
        eta_er, lambda_er = self._shares(outputs)
        soft_targets = None
        if config.eta > 0 and teacher.features_rd is not None:
            weight_er = outputs.weight_er * eta_er
            soft_targets = SoftTargets(teacher.features_rd, teacher.matrix_vd, weight_er, config.temperature)
        found = {side: self._layer_losses(side, batch, outputs, teacher) for side in self.sides}
        totals = {side: config.lambda_ * torch.stack(list(parts.values())).sum() for side, parts in found.items()}
        parts: dict[str, Tensor] = {}
        for name, part in (item for side_parts in found.values() for item in side_parts.items()):
            parts[name] = parts.get(name, 0.0) + part.detach()
        return DistillationLosses(
            1 - eta_er - lambda_er,
            soft_targets,
            totals.get("encoder"),
            totals.get("decoder", 0.0),
            parts,
            {name: part.detach() for name, part in found.get("encoder", {}).items()},
        )

    def _shares(self, outputs: ForwardOutputs) -> tuple[Tensor, Tensor]:
        """Eta and lambda for each exit and token. A model that teaches itself has nothing to teach its deepest exit."""
        eta_er = torch.full_like(outputs.weight_er, self.config.eta)
        lambda_er = torch.full_like(outputs.weight_er, self.config.lambda_ if self.sides else 0.0)
        if self.teacher.is_student:
            encoder_er, decoder_er = outputs.is_full_er
            both_er = encoder_er & decoder_er
            eta_er = eta_er.masked_fill(both_er, 0.0)
            full_er = {"encoder": encoder_er, "decoder": decoder_er, "both": both_er}[self.config.sides]
            lambda_er = lambda_er.masked_fill(full_er, 0.0)
        return eta_er, lambda_er

    def _layer_losses(
        self, side: str, batch: Batch, outputs: ForwardOutputs, teacher: TeacherOutputs
    ) -> dict[str, Tensor]:
        """Eq. 3 for each choice of layers that ran, weighted; by name, with a gradient."""
        with_attention = self.needs_attention and side == "encoder"
        names = [self.config.method, "attention"] if with_attention else [self.config.method]
        parts = {name: torch.zeros((), device=batch.source.device) for name in names}
        tokens = batch.source if side == "encoder" else batch.target_out
        real_r = real_positions(tokens)
        sentence_r = real_r // tokens.shape[1]
        taught = {layer: teacher.states[side][layer - 1].flatten(0, 1)[real_r] for layer in self._needed(side)}
        for stack in self._stacks(side, outputs):
            weight_cr = None if stack.weight_cb is None else stack.weight_cb[:, sentence_r]
            for own, match in self._matches(side, stack):
                state_crd = stack.states[own - 1].view(len(stack.weights), tokens.numel(), -1)[:, real_r]
                distance_c = match(state_crd, taught, weight_cr)
                parts[self.config.method] += sum(w * one for w, one in zip(stack.weights, distance_c, strict=True))
                if with_attention:
                    theirs = [teacher.states[side].attention[layer - 1] for layer in match.layers]
                    kl = match_attention(stack.states.attention[own - 1], theirs, batch.source_padding, match.shares())
                    parts["attention"] += stack.weights[0] * kl
        return parts

    def _needed(self, side: str) -> set[int]:
        """The teacher layers that any student layer is matched with."""
        modules = self.matches[side].modules()
        return {layer for match in modules if isinstance(match, LayerMatch) for layer in match.layers}

    def _stacks(self, side: str, outputs: ForwardOutputs) -> list[StackOutputs]:
        return outputs.encoders if side == "encoder" else outputs.decoders

    def _matches(self, side: str, stack: StackOutputs) -> Iterator[tuple[int, LayerMatch]]:
        """The student layers that are matched, from 1; none of the deepest exit, if that is the teacher."""
        by_depth = cast(nn.ModuleDict, self.matches[side])
        if str(stack.depth) in by_depth:
            for own, match in cast(nn.ModuleDict, by_depth[str(stack.depth)]).items():
                yield int(own), cast(LayerMatch, match)

    def unused_parameters(self, outputs: ForwardOutputs | None) -> list[nn.Parameter]:
        """The parameters of depths that a step did not run; all of them, if the teacher took no part."""
        unused = []
        for side in self.sides:
            ran = set() if outputs is None else {str(stack.depth) for stack in self._stacks(side, outputs)}
            by_depth = cast(nn.ModuleDict, self.matches[side])
            unused += [p for depth, matches in by_depth.items() if depth not in ran for p in matches.parameters()]
        return unused

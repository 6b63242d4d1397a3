"""What a student learns from a teacher besides the references: its output distributions and its layers.

Wu, Passban, Rezagholizadeh and Liu 2020, "Why Skip If You Can Combine". A teacher is another model, or the whole of the
model in training, which then teaches its own shallower exits. Every choice of layers that a step runs is a student of
its own depth.

Shapes: e exits, r real target tokens or real positions, b batch, s source length, h heads, d width.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anydepth.config import ModelConfig, TeacherConfig
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.depth.maps import LayerMap, check_map, layer_map
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.objectives.cross_entropy import Soft
from anydepth.objectives.matching import Match, match_attention
from anydepth.objectives.passes import Passes, Ran, real_targets
from anydepth.text import Batch, Tokenizer

SIDES = {"encoder": ("encoder",), "decoder": ("decoder",), "both": ("encoder", "decoder")}


@dataclass(frozen=True)
class Teacher:
    """Which model teaches, at which of its depths. Without a model, the one in training teaches itself.

    Not a module: its weights are neither trained nor stored with the student's.
    """

    model: Transformer | None
    config: ModelConfig
    sub: SubNetwork

    @torch.no_grad()
    def look(self, student: Transformer, batch: Batch, *, outputs: bool, watch: bool) -> "Shown":
        """The teacher's states for a batch, without dropout."""
        model = student if self.model is None else self.model
        was_training = model.training
        model.eval()
        attention: list[Tensor] | None = [] if watch else None
        encoded = model.encode(batch.source, self.sub, batch.source_padding, attention)
        decoded = []
        if outputs:
            decoded = model.decode(batch.target_in, model.memory(encoded[-1]), self.sub, batch.source_padding)
        features_rd = model.features(decoded[-1].flatten(0, 1)[real_targets(batch)]) if decoded else None
        model.train(was_training)
        return Shown({"encoder": encoded, "decoder": decoded}, attention or [], features_rd, model.output.weight)


class Shown(NamedTuple):
    """What a teacher computed for a batch."""

    states: dict[str, list[Tensor]]
    attention: list[Tensor]
    features_rd: Tensor | None
    matrix_vd: Tensor


class Lesson(NamedTuple):
    """How a teacher changes the loss: what is left for the references, its outputs to match, and the loss of layers."""

    left_er: Tensor
    soft: Soft | None
    of_layers: Tensor | float
    parts: dict[str, Tensor]


class Teaching(nn.Module):
    """Its parameters, the projections, are trained with the student and not part of it."""

    def __init__(
        self, config: TeacherConfig, teacher: Teacher, student: ModelConfig, menu: DepthMenu, seed: int
    ) -> None:
        super().__init__()
        self.config, self.teacher = config, teacher
        self.sides = () if config.method == "rkd" or config.lambda_ == 0 else SIDES[config.sides]
        self.watches = config.attention and "encoder" in self.sides
        widths = teacher.config.width, student.width
        self.matches = nn.ModuleDict()  # by side, depth and layer of the student
        with torch.random.fork_rng(devices=[]):  # the student begins as it would without a teacher
            torch.manual_seed(seed)
            for side in self.sides:
                for key, layers in self._maps(side, menu).items():
                    self.matches[key] = Match(config, layers, len(_layers(teacher.sub, side)), widths)

    def _maps(self, side: str, menu: DepthMenu) -> dict[str, tuple[int, ...]]:
        """The teacher's layers for each layer of each depth that the student has."""
        of_teacher = len(_layers(self.teacher.sub, side))
        depths = sorted({len(_layers(entry.subnetwork, side)) for entry in menu})
        if self.teacher.model is None:
            depths = [depth for depth in depths if depth < of_teacher]
        found = {depth: self._map(of_teacher, depth, len(depths)) for depth in depths}
        return {_key(side, depth, own): layers for depth, one in found.items() for own, layers in one.items()}

    def _map(self, of_teacher: int, of_student: int, depths: int) -> LayerMap:
        given = self.config.map or ("last" if self.config.method == "pkd" else "regular")
        if isinstance(given, str):
            return layer_map(given, of_teacher, of_student)
        if depths > 1:
            raise UserError(
                "an explicit teacher.map is for a student of one depth, and this one has several: give the name of a "
                "map, such as overlap"
            )
        return check_map(given, of_teacher, of_student)

    def forward(self, model: Transformer, batch: Batch, passes: Passes) -> Lesson:
        config = self.config
        outputs = config.eta > 0 or "decoder" in self.sides
        shown = self.teacher.look(model, batch, outputs=outputs, watch=self.watches)
        eta_er, lambda_er = self._shares(passes)
        soft = None
        if config.eta > 0 and shown.features_rd is not None:
            weight_er = passes.weight_er * eta_er
            soft = Soft(shown.features_rd, shown.matrix_vd.detach(), weight_er, config.temperature)
        parts = self._of_layers(batch, passes, shown)
        of_layers = config.lambda_ * sum(parts.values())
        return Lesson(1 - eta_er - lambda_er, soft, of_layers, {name: part.detach() for name, part in parts.items()})

    def _shares(self, passes: Passes) -> tuple[Tensor, Tensor]:
        """Eta and lambda for each exit and token. A model that teaches itself has nothing to teach its deepest exit."""
        eta_er = torch.full_like(passes.weight_er, self.config.eta)
        lambda_er = torch.full_like(passes.weight_er, self.config.lambda_ if self.sides else 0.0)
        if self.teacher.model is None:
            encoder_er, decoder_er = passes.whole_er
            both_er = encoder_er & decoder_er
            eta_er = eta_er.masked_fill(both_er, 0.0)
            whole_er = {"encoder": encoder_er, "decoder": decoder_er, "both": both_er}[self.config.sides]
            lambda_er = lambda_er.masked_fill(whole_er, 0.0)
        return eta_er, lambda_er

    def _of_layers(self, batch: Batch, passes: Passes, shown: Shown) -> dict[str, Tensor]:
        """Eq. 3 for each choice of layers that was run, weighted by what it counts; by name, with a gradient."""
        names = [self.config.method, "attention"] if self.watches else [self.config.method]
        parts = {name: torch.zeros((), device=batch.source.device) for name in (names if self.sides else [])}
        for side in self.sides:
            tokens = batch.source if side == "encoder" else batch.target_out
            real_r = (tokens.flatten() != Tokenizer.PAD).nonzero()[:, 0]
            taught = [state.flatten(0, 1)[real_r] for state in shown.states[side]]
            for ran in self._students(side, passes):
                copies = ran.states[0].shape[0] // len(tokens)
                rows = torch.cat([real_r + copy * tokens.numel() for copy in range(copies)])
                targets = [state.repeat(copies, 1) for state in taught]
                for match, own in self._matched(side, ran):
                    state_rd = ran.states[own - 1].flatten(0, 1)[rows]
                    parts[self.config.method] = parts[self.config.method] + ran.weight * match(state_rd, targets)
                    if side == "encoder" and self.watches:
                        loss = match_attention(ran.attention[own - 1], match.of(shown.attention), batch.source_padding)
                        parts["attention"] = parts["attention"] + ran.weight * loss
        return parts

    def _students(self, side: str, passes: Passes) -> list[Ran]:
        """What of one stack was run and is shallower than a teacher that is the same model."""
        ran = passes.encoders if side == "encoder" else passes.decoders
        of_teacher = len(_layers(self.teacher.sub, side))
        return [one for one in ran if self.teacher.model is not None or one.depth < of_teacher]

    def _matched(self, side: str, ran: Ran) -> Iterator[tuple[Match, int]]:
        for own in range(1, ran.depth + 1):
            key = _key(side, ran.depth, own)
            if key in self.matches:
                match = self.matches[key]
                assert isinstance(match, Match)
                yield match, own

    def unused(self, passes: Passes) -> list[nn.Parameter]:
        """The parameters of depths that a step did not run."""
        used = {
            id(match)
            for side in self.sides
            for ran in self._students(side, passes)
            for match, _ in self._matched(side, ran)
        }
        return [p for match in self.matches.values() if id(match) not in used for p in match.parameters()]


def _layers(sub: SubNetwork, side: str) -> tuple[int, ...]:
    return sub.encoder if side == "encoder" else sub.decoder


def _key(side: str, depth: int, layer: int) -> str:
    return f"{side}_{depth}_{layer}"

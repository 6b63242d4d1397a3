"""What a student learns from a teacher besides the references: its output distributions and its layers.

Wu, Passban, Rezagholizadeh and Liu 2020, "Why Skip If You Can Combine". A teacher is another model, or the whole of the
model in training, which then teaches its own shallower exits. Every choice of layers that a step runs is a student of
its own depth.

Shapes: e exits, r real positions, c copies of a batch, d width.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from anydepth.config import ModelConfig, TeacherConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu
from anydepth.depth.maps import LayerMap, check_map, layer_map
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.objectives.cross_entropy import Soft
from anydepth.objectives.matching import Match, match_attention
from anydepth.objectives.outputs import Passes, Ran, real_positions
from anydepth.objectives.teacher import Shown, Teacher, layers_of

SIDES = {"encoder": ("encoder",), "decoder": ("decoder",), "both": ("encoder", "decoder")}


class Lesson(NamedTuple):
    """How a teacher changes the loss: what is left for the references, its outputs to match, and the losses of layers,
    means over the tokens of the source and of the target.

    The parts are those of layers, for the logs, as they count before lambda, and what of them is of the source.
    """

    left_er: Tensor
    soft: Soft | None
    of_encoder: Tensor | None
    of_decoder: Tensor | float
    parts: dict[str, Tensor]
    source_parts: dict[str, Tensor]


class Teaching(nn.Module):
    """Its parameters, the projections, are trained with the student and not part of it."""

    def __init__(
        self, config: TeacherConfig, teacher: Teacher, student: ModelConfig, menu: DepthMenu, seed: int
    ) -> None:
        super().__init__()
        self.config, self.teacher = config, teacher
        self.sides = SIDES[config.sides] if config.matches_layers else ()
        self.watches = config.attention and "encoder" in self.sides
        widths = teacher.config.width, student.width
        self.matches = nn.ModuleDict()  # by side, depth of the student and layer of it
        with torch.random.fork_rng(devices=[]):  # the student begins as it would without a teacher
            torch.manual_seed(seed)
            for side in self.sides:
                of_depths = {
                    str(depth): nn.ModuleDict(
                        {str(own): Match(config, layers, teacher.depth(side), widths) for own, layers in one.items()}
                    )
                    for depth, one in self._maps(side, menu).items()
                }
                self.matches[side] = nn.ModuleDict(of_depths)

    def _maps(self, side: str, menu: DepthMenu) -> dict[int, LayerMap]:
        """The teacher's layers for each layer of each depth that the student has."""
        depths = sorted({len(layers_of(entry.subnetwork, side)) for entry in menu})
        if self.teacher.is_the_student:
            depths = [depth for depth in depths if depth < self.teacher.depth(side)]
        if not depths:
            raise UserError(
                f"the {side} has one depth only, so there is none that could learn from a deeper one: "
                "set teacher.sides to the other side, or teacher.method=rkd"
            )
        return {depth: self._map(side, depth, len(depths)) for depth in depths}

    def _map(self, side: str, of_student: int, depths: int) -> LayerMap:
        given, of_teacher = self.config.map, self.teacher.depth(side)
        if given is None:
            given = "last" if self.config.method == "pkd" else "regular"
        if isinstance(given, str):
            return layer_map(given, of_teacher, of_student)
        if depths > 1:
            raise UserError(
                "an explicit teacher.map is for a student of one depth, and this one has several: give the name of a "
                "map, such as overlap"
            )
        try:
            return check_map(given, of_teacher, of_student)
        except UserError as error:
            raise UserError(f"of the {side}, {error}") from error

    def forward(self, model: Transformer, batch: Batch, passes: Passes) -> Lesson:
        config = self.config
        outputs = config.eta > 0 or "decoder" in self.sides
        shown = self.teacher.look(model, batch, passes.real_r, outputs=outputs, watch=self.watches)
        eta_er, lambda_er = self._shares(passes)
        soft = None
        if config.eta > 0 and shown.features_rd is not None:
            soft = Soft(shown.features_rd, shown.matrix_vd, passes.weight_er * eta_er, config.temperature)
        found = {side: self._of_layers(side, batch, passes, shown) for side in self.sides}
        counted = {side: config.lambda_ * torch.stack(list(parts.values())).sum() for side, parts in found.items()}
        parts: dict[str, Tensor] = {}
        for name, part in (item for of_side in found.values() for item in of_side.items()):
            parts[name] = parts.get(name, 0.0) + part.detach()
        of_source = {name: part.detach() for name, part in found.get("encoder", {}).items()}
        left_er = 1 - eta_er - lambda_er
        return Lesson(left_er, soft, counted.get("encoder"), counted.get("decoder", 0.0), parts, of_source)

    def _shares(self, passes: Passes) -> tuple[Tensor, Tensor]:
        """Eta and lambda for each exit and token. A model that teaches itself has nothing to teach its deepest exit."""
        eta_er = torch.full_like(passes.weight_er, self.config.eta)
        lambda_er = torch.full_like(passes.weight_er, self.config.lambda_ if self.sides else 0.0)
        if self.teacher.is_the_student:
            encoder_er, decoder_er = passes.whole_er
            both_er = encoder_er & decoder_er
            eta_er = eta_er.masked_fill(both_er, 0.0)
            whole_er = {"encoder": encoder_er, "decoder": decoder_er, "both": both_er}[self.config.sides]
            lambda_er = lambda_er.masked_fill(whole_er, 0.0)
        return eta_er, lambda_er

    def _of_layers(self, side: str, batch: Batch, passes: Passes, shown: Shown) -> dict[str, Tensor]:
        """Eq. 3 for each choice of layers that was run, weighted by what it counts; by name, with a gradient."""
        watches = self.watches and side == "encoder"
        names = [self.config.method, "attention"] if watches else [self.config.method]
        parts = {name: torch.zeros((), device=batch.source.device) for name in names}
        tokens = batch.source if side == "encoder" else batch.target_out
        real_r = real_positions(tokens)
        sentence_r = real_r // tokens.shape[1]
        taught = {layer: shown.states[side][layer - 1].flatten(0, 1)[real_r] for layer in self._needed(side)}
        for ran in self._ran(side, passes):
            times_r = None if ran.times_b is None else ran.times_b[sentence_r]
            for own, match in self._matched(side, ran):
                state_crd = ran.states[own - 1].view(len(ran.weights), tokens.numel(), -1)[:, real_r]
                apart_c = match(state_crd, taught, times_r)
                parts[self.config.method] += sum(w * apart for w, apart in zip(ran.weights, apart_c, strict=True))
                if watches:
                    theirs = [shown.states[side].attention[layer - 1] for layer in match.layers]
                    own_attention = ran.states.attention[own - 1]
                    apart = match_attention(own_attention, theirs, batch.source_padding, match.shares())
                    parts["attention"] += ran.weights[0] * apart
        return parts

    def _needed(self, side: str) -> set[int]:
        """The teacher's layers that anything is matched with."""
        return {layer for match in self.matches[side].modules() if isinstance(match, Match) for layer in match.layers}

    def _ran(self, side: str, passes: Passes) -> list[Ran]:
        return passes.encoders if side == "encoder" else passes.decoders

    def _matched(self, side: str, ran: Ran) -> Iterator[tuple[int, Match]]:
        """The student's layers that have something to match, from 1: none of the deepest exit, if that teaches."""
        of_depths = cast(nn.ModuleDict, self.matches[side])
        if str(ran.depth) in of_depths:
            for own, match in cast(nn.ModuleDict, of_depths[str(ran.depth)]).items():
                yield int(own), cast(Match, match)

    def unused(self, passes: Passes | None) -> list[nn.Parameter]:
        """The parameters of depths that a step did not run; all of them, if it was not taught."""
        unused = []
        for side in self.sides:
            ran = set() if passes is None else {str(one.depth) for one in self._ran(side, passes)}
            of_depths = cast(nn.ModuleDict, self.matches[side])
            unused += [p for depth, matches in of_depths.items() if depth not in ran for p in matches.parameters()]
        return unused

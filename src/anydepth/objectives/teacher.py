"""Who teaches: a model at one of its depths, and what it shows of a batch."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.model import States, Transformer


class Shown(NamedTuple):
    """What a teacher computed for a batch."""

    states: dict[str, States]  # of each side
    features_rd: Tensor | None  # at real target tokens, where they were asked for
    matrix_vd: Tensor


@dataclass(frozen=True)
class Teacher:
    """Which model teaches, at which of its depths. Without a model, the one in training teaches itself.

    Not a module: its weights are neither trained nor stored with the student's.
    """

    model: Transformer | None
    config: ModelConfig
    sub: SubNetwork

    @property
    def is_the_student(self) -> bool:
        return self.model is None

    def depth(self, side: str) -> int:
        return len(layers_of(self.sub, side))

    @torch.no_grad()
    def look(self, student: Transformer, batch: Batch, real_r: Tensor, *, outputs: bool, watch: bool) -> Shown:
        """The teacher's states for a batch, without dropout.

        Call it after the student has run: under autocast, weights that are first cast here have no gradient there.
        """
        model = student if self.model is None else self.model
        was_training = model.training
        model.eval()
        encoded, decoded = model.encode(batch.source, self.sub, batch.source_padding, watch), States([])
        features_rd = None
        if outputs and self.sub.decoder:
            decoded = model.decode(batch.target_in, model.memory(encoded[-1]), self.sub, batch.source_padding)
            features_rd = model.features(decoded[-1].flatten(0, 1)[real_r])
        elif outputs:
            features_rd = model.read_out(encoded[-1], batch.source_padding, real_r)
        model.train(was_training)
        return Shown({"encoder": encoded, "decoder": decoded}, features_rd, model.output.weight.detach())


def layers_of(sub: SubNetwork, side: str) -> tuple[int, ...]:
    return sub.encoder if side == "encoder" else sub.decoder

"""The plain translation loss of the deepest exit."""

import torch
from torch import Tensor

from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer
from anydepth.objectives.base import Loss, Objective
from anydepth.objectives.cross_entropy import cross_entropy
from anydepth.text import Batch, Tokenizer


class Vanilla(Objective):
    def forward(self, model: Transformer, batch: Batch, step: int) -> Loss:
        return translation_loss(model, batch, model.full, self.label_smoothing)

    def menu(self) -> DepthMenu:
        return DepthMenu.of([SubNetwork.prefix(self.model_config.encoder_layers, self.model_config.decoder_layers)])


def translation_loss(model: Transformer, batch: Batch, sub: SubNetwork, smoothing: float) -> Loss:
    """The loss of one sub-network on one batch."""
    memory = model.memory(model.encode(batch.source, sub, batch.source_padding)[-1])
    state = model.decode(batch.target_in, memory, sub, batch.source_padding)[-1]
    return loss_of_rows(model, state.flatten(0, 1), batch, smoothing)


def loss_of_rows(model: Transformer, states_rd: Tensor, batch: Batch, smoothing: float) -> Loss:
    """The loss of one decoder state per target position; padding is left out before the vocabulary is touched."""
    real = real_positions(batch)
    weight = torch.full((len(real),), 1 / len(real), device=states_rd.device)
    total, nll = cross_entropy(
        model.features(states_rd[real]),
        model.output.weight,
        batch.target_out.flatten()[real],
        weight,
        smoothing,
    )
    return Loss(total, len(real), {"nll": nll.mean()})


def real_positions(batch: Batch) -> Tensor:
    """Indices of the target positions, flattened, that are not padding."""
    return (batch.target_out.flatten() != Tokenizer.PAD).nonzero()[:, 0]

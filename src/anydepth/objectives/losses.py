"""From decoder states to a loss: of one sub-network, or of several whose decoder passes are stacked on the batch.

Shapes: n passes stacked on the batch, m states of each, b batch, t target length, d width, r rows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from anydepth.depth import SubNetwork
from anydepth.model import Transformer
from anydepth.objectives.base import Loss
from anydepth.objectives.cross_entropy import cross_entropy
from anydepth.text import Batch, Tokenizer


def translation_loss(model: Transformer, batch: Batch, sub: SubNetwork, smoothing: float) -> Loss:
    """The loss of one sub-network on one batch."""
    memory = model.memory(model.encode(batch.source, sub, batch.source_padding)[-1])
    state = model.decode(batch.target_in, memory, sub, batch.source_padding)[-1]
    return loss_of_rows(model, state.flatten(0, 1), batch, smoothing)


def loss_of_rows(model: Transformer, states_rd: Tensor, batch: Batch, smoothing: float) -> Loss:
    """The loss of one decoder state per target position; padding is left out before the vocabulary is touched."""
    return loss_of_tasks(model, [states_rd], batch, torch.ones(1, 1), smoothing)


def decode_stacked(model: Transformer, batch: Batch, exits_bsd: Sequence[Tensor], sub: SubNetwork) -> list[Tensor]:
    """The states of one decoder over several encoder exits in one pass: [n x b, t, d] after each layer."""
    n = len(exits_bsd)
    padding = None if batch.source_padding is None else batch.source_padding.repeat(n, 1)
    return model.decode(batch.target_in.repeat(n, 1), model.memory(torch.cat(list(exits_bsd))), sub, padding)


def loss_of_tasks(
    model: Transformer, states: Sequence[Tensor], batch: Batch, weights_nm: Tensor, smoothing: float
) -> Loss:
    """The weighted loss of n x m tasks: `states` are m, each of n passes stacked on the batch, [n x b x t, d]."""
    n, m = weights_nm.shape
    real = (batch.target_out.flatten() != Tokenizer.PAD).nonzero()[:, 0]
    rows = torch.cat([real + i * batch.target_out.numel() for i in range(n)])
    # one call over all tasks: each would keep a gradient of the whole output matrix
    features_rd = model.features(torch.cat([state[rows] for state in states]))
    target_r = batch.target_out.flatten()[real].repeat(n * m)
    weight_r = weights_nm.to(target_r.device, torch.float32).T.flatten().repeat_interleave(len(real)) / len(real)
    total, nll_r = cross_entropy(features_rd, model.output.weight, target_r, weight_r, smoothing)
    return Loss(total, len(real), {"nll": (nll_r * weight_r).sum()})

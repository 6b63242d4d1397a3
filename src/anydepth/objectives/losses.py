"""From decoder states to a loss: of one sub-network, or of every encoder with every decoder that a step asks for.

Shapes: n encoders, m decoders, b batch, s source length, t target length, d width, r rows (target tokens).
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
    return loss_of_states(model, [state.flatten(0, 1)], batch, torch.ones(1, 1), smoothing)


def loss_of_all(
    model: Transformer,
    batch: Batch,
    encoders: Sequence[tuple[int, ...]],
    decoders: Sequence[tuple[int, ...]],
    weights_nm: Tensor,
    smoothing: float,
) -> Loss:
    """The weighted loss of every encoder with every decoder, each given by its layers.

    An encoder runs once; a decoder takes the exits of them all, stacked on the batch; layers that several begin with
    alike run once for all of these.
    """
    n = len(encoders)
    exits_bsd = model.encode_each(batch.source, encoders, batch.source_padding)
    padding = None if batch.source_padding is None else batch.source_padding.repeat(n, 1)
    states = model.decode_each(batch.target_in.repeat(n, 1), model.memory(torch.cat(exits_bsd)), decoders, padding)
    return loss_of_states(model, [state.flatten(0, 1) for state in states], batch, weights_nm, smoothing)


def loss_of_states(
    model: Transformer, states: Sequence[Tensor], batch: Batch, weights_nm: Tensor, smoothing: float
) -> Loss:
    """The weighted loss of m states, each of n passes stacked on the batch, [n x b x t, d].

    Padding is left out before the vocabulary is touched.
    """
    n, m = weights_nm.shape
    real = (batch.target_out.flatten() != Tokenizer.PAD).nonzero()[:, 0]
    rows = torch.cat([real + i * batch.target_out.numel() for i in range(n)])
    # one call for all: each would keep a gradient of the whole output matrix
    features_rd = model.features(torch.cat([state_rd[rows] for state_rd in states]))
    target_r = batch.target_out.flatten()[real].repeat(n * m)
    weight_r = weights_nm.to(target_r.device, torch.float32).T.flatten().repeat_interleave(len(real)) / len(real)
    total, nll_r = cross_entropy(features_rd, model.output.weight, target_r, weight_r, smoothing)
    return Loss(total, len(real), {"nll": (nll_r * weight_r).sum()})

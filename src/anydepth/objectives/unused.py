"""What a step leaves out still gets a gradient: zero.

Several processes that each run other layers then agree on which gradients there are to add up, and the optimiser
treats a layer alike whether one process left it out or all of them did.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anydepth.model import Transformer
from anydepth.model.stack import Stack

Layers = Collection[int]


class _KeepInGraph(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(*parameters)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads[0], *(torch.zeros_like(parameter) for parameter in ctx.saved_tensors)


def unused_parameters(model: Transformer, encoder: Layers, decoder: Layers) -> list[Tensor]:
    """The parameters that the layers of `encoder` and `decoder` do without, and others use."""
    return [*_others(model.encoder, encoder), *_others(model.decoder, decoder), *_idle_table(model)]


def _idle_table(model: Transformer) -> list[Tensor]:
    """An encoder alone has no use for the embeddings of a target, unless they are those of its source or its output."""
    table = model.target_embedding.weight
    used = any(table is other.weight for other in (model.source_embedding, model.output))
    return [] if model.config.decoder_layers or used else [table]


def keep_in_graph(loss: Tensor, unused: Sequence[Tensor]) -> Tensor:
    """The same loss, of which these parameters are parts too, with gradient zero."""
    if not unused:
        return loss
    kept: Tensor = _KeepInGraph.apply(loss, *unused)  # type: ignore[no-untyped-call]
    return kept


def _others(stack: Stack, used: Layers) -> list[nn.Parameter]:
    if not stack.layers:  # the decoder of an encoder alone: nobody asks for its norm
        return list(stack.parameters())
    running = {id(p) for p in stack.parameters_of(used)}  # with shared weights a layer may run in another's place
    return [p for p in stack.parameters() if id(p) not in running]

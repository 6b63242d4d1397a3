"""Layers that a step leaves out still get a gradient: zero.

Several processes that each run other layers then agree on which gradients there are to add up, and the optimiser
treats a layer alike whether one process left it out or all of them did.
"""

from collections.abc import Collection
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


def keep_unused_in_graph(loss: Tensor, model: Transformer, encoder: Layers, decoder: Layers) -> Tensor:
    """The same loss, of which the layers besides those of `encoder` and `decoder` are parts, with gradient zero."""
    unused = [*_others(model.encoder, encoder), *_others(model.decoder, decoder)]
    if not unused:
        return loss
    kept: Tensor = _KeepInGraph.apply(loss, *unused)  # type: ignore[no-untyped-call]
    return kept


def _others(stack: Stack, used: Layers) -> list[nn.Parameter]:
    running = {stack.layers[index] for index in used}  # with shared weights a layer may run in another's place
    return [p for layer in stack.distinct if layer not in running for p in layer.parameters()]

"""Layers that a step leaves out still get a gradient: zero.

Several processes that each run other layers then agree on which gradients there are to add up, and the optimiser
treats a layer alike whether one process left it out or all of them did.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from anydepth.depth import SubNetwork
from anydepth.model import Transformer


class _KeepInGraph(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(*parameters)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads[0], *(torch.zeros_like(parameter) for parameter in ctx.saved_tensors)


def keep_unused_in_graph(loss: Tensor, model: Transformer, used: Iterable[SubNetwork]) -> Tensor:
    """The same loss, of which every layer that no sub-network of `used` runs is a part, with gradient zero."""
    ran = list(used)
    unused = [
        *_others(model.encoder.layers, {layer for sub in ran for layer in sub.encoder}),
        *_others(model.decoder.layers, {layer for sub in ran for layer in sub.decoder}),
    ]
    if not unused:
        return loss
    kept: Tensor = _KeepInGraph.apply(loss, *unused)  # type: ignore[no-untyped-call]
    return kept


def _others(layers: nn.ModuleList, used: set[int]) -> list[nn.Parameter]:
    return [p for index, layer in enumerate(layers) if index not in used for p in layer.parameters()]

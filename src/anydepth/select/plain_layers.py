"""Encoder layers whose weights are fetched once: looking them up takes a good part of the time of one sentence."""

from typing import cast

from torch import Tensor

from anydepth.model.layers import Affine, EncoderLayer, feed_forward, norm, self_attention
from anydepth.model.stack import Stack


class PlainLayers:
    """The first layers of a stack and its final norm, without dropout: what `stack.norm(stack(x, ...)[-1])` gives."""

    def __init__(self, stack: Stack, count: int) -> None:
        layers = [cast(EncoderLayer, layer) for layer in stack.layers[:count]]
        self._weights = [(layer.attention_weights(), layer.ffn_weights(), layer.heads) for layer in layers]
        self._norm = Affine(stack.norm.weight, stack.norm.bias)

    def __call__(self, x_bsd: Tensor, attend: Tensor | None) -> Tensor:
        for attention, ffn, heads in self._weights:
            x_bsd = x_bsd + self_attention(x_bsd, attention, heads, attend, causal=False)
            x_bsd = x_bsd + feed_forward(x_bsd, ffn)
        return norm(x_bsd, self._norm)

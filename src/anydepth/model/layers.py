"""Transformer layers, pre-norm or, as in BERT, post-norm.

Shapes: b batch, t target or query length, s source or key length, d width, h heads, e = d / h.

A layer is a function of its weights: modules hold the parameters, and `weights()` returns them as plain tuples.
Decoding calls it once per layer and then looks nothing up, which is measurably faster at batch 1.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.config import ModelConfig
from anydepth.config.model import Activation
from anydepth.model.attention import (
    Affine,
    CrossAttentionWeights,
    Norm,
    SelfAttentionWeights,
    cross_attention,
    norm,
    project_memory,
    self_attention,
    sparse_self_attention,
)
from anydepth.model.cache import LayerCache
from anydepth.model.packing import Active


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """In place when there are no gradients: the largest activation needs no second copy."""
    if torch.is_grad_enabled():
        return F.gelu(x, approximate=approximate)
    changed: Tensor = torch.ops.aten.gelu_(x, approximate=approximate)
    return changed


def _swish(x: Tensor) -> Tensor:
    return F.silu(x, inplace=not torch.is_grad_enabled())


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": _gelu,
    "gelu-tanh": partial(_gelu, approximate="tanh"),
    "swish": _swish,
}


INT4_GROUP, INT4_FACTOR = 32, 15  # inputs that share a factor, and the largest one: see round_int4


class FeedForwardWeights(NamedTuple):
    norm: Norm | None
    up: Affine
    down: Affine
    activation: Callable[[Tensor], Tensor]


class DecoderWeights(NamedTuple):
    attention: SelfAttentionWeights
    cross: CrossAttentionWeights
    ffn: FeedForwardWeights
    after: tuple[Norm | None, Norm | None, Norm | None]  # the norms after the three branches, if post-norm


def feed_forward(x_btd: Tensor, w: FeedForwardWeights) -> Tensor:
    return F.linear(w.activation(F.linear(norm(x_btd, w.norm), *w.up)), *w.down)


def round_int4(weight: Tensor) -> Tensor:
    """The values that int4 has for a matrix, as engines/native_format.py packs it. The gradient is that of the matrix
    itself (straight-through)."""
    outputs, inputs = weight.shape
    with torch.no_grad():
        groups = F.pad(weight, (0, -inputs % INT4_GROUP)).view(outputs, -1, INT4_GROUP)
        ends = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
        unit = ends.abs().amax(1, keepdim=True) / (8 * INT4_FACTOR)
        unit = torch.where(unit > 0, unit, 1.0)
        nearest = torch.round(ends / (-8 * unit))
        best, least = torch.zeros_like(groups), torch.full_like(ends, torch.inf)
        for change in (0, -1, 1):
            factor = (nearest + change).clamp(-INT4_FACTOR, INT4_FACTOR)
            step = torch.where(factor == 0, 1.0, factor * unit)
            found = torch.round(groups / step).clamp(-8, 7) * factor * unit
            error = (found - groups).square().sum(-1, keepdim=True)
            best, least = torch.where(error < least, found, best), torch.minimum(error, least)
        rounded = best.view(outputs, -1)[:, :inputs]
    return weight + (rounded - weight).detach()


def make_norm(config: ModelConfig) -> nn.LayerNorm | None:
    return None if config.norm == "none" else nn.LayerNorm(config.width, eps=config.norm_epsilon)


def _affine(module: nn.Linear) -> Affine:
    return Affine(module.weight, module.bias)


def _norm(module: nn.LayerNorm | None) -> Norm | None:
    return None if module is None else Norm(module.weight, module.bias, module.eps)


class Layer(nn.Module):
    """What encoder and decoder layers share: self-attention, feed-forward and the residual connection.

    A branch is added as x + weight * SubLayer(Norm(x)); weight 1 is the plain layer, 0 leaves it out. Post-norm is
    Norm(x + weight * SubLayer(x)), and without norms it is x + weight * SubLayer(x).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, ffn = config.width, config.ffn
        self.heads, self.dropout, self.attention_dropout = config.heads, config.dropout, config.attention_dropout
        self.norm_first, self.activation = config.norm != "post", ACTIVATIONS[config.activation]
        self.attention_norm, self.ffn_norm = make_norm(config), make_norm(config)
        self.attention_qkv, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ffn_up, self.ffn_down = nn.Linear(width, ffn), nn.Linear(ffn, width)
        self.int4 = False  # run the feed-forward matrices as int4 has them

    def before(self, module: nn.LayerNorm | None) -> Norm | None:
        return _norm(module) if self.norm_first else None

    def after(self, module: nn.LayerNorm | None) -> Norm | None:
        return None if self.norm_first else _norm(module)

    def attention_weights(self) -> SelfAttentionWeights:
        return SelfAttentionWeights(
            self.before(self.attention_norm), _affine(self.attention_qkv), _affine(self.attention_out), self.heads
        )

    def ffn_weights(self) -> FeedForwardWeights:
        up, down = _affine(self.ffn_up), _affine(self.ffn_down)
        if self.int4:
            up, down = Affine(round_int4(up.weight), up.bias), Affine(round_int4(down.weight), down.bias)
        return FeedForwardWeights(self.before(self.ffn_norm), up, down, self.activation)

    def join(self, x: Tensor, branch: Tensor, weight: float | Tensor, after: Norm | None) -> Tensor:
        if self.training and self.dropout:
            branch = F.dropout(branch, self.dropout)
        branch = branch.to(x.dtype)  # a sum of two types is several times slower on a CPU
        if isinstance(weight, Tensor):
            x = torch.addcmul(x, branch, weight)
        else:
            x = x + branch if weight == 1.0 else torch.add(x, branch, alpha=weight)
        return norm(x, after)

    @property
    def drops_attention(self) -> float:
        return self.attention_dropout if self.training else 0.0


class EncoderLayer(Layer):
    def forward(
        self,
        x_bsd: Tensor,
        weight: float | Tensor,
        attend: Tensor | None,
        attention_maps: list[Tensor] | None = None,
        active: Active | None = None,
    ) -> Tensor:
        """Appends its attention probabilities, [b, h, s, s], to `attention_maps`, if given.

        If only some tokens are `active`, the others keep their states but are still attended to.
        """
        w, dropout = self.attention_weights(), self.drops_attention
        if active is None:
            attended = self_attention(x_bsd, w, attend, causal=False, attention_maps=attention_maps, dropout=dropout)
            return self._rest(x_bsd, attended, weight)
        x_rd = x_bsd.flatten(0, 1)
        attended = sparse_self_attention(x_bsd, w, active, dropout)
        changed = self._rest(x_rd.index_select(0, active.rows_a), attended, weight)
        return x_rd.index_copy(0, active.rows_a, changed).view_as(x_bsd)

    def _rest(self, x: Tensor, attended: Tensor, weight: float | Tensor) -> Tensor:
        x = self.join(x, attended, weight, self.after(self.attention_norm))
        return self.join(x, feed_forward(x, self.ffn_weights()), weight, self.after(self.ffn_norm))


class DecoderLayer(Layer):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        width = config.width
        self.cross_norm = make_norm(config)
        self.cross_query, self.cross_out = nn.Linear(width, width), nn.Linear(width, width)
        self.cross_key_value = nn.Linear(width, 2 * width)

    def weights(self) -> DecoderWeights:
        cross = CrossAttentionWeights(
            self.before(self.cross_norm),
            _affine(self.cross_query),
            _affine(self.cross_key_value),
            _affine(self.cross_out),
        )
        norms = self.after(self.attention_norm), self.after(self.cross_norm), self.after(self.ffn_norm)
        return DecoderWeights(self.attention_weights(), cross, self.ffn_weights(), norms)

    def forward(
        self,
        x_btd: Tensor,
        weight: float | Tensor,
        memory_bsd: Tensor,
        attend: Tensor | None,
        cache: LayerCache | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """If only some `rows` go on, the others keep their states, which are still keys and values."""
        if cache is None:
            w, heads = self.weights(), self.heads
            key, value = project_memory(memory_bsd, w.cross, heads)
        else:
            if cache.weights is None or cache.memory is None:
                cache.weights = self.weights()
                cache.memory = project_memory(memory_bsd, cache.weights.cross, self.heads)
            w, heads, (key, value) = cache.weights, self.heads, cache.memory
        attended = self_attention(x_btd, w.attention, None, True, cache, dropout=self.drops_attention, rows=rows)
        x = x_btd if rows is None else x_btd.index_select(0, rows)
        x = self.join(x, attended, weight, w.after[0])
        asked = cross_attention(x, w.cross, heads, key, value, attend, rows, None if rows is None else len(x_btd))
        x = self.join(x, asked, weight, w.after[1])
        x = self.join(x, feed_forward(x, w.ffn), weight, w.after[2])
        return x if rows is None else x_btd.index_copy(0, rows, x)

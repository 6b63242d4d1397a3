"""Pre-norm Transformer layers.

Shapes: b batch, t target or query length, s source or key length, d width, h heads, e = d / h.

A layer is a function of its weights: the modules hold parameters, and `weights()` hands them out as plain tuples.
Decoding asks once per layer and then runs without looking anything up: noticeable at batch 1 (docs/lab-notes.md).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.model.cache import LayerCache


class Affine(NamedTuple):
    """A matrix, or the scale of a norm, and its bias."""

    weight: Tensor
    bias: Tensor


class SelfAttentionWeights(NamedTuple):
    norm: Affine | None
    qkv: Affine
    out: Affine


class CrossAttentionWeights(NamedTuple):
    norm: Affine | None
    query: Affine
    key_value: Affine
    out: Affine


class FeedForwardWeights(NamedTuple):
    norm: Affine | None
    up: Affine
    down: Affine


class DecoderWeights(NamedTuple):
    attention: SelfAttentionWeights
    cross: CrossAttentionWeights
    ffn: FeedForwardWeights


def norm(x: Tensor, affine: Affine | None) -> Tensor:
    return x if affine is None else torch.layer_norm(x, (x.shape[-1],), *affine)


def self_attention(
    x_btd: Tensor,
    w: SelfAttentionWeights,
    heads: int,
    attend: Tensor | None,
    causal: bool,
    cache: LayerCache | None = None,
    seen: list[Tensor] | None = None,
) -> Tensor:
    b, t, d = x_btd.shape
    qkv_3bhte = F.linear(norm(x_btd, w.norm), *w.qkv).view(b, t, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
    if cache is None:
        query, key, value = qkv_3bhte.unbind(0)
    else:
        query = qkv_3bhte[0]
        key, value = cache.append(qkv_3bhte[1:])
        positions = key.shape[2]
        if t == 1:
            causal = False
        elif t < positions:  # new positions see all old ones; `is_causal` would align them with the first
            attend = torch.ones(t, positions, dtype=torch.bool, device=x_btd.device).tril(positions - t)
            causal = False
    if seen is None:
        mixed_bhte = F.scaled_dot_product_attention(query, key, value, attn_mask=attend, is_causal=causal)
    else:
        seen.append(attention_probabilities(query, key, attend))
        mixed_bhte = seen[-1] @ value
    return F.linear(mixed_bhte.transpose(1, 2).reshape(b, t, d), *w.out)


def attention_probabilities(query_bhte: Tensor, key_bhse: Tensor, attend: Tensor | None) -> Tensor:
    """What the fused attention never shows: how much each position looks at each other, [b, h, t, s]."""
    scores_bhts = query_bhte @ key_bhse.transpose(-1, -2) * query_bhte.shape[-1] ** -0.5
    if attend is not None:
        scores_bhts = scores_bhts.masked_fill(~attend, float("-inf"))
    return torch.softmax(scores_bhts, dim=-1)


def project_memory(memory_bsd: Tensor, w: CrossAttentionWeights, heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values of an encoder exit, [b, h, s, e] each: once per sentence, whatever the target's length."""
    b, s, d = memory_bsd.shape
    key_value_2bhse = F.linear(memory_bsd, *w.key_value).view(b, s, 2, heads, d // heads).permute(2, 0, 3, 1, 4)
    key, value = key_value_2bhse.unbind(0)
    return key, value


def cross_attention(
    x_btd: Tensor, w: CrossAttentionWeights, heads: int, key_bhse: Tensor, value_bhse: Tensor, attend: Tensor | None
) -> Tensor:
    b, t, d = x_btd.shape
    # Beams of one sentence share its keys and values: they stand in a row as further queries.
    sentences = key_bhse.shape[0]
    query = F.linear(norm(x_btd, w.norm), *w.query).view(sentences, b // sentences * t, heads, d // heads)
    mixed_bhte = F.scaled_dot_product_attention(query.transpose(1, 2), key_bhse, value_bhse, attn_mask=attend)
    return F.linear(mixed_bhte.transpose(1, 2).reshape(b, t, d), *w.out)


def feed_forward(x_btd: Tensor, w: FeedForwardWeights) -> Tensor:
    return F.linear(torch.relu_(F.linear(norm(x_btd, w.norm), *w.up)), *w.down)


def _affine(module: nn.Linear | nn.LayerNorm) -> Affine:
    return Affine(module.weight, module.bias)


def _affine_or_none(module: nn.LayerNorm | None) -> Affine | None:
    return None if module is None else _affine(module)


class Layer(nn.Module):
    """What encoder and decoder layers share: self-attention, feed-forward, and how a branch joins the stream.

    Every branch is added as x + weight * SubLayer(Norm(x)): weight 1 is the plain layer, 0 leaves it out.
    Without `norms` it is x + weight * SubLayer(x).
    """

    def __init__(self, width: int, heads: int, ffn: int, dropout: float, norms: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm = nn.LayerNorm(width) if norms else None
        self.ffn_norm = nn.LayerNorm(width) if norms else None
        self.attention_qkv, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ffn_up, self.ffn_down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def attention_weights(self) -> SelfAttentionWeights:
        return SelfAttentionWeights(
            _affine_or_none(self.attention_norm), _affine(self.attention_qkv), _affine(self.attention_out)
        )

    def ffn_weights(self) -> FeedForwardWeights:
        return FeedForwardWeights(_affine_or_none(self.ffn_norm), _affine(self.ffn_up), _affine(self.ffn_down))

    def join(self, x: Tensor, branch: Tensor, weight: float | Tensor) -> Tensor:
        if self.training and self.dropout:
            branch = F.dropout(branch, self.dropout)
        if isinstance(weight, Tensor):
            return torch.addcmul(x, branch, weight)
        return x + branch if weight == 1.0 else torch.add(x, branch, alpha=weight)


class EncoderLayer(Layer):
    def forward(
        self, x_bsd: Tensor, weight: float | Tensor, attend: Tensor | None, seen: list[Tensor] | None = None
    ) -> Tensor:
        """To `seen`, if it is given, the layer adds its attention probabilities, [b, h, s, s]."""
        attended = self_attention(x_bsd, self.attention_weights(), self.heads, attend, causal=False, seen=seen)
        x_bsd = self.join(x_bsd, attended, weight)
        return self.join(x_bsd, feed_forward(x_bsd, self.ffn_weights()), weight)


class DecoderLayer(Layer):
    def __init__(self, width: int, heads: int, ffn: int, dropout: float, norms: bool = True) -> None:
        super().__init__(width, heads, ffn, dropout, norms)
        self.cross_norm = nn.LayerNorm(width) if norms else None
        self.cross_query, self.cross_out = nn.Linear(width, width), nn.Linear(width, width)
        self.cross_key_value = nn.Linear(width, 2 * width)

    def weights(self) -> DecoderWeights:
        cross = CrossAttentionWeights(
            _affine_or_none(self.cross_norm),
            _affine(self.cross_query),
            _affine(self.cross_key_value),
            _affine(self.cross_out),
        )
        return DecoderWeights(self.attention_weights(), cross, self.ffn_weights())

    def forward(
        self,
        x_btd: Tensor,
        weight: float | Tensor,
        memory_bsd: Tensor,
        attend: Tensor | None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        if cache is None:
            w, heads = self.weights(), self.heads
            key, value = project_memory(memory_bsd, w.cross, heads)
        else:
            if cache.weights is None or cache.memory is None:
                cache.weights = self.weights()
                cache.memory = project_memory(memory_bsd, cache.weights.cross, self.heads)
            w, heads, (key, value) = cache.weights, self.heads, cache.memory
        x_btd = self.join(x_btd, self_attention(x_btd, w.attention, heads, None, True, cache), weight)
        x_btd = self.join(x_btd, cross_attention(x_btd, w.cross, heads, key, value, attend), weight)
        return self.join(x_btd, feed_forward(x_btd, w.ffn), weight)

"""Transformer layers, with their norm before each branch, or after it as in BERT.

Shapes: b batch, t target or query length, s source or key length, d width, h heads, e = d / h.

A layer is a function of its weights: the modules hold parameters, and `weights()` hands them out as plain tuples.
Decoding asks once per layer and then runs without looking anything up: noticeable at batch 1 (docs/lab-notes.md).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.config import ModelConfig
from anydepth.config.model import Activation
from anydepth.model.cache import LayerCache
from anydepth.model.packing import Active


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """In place where nothing is to be learnt: the largest of all states needs no second copy."""
    if torch.is_grad_enabled():
        return F.gelu(x, approximate=approximate)
    changed: Tensor = torch.ops.aten.gelu_(x, approximate=approximate)
    return changed


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": _gelu,
    "gelu-tanh": partial(_gelu, approximate="tanh"),
}

# Keys and values are not projected where the active tokens of a sentence, times heads, are fewer than so many widths.
ABSORBED = 0.6


class Affine(NamedTuple):
    weight: Tensor
    bias: Tensor


class Norm(NamedTuple):
    weight: Tensor
    bias: Tensor
    epsilon: float


class SelfAttentionWeights(NamedTuple):
    norm: Norm | None
    qkv: Affine
    out: Affine


class CrossAttentionWeights(NamedTuple):
    norm: Norm | None
    query: Affine
    key_value: Affine
    out: Affine


class FeedForwardWeights(NamedTuple):
    norm: Norm | None
    up: Affine
    down: Affine
    activation: Callable[[Tensor], Tensor]


class DecoderWeights(NamedTuple):
    attention: SelfAttentionWeights
    cross: CrossAttentionWeights
    ffn: FeedForwardWeights
    after: tuple[Norm | None, Norm | None, Norm | None]  # the norms after the three branches, if they come after


def norm(x: Tensor, weights: Norm | None) -> Tensor:
    return x if weights is None else torch.layer_norm(x, (x.shape[-1],), *weights)


def self_attention(
    x_btd: Tensor,
    w: SelfAttentionWeights,
    heads: int,
    attend: Tensor | None,
    causal: bool,
    cache: LayerCache | None = None,
    seen: list[Tensor] | None = None,
    dropout: float = 0.0,
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
        mixed_bhte = F.scaled_dot_product_attention(query, key, value, attend, dropout, causal)
    else:
        seen.append(attention_probabilities(query, key, attend))
        mixed_bhte = F.dropout(seen[-1], dropout) @ value
    return F.linear(mixed_bhte.transpose(1, 2).reshape(b, t, d), *w.out)


def attention_probabilities(query_bhte: Tensor, key_bhse: Tensor, attend: Tensor | None) -> Tensor:
    """What the fused attention never shows: how much each position looks at each other, [b, h, t, s]."""
    scores_bhts = query_bhte @ key_bhse.transpose(-1, -2) * query_bhte.shape[-1] ** -0.5
    if attend is not None:
        scores_bhts = scores_bhts.masked_fill(~attend, float("-inf"))
    return torch.softmax(scores_bhts, dim=-1)


def attention_of_some(x_bsd: Tensor, w: SelfAttentionWeights, heads: int, active: Active, dropout: float) -> Tensor:
    """What the active tokens get from all tokens of their sentences, [a, d]: the others are keys and values only.

    The projections run on what needs them, of the whole batch together; the few products between tokens on a grid of
    l sentences that are not finished by q places, as many as the busiest of them has active tokens.
    """
    d = x_bsd.shape[-1]
    x_lsd = norm(active.sentences_of(x_bsd), w.norm)
    x_ad = norm(x_bsd.flatten(0, 1).index_select(0, active.rows_a), w.norm)
    query_ad = F.linear(x_ad, w.qkv.weight[:d], w.qkv.bias[:d])
    few = len(x_ad) * heads < ABSORBED * d * len(active.counts)
    if few and not torch.is_grad_enabled() and x_bsd.device.type == "cpu":
        return F.linear(_absorbed(query_ad, x_lsd, w.qkv, heads, active), *w.out)
    key_value = F.linear(x_lsd, w.qkv.weight[d:], w.qkv.bias[d:])
    key, value = key_value.view(*x_lsd.shape[:2], 2, heads, d // heads).unbind(2)
    query_lqd = active.on_grid(query_ad)
    query = query_lqd.view(*query_lqd.shape[:2], heads, d // heads)
    mixed_lhqe = F.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), active.attend, dropout
    )
    return F.linear(active.off_grid(mixed_lhqe.transpose(1, 2).reshape(query_lqd.shape)), *w.out)


def _absorbed(query_ad: Tensor, x_lsd: Tensor, qkv: Affine, heads: int, active: Active) -> Tensor:
    """The same without keys and values: (W_k x) . q is x . (W_k' q), and the mean of all W_v x is W_v of their mean.

    For few queries that is less work than projecting all tokens. The keys' bias adds the same to all scores of a
    query, which changes nothing. One sentence after the other, so that none waits for a busier one.
    """
    a, d = query_ad.shape
    e = d // heads
    _, to_key_hed, to_value_hed = qkv.weight.view(3, heads, e, d).unbind(0)
    asked_ahd = (query_ad.view(a, heads, e).transpose(0, 1) @ to_key_hed).transpose(0, 1)
    found = []
    for asked_qhd, x_sd, length in zip(torch.split(asked_ahd, active.counts), x_lsd, active.lengths, strict=True):
        own_sd = x_sd[:length]
        shares_rs = torch.softmax(asked_qhd.reshape(-1, d) @ own_sd.t() * e**-0.5, dim=-1)
        found.append((shares_rs @ own_sd).view(-1, heads, d))
    mixed_hae = torch.cat(found).transpose(0, 1) @ to_value_hed.transpose(1, 2)
    return mixed_hae.transpose(0, 1).reshape(a, d) + qkv.bias[2 * d :]


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
    return F.linear(w.activation(F.linear(norm(x_btd, w.norm), *w.up)), *w.down)


def make_norm(config: ModelConfig) -> nn.LayerNorm | None:
    return None if config.norm == "none" else nn.LayerNorm(config.width, eps=config.norm_epsilon)


def _affine(module: nn.Linear) -> Affine:
    return Affine(module.weight, module.bias)


def _norm(module: nn.LayerNorm | None) -> Norm | None:
    return None if module is None else Norm(module.weight, module.bias, module.eps)


class Layer(nn.Module):
    """What encoder and decoder layers share: self-attention, feed-forward, and how a branch joins the stream.

    Every branch is added as x + weight * SubLayer(Norm(x)): weight 1 is the plain layer, 0 leaves it out. With norms
    after the branches it is Norm(x + weight * SubLayer(x)), and without norms x + weight * SubLayer(x).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, ffn = config.width, config.ffn
        self.heads, self.dropout, self.attention_dropout = config.heads, config.dropout, config.attention_dropout
        self.norm_first, self.activation = config.norm != "post", ACTIVATIONS[config.activation]
        self.attention_norm, self.ffn_norm = make_norm(config), make_norm(config)
        self.attention_qkv, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ffn_up, self.ffn_down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def before(self, module: nn.LayerNorm | None) -> Norm | None:
        return _norm(module) if self.norm_first else None

    def after(self, module: nn.LayerNorm | None) -> Norm | None:
        return None if self.norm_first else _norm(module)

    def attention_weights(self) -> SelfAttentionWeights:
        return SelfAttentionWeights(
            self.before(self.attention_norm), _affine(self.attention_qkv), _affine(self.attention_out)
        )

    def ffn_weights(self) -> FeedForwardWeights:
        return FeedForwardWeights(
            self.before(self.ffn_norm), _affine(self.ffn_up), _affine(self.ffn_down), self.activation
        )

    def join(self, x: Tensor, branch: Tensor, weight: float | Tensor, after: Norm | None) -> Tensor:
        if self.training and self.dropout:
            branch = F.dropout(branch, self.dropout)
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
        seen: list[Tensor] | None = None,
        active: Active | None = None,
    ) -> Tensor:
        """To `seen`, if it is given, the layer adds its attention probabilities, [b, h, s, s].

        Where only some tokens are `active`, the others keep their states, and are still looked at.
        """
        w, dropout = self.attention_weights(), self.drops_attention
        if active is None:
            attended = self_attention(x_bsd, w, self.heads, attend, causal=False, seen=seen, dropout=dropout)
            return self._rest(x_bsd, attended, weight)
        x_rd = x_bsd.flatten(0, 1)
        attended = attention_of_some(x_bsd, w, self.heads, active, dropout)
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
    ) -> Tensor:
        if cache is None:
            w, heads = self.weights(), self.heads
            key, value = project_memory(memory_bsd, w.cross, heads)
        else:
            if cache.weights is None or cache.memory is None:
                cache.weights = self.weights()
                cache.memory = project_memory(memory_bsd, cache.weights.cross, self.heads)
            w, heads, (key, value) = cache.weights, self.heads, cache.memory
        attended = self_attention(x_btd, w.attention, heads, None, True, cache, dropout=self.drops_attention)
        x_btd = self.join(x_btd, attended, weight, w.after[0])
        x_btd = self.join(x_btd, cross_attention(x_btd, w.cross, heads, key, value, attend), weight, w.after[1])
        return self.join(x_btd, feed_forward(x_btd, w.ffn), weight, w.after[2])

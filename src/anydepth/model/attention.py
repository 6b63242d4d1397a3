"""Attention as functions of plain tuples of weights, and the layer norm.

Shapes: b batch, t target or query length, s source or key length, d width, h heads, e = d / h; where only some tokens
are active: a of them in all, l sentences that have some, q at most in one.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from anydepth.model.cache import LayerCache
from anydepth.model.packing import Active

# Keys and values are not projected if active tokens per sentence times heads are below ABSORBED times the width. Short
# sentences are an exception: projecting them takes hardly longer than reading the weights.
ABSORBED, SHORT = 0.6, 48


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
    heads: int


class CrossAttentionWeights(NamedTuple):
    norm: Norm | None
    query: Affine
    key_value: Affine
    out: Affine


def norm(x: Tensor, weights: Norm | None) -> Tensor:
    return x if weights is None else torch.layer_norm(x, (x.shape[-1],), *weights)


def self_attention(
    x_btd: Tensor,
    w: SelfAttentionWeights,
    attend: Tensor | None,
    causal: bool,
    cache: LayerCache | None = None,
    attention_maps: list[Tensor] | None = None,
    dropout: float = 0.0,
    rows: Tensor | None = None,
) -> Tensor:
    """Of some `rows` of the batch alone, if they are given; all rows are keys and values."""
    (b, t, d), heads = x_btd.shape, w.heads
    behind = None if cache is None else cache.left_behind()
    given, count = (x_btd, t) if behind is None else (torch.cat([behind, x_btd], dim=1), behind.shape[1] + t)
    qkv_3bhte = F.linear(norm(given, w.norm), *w.qkv).view(b, count, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
    if cache is None:
        query, key, value = qkv_3bhte.unbind(0)
    else:
        query = qkv_3bhte[0] if behind is None else qkv_3bhte[0, :, :, -t:]
        key, value = cache.append(qkv_3bhte[1:])
        positions = key.shape[2]
        if t == 1:
            causal = False
        elif t < positions:  # new positions see all old ones; `is_causal` would align the mask at the first
            attend = torch.ones(t, positions, dtype=torch.bool, device=x_btd.device).tril(positions - t)
            causal = False
    mixed_bhte = dot_product_attention(query, key, value, attend, dropout, causal, attention_maps)
    mixed_btd = mixed_bhte.transpose(1, 2).reshape(b, t, d)
    return F.linear(mixed_btd if rows is None else mixed_btd.index_select(0, rows), *w.out)


def dot_product_attention(
    query_bhte: Tensor,
    key_bhse: Tensor,
    value_bhse: Tensor,
    attend: Tensor | None,
    dropout: float = 0.0,
    causal: bool = False,
    attention_maps: list[Tensor] | None = None,
) -> Tensor:
    """Fused, unless the probabilities are asked for, or in bfloat16 on a CPU, where the fused one is many times slower
    with gradients."""
    is_slow = query_bhte.dtype == torch.bfloat16 and query_bhte.device.type == "cpu" and torch.is_grad_enabled()
    if attention_maps is None and not is_slow:
        return F.scaled_dot_product_attention(query_bhte, key_bhse, value_bhse, attend, dropout, causal)
    if causal:
        attend = torch.ones(query_bhte.shape[2], key_bhse.shape[2], dtype=torch.bool, device=query_bhte.device).tril()
    weights_bhts = attention_probabilities(query_bhte, key_bhse, attend)
    if attention_maps is not None:
        attention_maps.append(weights_bhts)
    return F.dropout(weights_bhts, dropout) @ value_bhse


def attention_probabilities(query_bhte: Tensor, key_bhse: Tensor, attend: Tensor | None) -> Tensor:
    """Attention probabilities, [b, h, t, s], which the fused attention does not return."""
    scores_bhts = (query_bhte * query_bhte.shape[-1] ** -0.5) @ key_bhse.transpose(-1, -2)
    if attend is not None:
        scores_bhts = scores_bhts.masked_fill(~attend, float("-inf"))
    return torch.softmax(scores_bhts, dim=-1)


def sparse_self_attention(x_bsd: Tensor, w: SelfAttentionWeights, active: Active, dropout: float) -> Tensor:
    """Self-attention for the active tokens only, [a, d]; the other tokens are keys and values.

    Projections run on the tokens that need them, for the whole batch at once. Products between tokens run on a grid of
    l unfinished sentences by q queries, the largest number of active tokens in a sentence.
    """
    d, heads = x_bsd.shape[-1], w.heads
    x_lsd = norm(active.take_sentences(x_bsd), w.norm)
    x_ad = norm(x_bsd.flatten(0, 1).index_select(0, active.rows_a), w.norm)
    query_ad = F.linear(x_ad, w.qkv.weight[:d], w.qkv.bias[:d])
    few = len(x_ad) * heads < ABSORBED * d * len(active.counts) and x_lsd.shape[1] >= SHORT
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
    """The same without projecting keys and values: (W_k x) . q = x . (W_k' q), and the mean of all W_v x is W_v of
    their mean.

    With few queries this is less work than projecting all tokens. The bias of the keys adds a constant to all scores of
    a query, which changes nothing. Sentences run one by one, so none is padded to a longer one.
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
    """Keys and values of an encoder exit, [b, h, s, e] each, computed once per sentence."""
    b, s, d = memory_bsd.shape
    key_value_2bhse = F.linear(memory_bsd, *w.key_value).view(b, s, 2, heads, d // heads).permute(2, 0, 3, 1, 4)
    key, value = key_value_2bhse.unbind(0)
    return key, value


def cross_attention(
    x_btd: Tensor,
    w: CrossAttentionWeights,
    heads: int,
    key_bhse: Tensor,
    value_bhse: Tensor,
    attend: Tensor | None,
    rows: Tensor | None = None,
    batch: int | None = None,
) -> Tensor:
    """`x_btd` has all rows of the batch, or these `rows` of so many."""
    _, t, d = x_btd.shape
    b = x_btd.shape[0] if batch is None else batch
    # Hypotheses of one sentence share its keys and values: they become further queries.
    sentences = key_bhse.shape[0]
    query_btd = F.linear(norm(x_btd, w.norm), *w.query)
    if rows is not None:
        query_btd = query_btd.new_zeros(b, t, d).index_copy_(0, rows, query_btd)
    query = query_btd.view(sentences, b // sentences * t, heads, d // heads)
    mixed_bhte = dot_product_attention(query.transpose(1, 2), key_bhse, value_bhse, attend)
    mixed_btd = mixed_bhte.transpose(1, 2).reshape(b, t, d)
    return F.linear(mixed_btd if rows is None else mixed_btd.index_select(0, rows), *w.out)

"""Pre-norm Transformer layers.

Shapes: b batch, t target or query length, s source or key length, d width, h heads, e = d / h.
Every branch is added as x + weight * SubLayer(Norm(x)): weight 1 is the plain layer, 0 leaves it out.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.model.cache import LayerCache


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x_btd: Tensor, attend: Tensor | None, causal: bool, cache: LayerCache | None = None) -> Tensor:
        b, t, d = x_btd.shape
        qkv_3bhte = self.qkv(x_btd).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if cache is None:
            query, key, value = qkv_3bhte.unbind(0)
        else:
            query = qkv_3bhte[0]
            key, value = cache.append(qkv_3bhte[1:])
            causal = causal and t > 1
        mixed_bhte = F.scaled_dot_product_attention(query, key, value, attn_mask=attend, is_causal=causal)
        out: Tensor = self.out(mixed_bhte.transpose(1, 2).reshape(b, t, d))
        return out


class CrossAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def project(self, memory_bsd: Tensor) -> Tensor:
        """Keys and values of an encoder exit, [2, b, h, s, e]: once per sentence, whatever the target's length."""
        b, s, d = memory_bsd.shape
        key_value: Tensor = self.key_value(memory_bsd)
        return key_value.view(b, s, 2, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)

    def forward(self, x_btd: Tensor, key_value_2bhse: Tensor, attend: Tensor | None) -> Tensor:
        b, t, d = x_btd.shape
        key, value = key_value_2bhse.unbind(0)
        # Beams of one sentence share its keys and values: they stand in a row as further queries.
        sentences = key.shape[0]
        query = self.query(x_btd).view(sentences, b // sentences * t, self.heads, d // self.heads).transpose(1, 2)
        mixed_bhte = F.scaled_dot_product_attention(query, key, value, attn_mask=attend)
        out: Tensor = self.out(mixed_bhte.transpose(1, 2).reshape(b, t, d))
        return out


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(torch.relu_(self.up(x)))
        return out


class Layer(nn.Module):
    """What encoder and decoder layers share: how a branch joins the residual stream."""

    def __init__(self, width: int, heads: int, ffn: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.ffn_norm = nn.LayerNorm(width)
        self.ffn = FeedForward(width, ffn)

    def join(self, x: Tensor, branch: Tensor, weight: float) -> Tensor:
        if self.training and self.dropout:
            branch = F.dropout(branch, self.dropout)
        return x + branch if weight == 1.0 else x + weight * branch


class EncoderLayer(Layer):
    def forward(self, x_bsd: Tensor, weight: float, attend: Tensor | None) -> Tensor:
        x_bsd = self.join(x_bsd, self.attention(self.attention_norm(x_bsd), attend, causal=False), weight)
        return self.join(x_bsd, self.ffn(self.ffn_norm(x_bsd)), weight)


class DecoderLayer(Layer):
    def __init__(self, width: int, heads: int, ffn: int, dropout: float) -> None:
        super().__init__(width, heads, ffn, dropout)
        self.cross_norm = nn.LayerNorm(width)
        self.cross = CrossAttention(width, heads)

    def forward(
        self,
        x_btd: Tensor,
        weight: float,
        memory_bsd: Tensor,
        attend: Tensor | None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        attended = self.attention(self.attention_norm(x_btd), None, causal=True, cache=cache)
        x_btd = self.join(x_btd, attended, weight)
        key_value = self.cross.project(memory_bsd) if cache is None else cache.memory(self.cross, memory_bsd)
        x_btd = self.join(x_btd, self.cross(self.cross_norm(x_btd), key_value, attend), weight)
        return self.join(x_btd, self.ffn(self.ffn_norm(x_btd)), weight)

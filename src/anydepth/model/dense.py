"""Dense connections: a dynamic linear combination of layers (DLCL, Wang et al. 2019)."""

from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn


class Dense(nn.Module):
    """What a layer reads, and an exit gives, is a weighted sum of all outputs before it, each with a norm of its own.

    With y_0 the embeddings and y_k the output of layer k, that is sum over j <= k of W_kj LN_j(y_j). Row k of W is a
    parameter by itself, and begins as the mean.
    """

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.rows = nn.ParameterList(torch.full((k + 1,), 1 / (k + 1)) for k in range(layers + 1))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers + 1))

    def forward(self, past: dict[int, Tensor], k: int, y: Tensor) -> Tensor:
        """The sum after layer k, of what ran: `past` has the normed outputs before it, and gets that of y."""
        past[k] = self.norms[k](y)
        row = self.rows[k] if len(past) > k else self.rows[k][list(past)]
        with torch.autocast(y.device.type, enabled=False):  # it is the residual stream, which is never rounded
            total: Tensor = torch.tensordot(row, torch.stack(list(past.values())), dims=1)
        return total

    def parameters_of(self, chosen: Collection[int]) -> Iterator[nn.Parameter]:
        """Those that a stack uses which runs these layers, given by index from 0."""
        for k in (0, *(index + 1 for index in chosen)):
            yield self.rows[k]
            yield from self.norms[k].parameters()

"""Which tokens of a batch are active at each layer when tokens have depths of their own (Liu et al. 2021, Eq. 5).

Shapes: b batch, s length, a active tokens, l sentences with an active token, q the most that one of them has, d width.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Active:
    """The tokens that a layer changes. Sentences without active tokens are left out."""

    rows_a: Tensor  # their rows in the flattened batch
    counts: list[int]  # active tokens of each remaining sentence
    lengths: list[int]  # of the remaining sentences
    sentences_l: Tensor | None  # the remaining sentences; None: all
    positions_a: Tensor | None  # of the tokens on the l x q grid; None: they fill it
    attend: Tensor | None  # [l, 1, 1, s], False at padding; None: no padding

    def take_sentences(self, x_bsd: Tensor) -> Tensor:
        remaining = x_bsd if self.sentences_l is None else x_bsd.index_select(0, self.sentences_l)
        return remaining[:, : max(self.lengths)]

    def on_grid(self, x_ad: Tensor) -> Tensor:
        """[l, q, d], padded with zeros."""
        size = (len(self.counts), max(self.counts), x_ad.shape[-1])
        if self.positions_a is None:
            return x_ad.view(size)
        return x_ad.new_zeros(size).flatten(0, 1).index_copy(0, self.positions_a, x_ad).view(size)

    def off_grid(self, x_lqd: Tensor) -> Tensor:
        x_rd = x_lqd.flatten(0, 1)
        return x_rd if self.positions_a is None else x_rd.index_select(0, self.positions_a)


class Packing:
    """The active tokens of each layer, from the depth of each token: how many layers it runs, 0 for padding."""

    def __init__(self, depths_bs: Tensor, padding_bs: Tensor | None, device: torch.device) -> None:
        self.device = device  # of the states; depths from a table may be elsewhere
        depths = depths_bs.cpu().numpy()
        self.depths: NDArray[np.int64] = depths
        self.lengths = np.full(len(depths), depths.shape[1])
        if padding_bs is not None:
            padding = padding_bs.cpu().numpy()
            self.depths = np.where(padding, 0, depths)
            self.lengths = depths.shape[1] - padding.sum(1)
        self.layers = int(self.depths.max())  # that run at all

    def leave(self, leaving_b: NDArray[np.bool_], layers: int) -> None:
        """No token of these sentences runs more than so many layers."""
        self.depths = np.where(leaving_b[:, None], np.minimum(self.depths, layers), self.depths)
        self.layers = int(self.depths.max())

    def at(self, index: int) -> Active | None:
        """Of the layer at this index from 0; None if all tokens run and there is no padding."""
        on_bs = self.depths > index
        if on_bs.all():
            return None
        rows_a = np.flatnonzero(on_bs)
        counts_b = on_bs.sum(1)
        remaining_l = np.flatnonzero(counts_b)
        counts_l, lengths_l = counts_b[remaining_l], self.lengths[remaining_l]
        width, length = int(counts_l.max()), int(lengths_l.max())
        positions_a = None
        if counts_l.min() < width:
            starts_l = np.arange(len(remaining_l)) * width - (np.cumsum(counts_l) - counts_l)
            positions_a = np.repeat(starts_l, counts_l) + np.arange(len(rows_a))
        attend = None
        if lengths_l.min() < length:
            attend = (np.arange(length)[None] < lengths_l[:, None])[:, None, None]
        return Active(
            self._tensor(rows_a),
            counts_l.tolist(),
            lengths_l.tolist(),
            None if len(remaining_l) == len(on_bs) else self._tensor(remaining_l),
            None if positions_a is None else self._tensor(positions_a),
            None if attend is None else self._tensor(attend),
        )

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

"""Which tokens of a batch still run, where each has a depth of its own (Liu et al. 2021, Eq. 5).

Shapes: b batch, s length, a active tokens, l sentences with an active token, q the most that one of them has, d width.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Active:
    """The tokens that a layer changes. Sentences without any have left, and with them their padding."""

    rows_a: Tensor  # where they are in the flattened batch
    counts: list[int]  # how many each sentence has that is left
    lengths: list[int]  # of these sentences
    sentences_l: Tensor | None  # which are left; None: all
    places_a: Tensor | None  # where the tokens are on the grid of l x q; None: they fill it
    attend: Tensor | None  # [l, 1, 1, s] False at padding; None where there is none

    def sentences_of(self, x_bsd: Tensor) -> Tensor:
        left = x_bsd if self.sentences_l is None else x_bsd.index_select(0, self.sentences_l)
        return left[:, : max(self.lengths)]

    def on_grid(self, x_ad: Tensor) -> Tensor:
        """[l, q, d], with zeros where a sentence has fewer active tokens than another."""
        size = (len(self.counts), max(self.counts), x_ad.shape[-1])
        if self.places_a is None:
            return x_ad.view(size)
        return x_ad.new_zeros(size).flatten(0, 1).index_copy(0, self.places_a, x_ad).view(size)

    def off_grid(self, x_lqd: Tensor) -> Tensor:
        x_rd = x_lqd.flatten(0, 1)
        return x_rd if self.places_a is None else x_rd.index_select(0, self.places_a)


class Packing:
    """What is active at each layer, from the depth of each token: how many layers it runs, 0 for padding."""

    def __init__(self, depths_bs: Tensor, padding_bs: Tensor | None, device: torch.device) -> None:
        self.device = device  # of the states; depths from a table are where it was looked up
        depths = depths_bs.cpu().numpy()
        self.depths: NDArray[np.int64] = depths
        self.lengths = np.full(len(depths), depths.shape[1])
        if padding_bs is not None:
            padding = padding_bs.cpu().numpy()
            self.depths = np.where(padding, 0, depths)
            self.lengths = depths.shape[1] - padding.sum(1)
        self.layers = int(self.depths.max())  # that run at all

    def at(self, place: int) -> Active | None:
        """Of the layer at this place, from 0; None where all tokens run, none of which is padding."""
        on_bs = self.depths > place
        if on_bs.all():
            return None
        rows_a = np.flatnonzero(on_bs)
        counts_b = on_bs.sum(1)
        left_l = np.flatnonzero(counts_b)
        counts_l, lengths_l = counts_b[left_l], self.lengths[left_l]
        width, length = int(counts_l.max()), int(lengths_l.max())
        places_a = None
        if counts_l.min() < width:
            starts_l = np.arange(len(left_l)) * width - (np.cumsum(counts_l) - counts_l)
            places_a = np.repeat(starts_l, counts_l) + np.arange(len(rows_a))
        attend = None
        if lengths_l.min() < length:
            attend = (np.arange(length)[None] < lengths_l[:, None])[:, None, None]
        return Active(
            self._tensor(rows_a),
            counts_l.tolist(),
            lengths_l.tolist(),
            None if len(left_l) == len(on_bs) else self._tensor(left_l),
            None if places_a is None else self._tensor(places_a),
            None if attend is None else self._tensor(attend),
        )

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

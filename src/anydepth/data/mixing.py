"""Batches of several language pairs in one stream, each batch of one pair."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anydepth.data.batches import WHOLE, Batch, BatchStream, Share

Numbers = NDArray[np.int64]


class PairStream:
    """The batch at a position (epoch, index), which is all the state there is: what a pair's turn is at a position
    can be computed, and a pair's own epochs go on from one epoch of the mixture to the next.

    each: the pairs take turns, one batch of each to a round; an epoch lasts until the largest has been read once.
    temperature: an epoch has as many batches as the pairs have together, in random order; a pair's share is its
    size ^ (1 / temperature) (Arivazhagan et al. 2019).
    """

    def __init__(
        self,
        streams: Sequence[BatchStream],
        sizes: Sequence[int],
        sampling: Literal["each", "temperature"],
        temperature: float,
        seed: int,
    ) -> None:
        self._streams, self._seed = streams, seed
        # The same in every epoch: how a pair's batches are cut depends on the lengths in it alone.
        self._batches = [stream.batches_in(0) for stream in streams]
        self._drawn = sampling == "temperature"
        self.together = 1 if self._drawn else len(streams)
        self.turns = turns_by_size(self._batches, sizes, temperature) if self._drawn else self._turns_alike()
        self._epoch, self._order = -1, np.empty((0, 2), np.int64)

    def _turns_alike(self) -> list[int]:
        return [max(self._batches)] * len(self._streams)

    def batches_in(self, epoch: int) -> int:
        return sum(self.turns)

    def at(self, epoch: int, index: int, share: Share = WHOLE) -> Batch:
        language, turn = self._turn_at(epoch, index)
        own_place = divmod(epoch * self.turns[language] + turn, self._batches[language])
        return replace(self._streams[language].at(*own_place, share), place=(epoch, index), language=language)

    def _turn_at(self, epoch: int, index: int) -> tuple[int, int]:
        """Whose turn it is, and how many it has had before in this epoch."""
        if not self._drawn:
            turn, language = divmod(index, len(self._streams))
            return language, turn
        if epoch != self._epoch:
            self._order, self._epoch = _shuffled(self.turns, self._seed, epoch), epoch
        language, turn = self._order[index].tolist()
        return language, turn


def turns_by_size(batches: Sequence[int], sizes: Sequence[int], temperature: float) -> list[int]:
    """How often each pair's turn comes in an epoch; at least once."""
    share = np.asarray(sizes, np.float64) ** (1 / temperature)
    return [max(1, round(float(turns))) for turns in share / share.sum() * sum(batches)]


def _shuffled(turns: Sequence[int], seed: int, epoch: int) -> Numbers:
    """All turns in random order as (language, turn), those of a language in their own order."""
    languages = np.random.default_rng([seed, epoch]).permutation(np.repeat(np.arange(len(turns)), turns))
    order = np.stack([languages, languages], axis=1)
    for language, count in enumerate(turns):
        order[languages == language, 1] = np.arange(count)
    return order

"""Splits a corpus: held-out sentences share nothing with the training part."""

import heapq
import random
from collections.abc import Sequence

from anydepth.data.cleaning import digest
from anydepth.data.corpus import Pair
from anydepth.errors import UserError


def split_pairs(pairs: Sequence[Pair], sizes: dict[str, int], seed: int) -> dict[str, list[Pair]]:
    """Parts of the given sizes, and all that is unrelated to them as "train".

    Pairs linked by an equal source or an equal target form a group. A held-out part takes whole groups and
    keeps one pair of each, so no sentence of it occurs in another part, in either direction, or twice in it.
    """
    groups = _linked_groups(pairs)
    needed = sum(sizes.values())
    if needed >= len(groups):
        raise UserError(f"the corpus has {len(groups)} groups of related pairs, too few to hold out {needed}")
    rng = random.Random(seed)
    held_out = rng.sample(range(len(groups)), needed)
    parts: dict[str, list[Pair]] = {}
    start = 0
    for name, size in sizes.items():
        parts[name] = [pairs[rng.choice(groups[group])] for group in held_out[start : start + size]]
        start += size
    withheld = {member for group in held_out for member in groups[group]}
    return {"train": [pair for index, pair in enumerate(pairs) if index not in withheld], **parts}


def _linked_groups(pairs: Sequence[Pair]) -> list[list[int]]:
    """Connected components, as lists of pair numbers, in order of their first pair."""
    parent = list(range(len(pairs)))

    def find(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for side in (0, 1):
        first_with: dict[str, int] = {}
        for index, pair in enumerate(pairs):
            one, other = find(index), find(first_with.setdefault(pair[side], index))
            parent[max(one, other)] = min(one, other)

    members: dict[int, list[int]] = {}
    for index in range(len(pairs)):
        members.setdefault(find(index), []).append(index)
    return list(members.values())


class HoldOut:
    """A random choice of source sentences, made over a stream of any size in memory for `2 x size` numbers.

    Every source has a random number, its keyed hash; the `size` lowest are held out. First show all sources
    to `see`, then ask with `in`: all pairs with a held-out source stay out of training.
    """

    def __init__(self, size: int, seed: int, corpus: str = "the training corpus", items: str = "pairs") -> None:
        self.size, self.corpus, self.items = size, corpus, items
        self._key = b"%d" % seed
        # Twice as many as are held out, to know whether at least as many remain to train on.
        self._room = 2 * size
        self._negated_heap: list[int] = []
        self._lowest: set[int] = set()
        self._chosen: frozenset[int] | None = None

    def see(self, source: str) -> None:
        number = digest(source, self._key)
        heap = self._negated_heap
        full = len(heap) == self._room
        if (full and number >= -heap[0]) or number in self._lowest:
            return
        if full:
            self._lowest.remove(-heapq.heappushpop(heap, -number))
        else:
            heapq.heappush(heap, -number)
        self._lowest.add(number)

    def choose(self) -> None:
        """Fix the choice, once every source has been seen."""
        if len(self._lowest) < self._room:
            raise self.too_small(
                f"only {len(self._lowest)} different {'source ' if self.items == 'pairs' else ''}sentences"
            )
        self._chosen = frozenset(heapq.nsmallest(self.size, self._lowest))

    def __contains__(self, source: str) -> bool:
        assert self._chosen is not None, "call choose() first"
        return digest(source, self._key) in self._chosen

    def too_small(self, reason: str) -> UserError:
        return UserError(
            f"{self.corpus} is too small to hold out {self.size} {self.items}, it has {reason}: "
            "lower data.hold_out, or give it a corpus for validation, `valid`"
        )

"""Cleaning and deduplication: leaves out pairs that would only harm training, and counts why."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import islice
from math import inf

import numpy as np
from numpy.typing import NDArray

from anydepth.config import DataConfig
from anydepth.data.corpus import Pair, normalise

Digests = NDArray[np.uint64]

# No language has more characters per subword than about this on average, so that a longer sentence can be dropped
# before there is a tokenizer.
CHARACTERS_PER_TOKEN = 10

TOGETHER = 10_000  # pairs at a time

# Added to both sides of the ratio, so that short pairs such as "Hi." and "Bonjour." pass.
RATIO_SLACK = 10


@dataclass
class CleaningCounts:
    """How many pairs were read, how many remain, and what became of the others."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    too_long: int = 0
    ratio: int = 0
    duplicates: int = 0
    held_out: int = 0

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    def drop(self, *, empty: int, too_long: int) -> None:
        """Of those kept so far."""
        self.empty += empty
        self.too_long += too_long
        self.kept -= empty + too_long

    def summary(self, items: str = "pairs") -> str:
        reasons = {
            "empty": self.empty,
            "too long": self.too_long,
            "of unlike lengths": self.ratio,
            "duplicates": self.duplicates,
            "held out": self.held_out,
        }
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
        return f"{self.kept:,} of {self.read:,} {items} kept" + (f" ({left_out})" if left_out else "")


def digest(text: str, key: bytes = b"") -> int:
    """A 64-bit fingerprint, the same in every process, unlike Python's own hash."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest(), "big")


class DigestSet:
    """A set of fingerprints in eight bytes each, for tens of millions of pairs.

    It holds sorted arrays, each less than half as long as the one before: a lookup searches each of a few.
    """

    def __init__(self) -> None:
        self._runs: list[Digests] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, digests: Digests) -> NDArray[np.bool_]:
        """Add them, and return of each whether it is new; of equal ones the first is."""
        unique, first = np.unique(digests, return_index=True)
        known = np.zeros(len(unique), bool)
        for run in self._runs:
            place = np.searchsorted(run, unique)
            known |= run[np.minimum(place, len(run) - 1)] == unique
        self._append(unique[~known])
        new = np.zeros(len(digests), bool)
        new[first[~known]] = True
        return new

    def _append(self, run: Digests) -> None:
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")  # which merges what is sorted already
        if len(run):
            self._runs.append(run)


class Cleaner:
    """Yields the pairs worth keeping, normalised, and counts the others. Labelled texts may have any length."""

    def __init__(self, config: DataConfig) -> None:
        self.counts = CleaningCounts()
        self.max_characters = inf if config.is_labelled else CHARACTERS_PER_TOKEN * config.max_tokens
        self.max_ratio = inf if config.is_labelled else config.max_ratio
        self._dedup = DigestSet() if config.deduplicate else None

    def clean(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        remaining = iter(pairs)
        while chunk := list(islice(remaining, TOGETHER)):
            normal = ((normalise(source), normalise(target)) for source, target in chunk)
            yield from self._new([pair for pair in normal if self._is_fit(pair)])

    def _is_fit(self, pair: Pair) -> bool:
        """Check a normalised pair, and count the result."""
        counts = self.counts
        counts.read += 1
        shorter, longer = sorted(map(len, pair))
        if shorter == 0:
            counts.empty += 1
        elif longer > self.max_characters:
            counts.too_long += 1
        elif (longer + RATIO_SLACK) / (shorter + RATIO_SLACK) > self.max_ratio:
            counts.ratio += 1
        else:
            return True
        return False

    def _new(self, pairs: list[Pair]) -> list[Pair]:
        """Those that have not occurred before."""
        if self._dedup is not None:
            digests = (digest("\n".join(pair)) for pair in pairs)
            is_new = self._dedup.add(np.fromiter(digests, np.uint64, len(pairs)))
            self.counts.duplicates += len(pairs) - int(is_new.sum())
            pairs = [pair for pair, new in zip(pairs, is_new.tolist(), strict=True) if new]
        self.counts.kept += len(pairs)
        return pairs

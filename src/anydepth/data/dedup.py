"""What has gone by, in eight bytes each: a set of fingerprints that stays small for tens of millions of pairs."""

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]


class Seen:
    """Sorted arrays, each less than half as long as the one before: to look one up takes a search in each of a few."""

    def __init__(self) -> None:
        self._runs: list[Digests] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, digests: Digests) -> NDArray[np.bool_]:
        """Take them in, and say of each whether it is new; of equal ones the first is."""
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

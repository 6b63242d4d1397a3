"""Loss and speed between two log lines."""

import time

import torch

from anydepth.objectives.base import Loss
from anydepth.train.distributed import ALONE, Processes


class Meter:
    """Sums on the device; values stay there until they are read."""

    def __init__(self, total_steps: int, processes: Processes = ALONE) -> None:
        self._total_steps, self._processes = total_steps, processes
        self._first_step: int | None = None
        self._began = time.perf_counter()
        self._paused = 0.0
        self._reset()

    def _reset(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        # of each part: some, such as a teacher's, are not there at every update, or not of all terms
        self._counts: dict[str, torch.Tensor | float] = {}
        self._terms = 0
        self._since, self._paused_since = time.perf_counter(), 0.0

    def add(self, loss: Loss, terms: int, share: float, source_share: float) -> None:
        whole = {"loss": (loss.weighted(share, source_share), share)}
        for name, (value, counts) in {**whole, **loss.weighted_parts(share, source_share)}.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach()
            self._counts[name] = self._counts.get(name, 0.0) + counts
        self._terms += terms

    def pause(self, seconds: float) -> None:
        self._paused += seconds
        self._paused_since += seconds

    def read(self, step: int) -> dict[str, float]:
        """The means since it was last read, of all processes; every one of them has to read."""
        names, seconds = list(self._sums), time.perf_counter() - self._since - self._paused_since
        own = [float(value) for value in (*self._sums.values(), *self._counts.values())]
        found = self._processes.sum([*own, self._terms])
        sums, counts, terms = found[: len(names)], found[len(names) : -1], found[-1]
        values = {name: value / count if count else 0.0 for name, value, count in zip(names, sums, counts, strict=True)}
        values["tokens_per_second"] = terms / seconds
        if self._first_step is None:
            self._first_step, self._began, self._paused = step, time.perf_counter(), 0.0
        self._reset()
        return values

    def seconds_left(self, step: int) -> float | None:
        done = step - (self._first_step or 0)
        elapsed = time.perf_counter() - self._began - self._paused
        return None if done <= 0 else elapsed / done * (self._total_steps - step)

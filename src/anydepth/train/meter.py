"""Loss and speed between two log lines."""

import time

import torch

from anydepth.objectives.base import Loss


class Meter:
    """Sums on the device; values stay there until they are read."""

    def __init__(self, total_steps: int) -> None:
        self._total_steps = total_steps
        self._first_step: int | None = None
        self._began = time.perf_counter()
        self._paused = 0.0
        self._reset()

    def _reset(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, float] = {}  # of each part: some, such as a teacher's, are not there at every update
        self._terms = 0
        self._since, self._paused_since = time.perf_counter(), 0.0

    def add(self, loss: Loss, share: float) -> None:
        for name, value in {"loss": loss.total.detach(), **loss.parts}.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach() * share
            self._counts[name] = self._counts.get(name, 0.0) + share
        self._terms += loss.terms

    def pause(self, seconds: float) -> None:
        self._paused += seconds
        self._paused_since += seconds

    @property
    def loss(self) -> torch.Tensor:
        """The sum so far: if it is finite, so is each."""
        return self._sums["loss"]

    def read(self, step: int) -> dict[str, float]:
        values = {name: float(value) / self._counts[name] for name, value in self._sums.items()}
        values["tokens_per_second"] = self._terms / (time.perf_counter() - self._since - self._paused_since)
        if self._first_step is None:
            self._first_step, self._began, self._paused = step, time.perf_counter(), 0.0
        self._reset()
        return values

    def seconds_left(self, step: int) -> float | None:
        done = step - (self._first_step or 0)
        elapsed = time.perf_counter() - self._began - self._paused
        return None if done <= 0 else elapsed / done * (self._total_steps - step)

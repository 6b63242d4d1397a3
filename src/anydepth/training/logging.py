"""What a run reports: log.jsonl and TensorBoard, a progress bar, loss and speed, and gradients if training diverges."""

import json
import logging
import math
import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tensorboardX import SummaryWriter
from torch import nn

from anydepth.errors import UserError
from anydepth.files import write_atomically
from anydepth.model.stack import Stack
from anydepth.objectives.base import Loss
from anydepth.progress import progress_console
from anydepth.training.distributed import SINGLE, World
from anydepth.training.optim import gradient_norm
from anydepth.training.run_log import LOG, read_step

log = logging.getLogger(__name__)
RECENT = 5  # spans between log records, from which the remaining time is estimated


class RunLog:
    """Appends records to RUN/log.jsonl and the same numbers to TensorBoard."""

    def __init__(self, run: Path, resume_step: int) -> None:
        self._path = run / LOG
        self._forget_after(resume_step)
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the run
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=resume_step + 1, flush_secs=10)

    def _forget_after(self, step: int) -> None:
        """Drop what a killed process logged after its last checkpoint; these steps will run again."""
        if self._path.exists():
            kept = [line for line in self._path.read_text("utf-8", "replace").splitlines() if read_step(line) <= step]
            write_atomically(self._path, "".join(line + "\n" for line in kept))

    def write(self, kind: str, step: int, **values: Any) -> None:
        self._file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        self._file.flush()
        for name, value in _flat(values):
            self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._board.close()


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    rows: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            rows.append((f"{prefix}{name}", float(value)))
    return rows


class TrainProgress:
    """A bar with the time left on a terminal; elsewhere a log message for each record of the log."""

    def __init__(self, total: int, done: int, *, visible: bool = True) -> None:
        console = progress_console()
        self._total, self._on_terminal = total, console.is_terminal and not console.quiet
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not (visible and self._on_terminal and log.isEnabledFor(logging.INFO)),
        )
        self._task = self._bar.add_task("training", total=total, completed=done, note="")

    def __enter__(self) -> "TrainProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, step: int) -> None:
        self._bar.update(self._task, completed=step)

    def note(self, step: int, text: str) -> None:
        self._bar.update(self._task, note=text)
        if not self._on_terminal:
            log.info("step %s of %s  %s", f"{step:,}", f"{self._total:,}", text)


class Meter:
    """Loss and speed between two log records. Sums stay on the device until they are read."""

    def __init__(self, total_steps: int, world: World = SINGLE) -> None:
        self._total_steps, self._world = total_steps, world
        self._paused = 0.0
        self._marks: deque[tuple[int, float]] = deque(maxlen=RECENT + 1)  # step and time at the last records
        self._reset()

    def _reset(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        # per part: some, such as a teacher's, are not there at every update, or not for all terms
        self._counts: dict[str, torch.Tensor | float] = {}
        self._terms = 0
        self._since, self._paused_since = time.perf_counter(), 0.0

    def add(self, loss: Loss, terms: int, share: float, source_share: float) -> None:
        total = {"loss": (loss.weighted(share, source_share), share)}
        for name, (value, counts) in {**total, **loss.weighted_parts(share, source_share)}.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach()
            self._counts[name] = self._counts.get(name, 0.0) + counts
        self._terms += terms

    def pause(self, seconds: float) -> None:
        self._paused += seconds
        self._paused_since += seconds

    def read(self, step: int) -> dict[str, float]:
        """The means over all processes since the last call; every process has to call it."""
        names, seconds = list(self._sums), time.perf_counter() - self._since - self._paused_since
        own = [float(value) for value in (*self._sums.values(), *self._counts.values())]
        found = self._world.all_reduce([*own, self._terms])
        sums, counts, terms = found[: len(names)], found[len(names) : -1], found[-1]
        values = {name: value / count if count else 0.0 for name, value, count in zip(names, sums, counts, strict=True)}
        values["tokens_per_second"] = terms / seconds
        self._marks.append((step, time.perf_counter() - self._paused))
        self._reset()
        return values

    def seconds_left(self) -> float | None:
        """At the speed between the last records: others may have begun or stopped to use the machine. The first steps,
        which are slow, do not count."""
        (first, began), (step, now) = self._marks[0], self._marks[-1]
        return None if step <= first else (now - began) / (step - first) * (self._total_steps - step)


def layer_norms(model: nn.Module) -> dict[str, float]:
    """The gradient norm of each layer before clipping: which part of a deep stack still learns."""
    stacks = [(name, module) for name, module in model.named_modules() if isinstance(module, Stack)]
    layers = {f"{name}.{number}": layer for name, stack in stacks for number, layer in _by_first_position(stack)}
    gradients = {name: [p.grad for p in layer.parameters() if p.grad is not None] for name, layer in layers.items()}
    return {name: float(gradient_norm(grads)) if grads else 0.0 for name, grads in gradients.items()}


def _by_first_position(stack: Stack) -> list[tuple[int, nn.Module]]:
    """Each distinct layer, numbered from 1 by its first position."""
    every = list(stack.layers)
    return [(every.index(layer) + 1, layer) for layer in stack.distinct]


@dataclass
class GradientNorms:
    """The last gradient norms of the layers that were all finite: they show where a divergence began."""

    step: int = 0
    norms: dict[str, float] = field(default_factory=dict)

    def record(self, step: int, norms: dict[str, float]) -> None:
        if norms and all(math.isfinite(norm) for norm in norms.values()):
            self.step, self.norms = step, norms

    def largest(self, now: dict[str, float]) -> tuple[str, str] | None:
        """The layer with the most suspicious gradient, and a description of that gradient.

        If some norms are not finite, the layer nearest to the loss among them: all layers below it are affected. If all
        are finite, and something else is not, the largest. If none is finite, or there are no gradients any more, the
        largest of the last finite ones.
        """
        broken = [name for name, norm in now.items() if not math.isfinite(norm)]
        if broken and len(broken) < len(now):
            return broken[-1], f"not finite, as of {len(broken)} of {len(now)} layers"
        if not broken and any(now.values()):
            name = max(now, key=lambda name: now[name])
            return name, f"{now[name]:.3g}"
        if not self.norms:
            return None
        name = max(self.norms, key=lambda name: self.norms[name])
        return name, f"{self.norms[name]:.3g} at step {self.step:,}, when it was last finite"


def divergence_error(when: str, layer: tuple[str, str] | None, remedy: str) -> UserError:
    where = ""
    if layer is not None:
        stack, number = layer[0].rsplit(".", 1)
        where = f"; the largest gradient was that of {stack} layer {number} ({layer[1]})"
    return UserError(
        f"training diverged {when}: a number is not finite{where}; earlier checkpoints are intact; {remedy}"
    )

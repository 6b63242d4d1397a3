"""What a run writes while it goes: log.jsonl, TensorBoard files and a progress bar."""

import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tensorboardX import SummaryWriter

from anydepth.evaluate.training_run import LOG, step_of
from anydepth.files import write_atomically


class RunLog:
    """Appends records to RUN/log.jsonl and the same numbers to TensorBoard."""

    def __init__(self, run: Path, resume_step: int) -> None:
        self._path = run / LOG
        self._forget_after(resume_step)
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the run
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=resume_step + 1, flush_secs=10)

    def _forget_after(self, step: int) -> None:
        """Drop what a killed process logged past its last checkpoint; the same steps are coming again."""
        if self._path.exists():
            kept = [line for line in self._path.read_text("utf-8", "replace").splitlines() if step_of(line) <= step]
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
    """A bar with time left on a terminal; a line per log record elsewhere."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.console = console
        self._total = total
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
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
        if not self.console.is_terminal:
            self.say(f"step {step:,} of {self._total:,}  {text}")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

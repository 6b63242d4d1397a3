"""How far a distillation has come."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

SECONDS_BETWEEN_LINES = 30.0


class DistillProgress:
    """A bar on a terminal; elsewhere a plain line now and then."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.console = console
        self._total, self._done_before, self._done = total, done, done
        self._began = self._said = time.monotonic()
        note = TextColumn("{task.fields[note]}", markup=False)
        columns = (TextColumn("distill"), BarColumn(), note)
        # A lazy refresh: the bar must not take time from what it watches.
        self._bar = Progress(*columns, console=console, refresh_per_second=2, disable=not console.is_terminal)
        self._task = self._bar.add_task("distill", total=total, completed=done, note="")

    def __enter__(self) -> "DistillProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, lines: int) -> None:
        self.reach(self._done + lines)

    def reach(self, done: int) -> None:
        self._done = done
        now = time.monotonic()
        note = progress_note(done, self._total, done - self._done_before, now - self._began)
        self._bar.update(self._task, completed=done, note=note)
        if not self.console.is_terminal and now - self._said >= SECONDS_BETWEEN_LINES:
            self._said = now
            self.console.print(f"distill: {note}", markup=False, highlight=False, soft_wrap=True)


def progress_note(done: int, total: int, done_now: int, seconds: float) -> str:
    """The speed and the time left come from what this process did in its `seconds`, not from what it found done."""
    text = f"{done:,} of {total:,} lines"
    if not done_now or seconds <= 0:
        return text
    rate = done_now / seconds
    return f"{text}, {rate:,.{0 if rate >= 10 else 1}f} lines/s, {_duration((total - done) / rate)} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"

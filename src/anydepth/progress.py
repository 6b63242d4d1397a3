"""Progress of long work. Nothing is shown until a program asks for it, as the command line does.

Messages go through `logging` (the logger `anydepth`); bars are drawn here, with rich.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console  # which takes a tenth of a second to import: where something is printed

_shown = False
_given: "Console | None" = None


@cache
def stderr_console() -> "Console":
    """Standard error, for messages and bars alike."""
    from rich.console import Console

    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def show_progress(console: "Console | None" = None) -> None:
    """From now on show bars and the log's messages, by default on standard error."""
    global _shown, _given
    hide_progress()
    _shown, _given = True, console
    log = logging.getLogger("anydepth")
    log.addHandler(_ToConsole())
    log.setLevel(logging.INFO)


def hide_progress() -> None:
    """Be silent again."""
    global _shown, _given
    _shown, _given = False, None
    log = logging.getLogger("anydepth")
    for handler in [one for one in log.handlers if isinstance(one, _ToConsole)]:
        log.removeHandler(handler)
    log.setLevel(logging.NOTSET)


def progress_console() -> "Console":
    """Where bars are drawn; quiet until `show_progress`."""
    from rich.console import Console

    if not _shown:
        return Console(quiet=True)
    return stderr_console() if _given is None else _given


class _ToConsole(logging.Handler):
    """A message as it is, one line each; whatever bar is there stays below it."""

    def emit(self, record: logging.LogRecord) -> None:
        progress_console().print(self.format(record), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(description: str, total: int | None, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Yields what to call with the number of pieces that have become ready, beside those `done` before.

    A bar on a terminal; a line for each tenth of the work where there is none. Without a total, a count on a terminal.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = progress_console()
    shown = console.is_terminal and not console.quiet and total != 0
    # A lazy refresh: the bar must not take time from what it measures.
    with Progress(*columns, console=console, refresh_per_second=2, disable=not shown) as progress:
        task = progress.add_task(description, total=total, completed=done)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress.advance(task, count)
            if total and not console.is_terminal and 10 * done // total > 10 * (done - count) // total:
                message = f"{description}: {done:,} of {total:,}"
                console.print(message, markup=False, highlight=False, soft_wrap=True)

        yield advance

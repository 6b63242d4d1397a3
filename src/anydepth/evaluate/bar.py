"""A bar for long work, or a line for each tenth of it where there is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def bar(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields what to call with the number of pieces that have become ready."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done, shown = 0, console.is_terminal and total > 0
    # A lazy refresh: the bar must not take time from what it watches.
    with Progress(*columns, console=console, refresh_per_second=2, disable=not shown) as progress:
        task = progress.add_task(what, total=total)

        def advance(count: int) -> None:
            nonlocal done
            tenths = 10 * done // total
            done += count
            progress.advance(task, count)
            if not console.is_terminal and 10 * done // total > tenths:
                console.print(f"{what}: {done:,} of {total:,}", markup=False, highlight=False, soft_wrap=True)

        yield advance

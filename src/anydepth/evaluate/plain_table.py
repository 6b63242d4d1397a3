"""Tables on the terminal: lines and colour there, bare columns in a file or a pipe."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def plain_table(console: Console, title: str, first: str, *others: str) -> Table:
    """Headers alone; the first column is aligned left, the others right."""
    table = Table(
        title=Text(title, style="bold", no_wrap=True, overflow="ignore") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
    )
    table.add_column(first, no_wrap=True)
    for header in others:
        table.add_column(Text(header), justify="right", no_wrap=True)
    return table

"""The words of texts with their depths as a page that needs nothing else."""

from collections.abc import Sequence
from pathlib import Path

from anydepth.errors import UserError
from anydepth.evaluate.explained import Explanation, colours, deepest
from anydepth.evaluate.page import render_page
from anydepth.files import write_atomically

Explained = Sequence[tuple[str, Sequence[Explanation]]]  # each text, and what each model makes of it


def write_explanations(explained: Explained, page: Path) -> None:
    try:
        write_atomically(page, render(explained))
    except OSError as error:
        raise UserError(f"cannot write {page}: {error.strerror}; give another file with --html") from error


def render(explained: Explained) -> str:
    layers = max((deepest(those) for _, those in explained), default=1)
    return render_page(
        "explained.html.j2",
        {},
        explained=explained,
        layers=layers,
        colours=colours(layers),
        several=any(len(those) > 1 for _, those in explained),
    )

"""What a report is: a title, a list of sections and the data behind them. It knows neither terminal nor HTML.

An experiment returns its result; a function `..._report(result) -> Report` says what to show of it, once. `render.py`
writes a report to the terminal, to one HTML page and to JSON; `figures.py` draws.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:  # takes long to import, and a table on the terminal needs no picture
    from matplotlib.figure import Figure as Canvas

Where = Literal["both", "page", "terminal"]


@dataclass(frozen=True)
class Heading:
    """For the page alone, as are tiles, terms and figures."""

    text: str
    level: Literal[2, 3] = 2


@dataclass(frozen=True)
class Text:
    """A paragraph. A "warning" is what a reader must not overlook."""

    text: str
    style: Literal["plain", "soft", "strong", "warning"] = "plain"
    where: Where = "both"


@dataclass(frozen=True)
class Tile:
    """A figure to see at first glance, such as the best depth."""

    label: str
    value: str
    text: str = ""


@dataclass(frozen=True)
class Tiles:
    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Terms:
    """The text of each term: conditions, explanations of columns, or an example's source and outputs."""

    texts: Mapping[str, str]
    boxed: bool = False  # as a card, in full ink: for examples


@dataclass(frozen=True)
class Column:
    """`format` applies to numbers, as in f"{value:.2f}". Neighbouring columns of one `group` share a heading.

    `value` takes the column's value from an item, for `tabulate`.
    """

    name: str
    value: "Callable[[Any], Value] | None" = None
    format: str = ""
    help: str = ""
    align: Literal["left", "right"] = "right"
    group: str = ""
    where: Where = "both"


@dataclass(frozen=True)
class Cell:
    """A value that is emphasised, marked or coloured. `text` stands instead of the formatted value.

    `heat`, 0 to 1, colours the cell on the page.
    """

    value: str | float | None = None
    text: str | None = None
    mark: str = ""
    strong: bool = False
    soft: bool = False
    heat: float | None = None


Value: TypeAlias = Cell | str | float | None


@dataclass(frozen=True)
class Row:
    """Cells with one emphasis. `indent` is for rows that belong to the one above. Missing cells are empty."""

    cells: Sequence[Value]
    strong: bool = False
    indent: bool = False


@dataclass(frozen=True)
class ShownRow:
    """A row whose cells have their texts."""

    cells: tuple[Cell, ...]
    strong: bool
    indent: bool


@dataclass(frozen=True)
class Table:
    """Rows may be `Row`s or bare lists of values. `foot` has means or sums, set apart from the rows."""

    columns: Sequence[Column]
    rows: Sequence[Row | Sequence[Value]]
    title: str = ""
    note: str = ""
    foot: Sequence[Row | Sequence[Value]] = ()
    where: Where = "both"

    def shown(self) -> tuple[list[ShownRow], list[ShownRow]]:
        """Rows and foot, each as long as there are columns."""
        return [self._shown(row) for row in self.rows], [self._shown(row) for row in self.foot]

    def _shown(self, row: Row | Sequence[Value]) -> ShownRow:
        row = row if isinstance(row, Row) else Row(row)
        pairs = zip_longest(row.cells, self.columns)
        return ShownRow(tuple(_shown_cell(value, column) for value, column in pairs), row.strong, row.indent)


def tabulate(
    columns: Sequence[Column],
    items: Iterable[Any],
    title: str = "",
    note: str = "",
    *,
    strong: Callable[[Any], bool] = lambda item: False,
    foot: Sequence[Sequence[Value]] = (),
    where: Where = "both",
) -> Table:
    """A row for each item, made by the columns' `value`."""
    rows = [Row([column.value and column.value(item) for column in columns], strong(item)) for item in items]
    return Table(columns, rows, title, note, foot, where)


def tabulate_depths(
    title: str, points: Sequence[tuple[int, int, float]], show: Callable[[list[float]], float], total: tuple[str, Any]
) -> Table:
    """For the terminal: values over encoder depths n and decoder depths m, with a total of each row and column.

    `show` makes one value of those at the same n and m; `total` is a name and a function such as `sum`.
    """
    name, fold = total

    def at(fold: Callable[[list[float]], float], n: int | None = None, m: int | None = None) -> float | None:
        found = [value for at_n, at_m, value in points if n in (None, at_n) and m in (None, at_m)]
        return fold(found) if found else None

    down, across = sorted({n for n, _, _ in points}), sorted({m for _, m, _ in points})
    columns = [Column("n \\ m"), *(Column(head, format=".1f") for head in (*map(str, across), name))]
    rows = [[str(n), *(at(show, n, m) for m in across), at(fold, n)] for n in down]
    foot = [name, *(at(fold, m=m) for m in across), at(fold)]
    return Table(columns, rows, title, foot=[foot], where="terminal")


@dataclass(frozen=True)
class Figure:
    """A chart. `draw` draws it on an empty matplotlib figure of `size` inches, in the colours of figures.py.

    A phone shows 5 inches of it at about the size of its own text. It becomes `name`.png beside the page and an SVG in
    it. `scroll` is for charts that are too wide to be shrunk to a phone's screen.
    """

    name: str
    title: str
    draw: "Callable[[Canvas], None]"
    caption: str = ""
    size: tuple[float, float] = (5.6, 3.9)
    scroll: bool = False


@dataclass(frozen=True)
class Word:
    """A word of a text, coloured by its level, 1 to `Words.levels`; 0 is without colour."""

    text: str
    level: int = 0
    spaced: bool = True
    tip: str = ""


@dataclass(frozen=True)
class Words:
    """A text whose words are coloured by a level, such as their depth. `title` says whose they are.

    The terminal has the level below each word; the page has a bar for each if `bars`.
    """

    words: Sequence[Word]
    levels: int
    title: str = ""
    bars: bool = False
    where: Where = "both"


@dataclass(frozen=True)
class Levels:
    """The legend of coloured words: what a level is, and the colour of each, 1 to `levels`."""

    name: str
    levels: int
    where: Where = "both"


@dataclass(frozen=True)
class Details:
    """Sections that a reader of the page may open. The terminal leaves them out, unless they are for it, too."""

    summary: str
    sections: "Sequence[Section]"
    open: bool = False
    terminal: bool = False


Section: TypeAlias = Heading | Text | Tiles | Terms | Table | Figure | Words | Levels | Details


@dataclass(frozen=True)
class Report:
    """`data` is the whole result, for JSON. `files` are written beside the page, by their names within the folder."""

    title: str
    sections: Sequence[Section]
    data: Mapping[str, Any]
    lead: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)

    def figures(self) -> list[Figure]:
        return [section for section in walk(self.sections) if isinstance(section, Figure)]


def walk(sections: Sequence[Section]) -> list[Section]:
    """All of them, with those inside details after these."""
    found: list[Section] = []
    for section in sections:
        found.append(section)
        if isinstance(section, Details):
            found += walk(section.sections)
    return found


def file_stems(labels: Sequence[str]) -> dict[str, str]:
    """A file name for each label, all different even if the labels differ only in what no file name may have."""
    stems: dict[str, str] = {}
    for label in labels:
        names = (safe_name(label) + (f"-{number}" if number > 1 else "") for number in count(1))
        stems[label] = next(name for name in names if name not in stems.values())
    return stems


def safe_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "model"


def _shown_cell(value: Value, column: Column) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    if cell.text is not None:
        return cell
    bare = cell.value
    return replace(cell, text="" if bare is None else bare if isinstance(bare, str) else format(bare, column.format))

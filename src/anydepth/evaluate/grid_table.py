"""The grid of a comparison as text, in the form of Table 1 of Wang, Xiao and Zhu 2021."""

from collections.abc import Sequence
from string import ascii_uppercase
from typing import NamedTuple

from rich.text import Text

from anydepth.evaluate.grid import ComparisonGrid, Figure, Figures

BEST_MARK, SIGNIFICANT_MARK = "*", "!"
BETWEEN_COLUMNS, BETWEEN_GROUPS = " ", "  "


class Cell(NamedTuple):
    text: str = ""
    marks: str = ""
    style: str = ""


def grid_lines(grid: ComparisonGrid) -> list[Text]:
    """Rows are encoder depths; each decoder depth is a group with a column for each model, called A, B and so on."""
    first, *others = letters(grid.labels).values()
    names = [Cell(name, style="bold") for name in (first, *(f"{other}-{first}" for other in others))]
    groups = [*(f"m={m}" for m in grid.columns), "mean"]
    rows = [[Cell("n", style="bold"), *(names * len(groups))]]
    for n in grid.rows:
        rows.append([Cell(str(n)), *_cells(grid, *(grid.cells[n, m] for m in grid.columns), grid.row_means[n])])
    of_columns = (grid.column_means[m] for m in grid.columns)
    rows.append([Cell("mean"), *_cells(grid, *of_columns, grid.overall)])
    columns = [_column(column) for column in zip(*rows, strict=True)]
    label, figures = columns[0], columns[1:]
    size = len(grid.labels)
    blocks = [_joined(BETWEEN_COLUMNS, figures[start : start + size]) for start in range(0, len(figures), size)]
    titled = [
        [Text(f"{title:<{block[0].cell_len}}", "bold"), *block] for title, block in zip(groups, blocks, strict=True)
    ]
    lines = _joined(BETWEEN_GROUPS, [[Text(" " * label[0].cell_len), *label], *titled])
    for line in lines:
        line.rstrip()
    return lines


def legend(grid: ComparisonGrid) -> list[str]:
    first, *others = (f"{letter} {label}" for label, letter in letters(grid.labels).items())
    lines = [
        f"rows: encoder depth n; {first}: BLEU; {', '.join(others)}: difference to A; {BEST_MARK} best of its depth"
    ]
    if grid.has_uncounted:
        lines.append(
            "without a sign: BLEU of a depth that one of the two lacks; it counts neither in means nor as a win"
        )
    return lines


def letters(labels: Sequence[str]) -> dict[str, str]:
    """A name for each label that can stand over a column of five characters."""
    names = [*ascii_uppercase, *(f"M{number}" for number in range(27, len(labels) + 1))]
    return dict(zip(labels, names, strict=False))


def _cells(grid: ComparisonGrid, *groups: Figures) -> list[Cell]:
    return [_cell(figures.get(label)) for figures in groups for label in grid.labels]


def _cell(figure: Figure | None) -> Cell:
    if figure is None:
        return Cell()
    marks = (BEST_MARK if figure.is_best else "") + (SIGNIFICANT_MARK if figure.is_significant else "")
    style = "bold" if figure.is_best else "" if figure.counts else "dim"
    return Cell(figure.text, marks, style)


def _column(cells: tuple[Cell, ...]) -> list[Text]:
    """All of one width, the marks below each other."""
    width, room = max(len(cell.text) for cell in cells), max(len(cell.marks) for cell in cells)
    return [Text(f"{cell.text:>{width}}{cell.marks:<{room}}", cell.style) for cell in cells]


def _joined(between: str, columns: list[list[Text]]) -> list[Text]:
    return [Text(between).join(row) for row in zip(*columns, strict=True)]

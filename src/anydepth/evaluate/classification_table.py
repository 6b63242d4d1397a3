"""What an evaluation found, as tables on the terminal; the page shows the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anydepth.evaluate.classification_plan import ALIKE
from anydepth.evaluate.classification_result import Evaluation, Point, System
from anydepth.evaluate.plain_table import plain_table

LONGEST_NAME = 24  # letters, where there is little room
OWN = "  at full depth"


@dataclass(frozen=True)
class Row:
    name: str
    cells: list[str]
    is_main: bool = True


def quality_columns(evaluation: Evaluation) -> list[str]:
    models = ["models"] if evaluation.has_members else []
    return ["depths by", *models, "accuracy %", "mean depth", "computed", "allows"]


def time_columns(evaluation: Evaluation) -> list[str]:
    """A time and a speed-up for each batch size."""
    return [f"ms at {size}" for size in evaluation.conditions.batch_sizes]


def quality_rows(evaluation: Evaluation) -> list[Row]:
    return [
        Row(name, _quality(system, point, evaluation, is_main=main), main)
        for system, name, point, main in _all(evaluation)
    ]


def time_rows(evaluation: Evaluation) -> list[Row]:
    return [
        Row(name, time_cells(point, evaluation.conditions.batch_sizes), main)
        for _, name, point, main in _all(evaluation)
    ]


def curve_columns(evaluation: Evaluation) -> list[str]:
    return ["accuracy %", "mean depth", "computed", *time_columns(evaluation)]


def curve_row(point: Point, batch_sizes: Sequence[int]) -> list[str]:
    return [point.accuracy.shown(2), f"{point.depth.mean:.2f}", _percent(point), *time_cells(point, batch_sizes)]


def time_cells(point: Point, batch_sizes: Sequence[int]) -> list[str]:
    return [f"{1000 * point.seconds(size).mean:.2f} ({point.speed_up(size).mean:.2f}x)" for size in batch_sizes]


def legend(evaluation: Evaluation) -> list[str]:
    """What the figures are, a line each."""
    conditions = evaluation.conditions
    against = (
        f"against {evaluation.static}" if evaluation.static else "against the same weights with all words at full depth"
    )
    lines = ["at full depth: the same weights, all words run all layers"] if not evaluation.static else []
    lines += [
        f"accuracy: on {evaluation.texts:,} texts of {evaluation.test_names}",
        "computed: layers that tokens ran, as a share of all layers; allows: the speed-up if that were all there is",
        f"ms at a batch size: per text, texts in and labels out, {conditions.timed:,} texts, median of "
        f"{conditions.repeats}; in brackets the speed-up {against}",
    ]
    if evaluation.has_members:
        lines.append("±: sample deviation over the models of a system")
    if evaluation.has_members and any(system.curve for system in evaluation.systems):
        lines.append("times at other scales and lambdas are those of the first model of a system")
    return lines


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """The systems, then a table for each curve; a table is in several parts where a terminal is narrow."""
    quality, times = quality_rows(evaluation), time_rows(evaluation)
    whole = [Row(one.name, one.cells + other.cells, one.is_main) for one, other in zip(quality, times, strict=True)]
    _print(console, "", "system", [*quality_columns(evaluation), *time_columns(evaluation)], whole)
    for system in evaluation.systems:
        if system.curve:
            console.print()
            rows = [Row(one.setting.name, curve_row(one, evaluation.conditions.batch_sizes)) for one in system.points]
            _print(console, f"{system.label}, deeper and shallower", "", curve_columns(evaluation), rows)
    console.print()
    for line in legend(evaluation):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _all(evaluation: Evaluation) -> list[tuple[System, str, Point, bool]]:
    rows = []
    for system in evaluation.systems:
        rows.append((system, system.label, system.main, True))
        if system.own_static is not None:
            rows.append((system, OWN, system.own_static, False))
    return rows


def _quality(system: System, point: Point, evaluation: Evaluation, *, is_main: bool) -> list[str]:
    models = [str(len(point.outcomes))] if evaluation.has_members else []
    kind = system.kind if is_main else ALIKE
    return [
        kind, *models, point.accuracy.shown(2), f"{point.depth.mean:.2f}", _percent(point), f"{point.allowed:.2f}x"
    ]  # fmt: skip


def _percent(point: Point) -> str:
    return f"{100 * point.share.mean:.0f} %"


def _print(console: Console, title: str, first: str, columns: list[str], rows: list[Row]) -> None:
    start, longest = 0, None
    while start < len(columns):
        end = len(columns)
        while end > start + 1 and not _fits(_table(console, title, first, columns, rows, start, end, longest), console):
            end -= 1
            longest = LONGEST_NAME
        console.print(_table(console, "" if start else title, first, columns, rows, start, end, longest))
        start = end


def _fits(table: Table, console: Console) -> bool:
    return console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width


def _table(
    console: Console,
    title: str,
    first: str,
    columns: list[str],
    rows: list[Row],
    start: int,
    end: int,
    longest: int | None,
) -> Table:
    """With these of the columns."""
    table = plain_table(console, title, first, *columns[start:end])
    for row in rows:
        name = Text(row.name)
        if longest is not None:
            name.truncate(longest, overflow="ellipsis")
        table.add_row(name, *row.cells[start:end])
    return table

"""A sweep as tables on the terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anydepth.evaluate.grid import lay_out
from anydepth.evaluate.grid_table import SIGNIFICANT_MARK, grid_lines, legend, letters
from anydepth.evaluate.measurement import ModelSweep
from anydepth.evaluate.result import SweepResult
from anydepth.evaluate.shared_depths import SIGNIFICANT, Comparison

FRONT_MARK = "*"
TITLE_OF_COMPARISON = "BLEU of the models"


def print_table(result: SweepResult, console: Console) -> None:
    """Every measurement, BLEU over n x m with its means and, for several models, who wins where."""
    for model in result.models:
        console.print(_measurements(model, console))
        console.print(f"{FRONT_MARK} on the Pareto front: no other depth is faster and at least as good\n")
        if min(len(model.rows), len(model.columns)) > 1:  # else it says the same again
            console.print(_bleu_grid(model, console))
        console.print()
    if result.comparison is not None:
        _print_comparison(result.comparison, result.models, console)
    for name, signature in result.signatures.items():
        console.print(f"{name}: {signature}", soft_wrap=True, highlight=False)


def _measurements(model: ModelSweep, console: Console) -> Table:
    headers = ("BLEU", "chrF", "seconds", "sent/s", "tok/s", "params", "MB", "length", "repeats", "")
    table = _table(console, model.label, "depth", *headers)
    front = set(model.front_depths)
    for one in model.measurements:
        table.add_row(
            one.depth,
            f"{one.quality.bleu:.2f}",
            f"{one.quality.chrf:.2f}",
            f"{one.seconds:.2f}",
            f"{one.sentences_per_second:.1f}",
            f"{one.tokens_per_second:.0f}",
            f"{one.parameters / 1e6:.1f}M",
            f"{one.bytes / 1e6:.1f}",
            f"{one.quality.length_ratio:.2f}",
            f"{one.quality.repetition_rate:.1%}",
            FRONT_MARK if one.depth in front else "",
            style="bold" if one.depth in front else None,
        )
    means = model.means
    table.add_section()
    table.add_row("mean", f"{means.bleu:.2f}", f"{means.chrf:.2f}", f"{means.seconds:.2f}")
    return table


def _bleu_grid(model: ModelSweep, console: Console) -> Table:
    table = _table(console, f"{model.label}: BLEU", "n \\ m", *(str(m) for m in model.columns), "mean")
    for n, means in model.means_of_rows.items():
        cells = [model.cell(n, m) for m in model.columns]
        table.add_row(str(n), *("" if one is None else f"{one.bleu:.1f}" for one in cells), f"{means.bleu:.1f}")
    table.add_section()
    of_columns = (f"{means.bleu:.1f}" for means in model.means_of_columns.values())
    table.add_row("mean", *of_columns, f"{model.means.bleu:.1f}")
    return table


def _print_comparison(comparison: Comparison, models: Sequence[ModelSweep], console: Console) -> None:
    if not comparison.shared:
        console.print("The models have no depth in common, so there is nothing to compare.\n")
        return
    grid = lay_out(comparison, models)
    lines = grid_lines(grid)
    if min(len(grid.rows), len(grid.columns)) >= 2 and max(line.cell_len for line in lines) <= console.width:
        console.print(Text("\n").join([Text(TITLE_OF_COMPARISON, "bold"), *lines]), highlight=False, no_wrap=True)
        _say(console, *legend(grid))
    else:
        _print_shared_depths(comparison, console)
    _say(
        console,
        f"{comparison.verdict}.",
        f"{SIGNIFICANT_MARK} p < {SIGNIFICANT} against {comparison.first} "
        f"(two-sided paired bootstrap, {comparison.samples} samples)\n",
    )


def _say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _print_shared_depths(comparison: Comparison, console: Console) -> None:
    """With letters for the models where their labels would take too much of the line."""
    table = _shared_depths(comparison, {label: label for label in comparison.labels}, console)
    if console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width:
        console.print(table)
        return
    names = letters(comparison.labels)
    console.print(_shared_depths(comparison, names, console))
    _say(console, ", ".join(f"{letter}: {label}" for label, letter in names.items()))


def _shared_depths(comparison: Comparison, names: dict[str, str], console: Console) -> Table:
    headers = [names[comparison.first]]
    for label in comparison.others:
        headers += [names[label], "diff"]
    table = _table(console, TITLE_OF_COMPARISON, "depth", *headers, "best")
    for row in comparison.shared:
        cells = [f"{row.bleu[comparison.first]:.2f}"]
        for label in comparison.others:
            if label not in row.bleu:
                cells += ["", ""]
                continue
            mark = SIGNIFICANT_MARK if row.p_values[label] < SIGNIFICANT else " "
            cells += [f"{row.bleu[label]:.2f}", f"{row.differences[label]:+.2f}{mark}"]
        table.add_row(row.depth, *cells, Text(names[row.winner] if row.winner else "-"))
    table.add_section()
    means = [f"{comparison.mean_bleu[comparison.first]:.2f}"]
    for label in comparison.others:
        has_any = label in comparison.mean_bleu
        means += [
            f"{comparison.mean_bleu[label]:.2f}" if has_any else "",
            f"{comparison.mean_differences[label]:+.2f} " if has_any else "",
        ]
    table.add_row("mean", *means, "")
    return table


def _table(console: Console, title: str, first: str, *others: str) -> Table:
    """Lines and colour on a terminal, bare columns in a file or a pipe."""
    lines = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(
        title=Text(title, style="bold", no_wrap=True, overflow="ignore"),
        title_justify="left",
        box=lines,
        pad_edge=False,
    )
    table.add_column(first, no_wrap=True)
    for header in others:
        table.add_column(Text(header), justify="right", no_wrap=True)
    return table

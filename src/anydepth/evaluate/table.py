"""A sweep as tables on the terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anydepth.evaluate.compare import SIGNIFICANT, Comparison
from anydepth.evaluate.measurement import ModelSweep
from anydepth.evaluate.result import SweepResult

FRONT_MARK = "*"


def print_table(result: SweepResult, console: Console) -> None:
    """Every measurement, BLEU over n x m with its means and, for several models, who wins where."""
    for model in result.models:
        console.print(_measurements(model, console))
        console.print(f"{FRONT_MARK} on the Pareto front: no other depth is faster and at least as good\n")
        console.print(_bleu_grid(model, console))
        console.print()
    if result.comparison is not None:
        _print_comparison(result.comparison, console)
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


def _print_comparison(comparison: Comparison, console: Console) -> None:
    if not comparison.shared:
        console.print("The models have no depth in common, so there is nothing to compare.\n")
        return
    headers = [comparison.first]
    for label in comparison.others:
        headers += [label, "diff"]
    table = _table(console, "BLEU of the models", "depth", *headers, "best")
    for row in comparison.shared:
        cells = [f"{row.bleu[comparison.first]:.2f}"]
        for label in comparison.others:
            if label not in row.bleu:
                cells += ["", ""]
                continue
            mark = "!" if row.p_values[label] < SIGNIFICANT else " "
            cells += [f"{row.bleu[label]:.2f}", f"{row.differences[label]:+.2f}{mark}"]
        table.add_row(row.depth, *cells, Text(row.winner or "-"))
    table.add_section()
    means = [f"{comparison.mean_bleu[comparison.first]:.2f}"]
    for label in comparison.others:
        has_any = label in comparison.mean_bleu
        means += [
            f"{comparison.mean_bleu[label]:.2f}" if has_any else "",
            f"{comparison.mean_differences[label]:+.2f} " if has_any else "",
        ]
    table.add_row("mean", *means, "")
    console.print(table)
    wins = ", ".join(f"{label} {count}" for label, count in comparison.wins.items())
    console.print(f"best at so many depths: {wins}", highlight=False, markup=False)
    console.print(
        f"! p < {SIGNIFICANT} against {comparison.first} "
        f"(sacreBLEU's paired bootstrap, {comparison.samples} samples)\n",
        highlight=False,
        markup=False,
    )


def _table(console: Console, title: str, first: str, *others: str) -> Table:
    """Lines and colour on a terminal, bare columns in a file or a pipe."""
    lines = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(title=Text(title, style="bold"), title_justify="left", box=lines, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for header in others:
        table.add_column(Text(header), justify="right", no_wrap=True)
    return table

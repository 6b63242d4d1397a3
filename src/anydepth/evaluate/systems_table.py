"""Ways of training compared, as a table on the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anydepth.evaluate.plain_table import plain_table
from anydepth.evaluate.significance import Difference
from anydepth.evaluate.systems_result import ScoredModel, System, SystemsResult

FIRST_COLUMN = "system"
MODEL_INDENT = "  "
LONGEST_NAME = 24  # letters, where there is little room


def print_systems(result: SystemsResult, console: Console) -> None:
    """One table, or two on a narrow terminal: the scores, then the differences."""
    whole = _table(result, console, slice(None))
    if _fits(whole, console):
        console.print(whole)
    else:
        border = columns(result).index("difference")
        console.print(_table(result, console, slice(border), LONGEST_NAME))
        console.print(_table(result, console, slice(border, None), LONGEST_NAME))
    console.print()
    for line in legend(result):
        _say(console, line)
    for name, signature in result.signatures.items():
        _say(console, f"{name}: {signature}")


def columns(result: SystemsResult) -> list[str]:
    """The headers after the system's name."""
    if not result.has_seeds:
        return ["depth", "BLEU", "chrF", "difference", "95% interval", "p"]
    return ["depth", "seeds", "BLEU", "sd", "chrF", "sd", "difference", "95% interval", "p"]


def row_of_system(system: System, result: SystemsResult) -> list[str]:
    """Figures to go with `columns`."""
    figures = [
        ("depth", system.depth),
        ("seeds", str(len(system.models))),
        ("BLEU", f"{system.bleu:.2f}"),
        ("sd", _two(system.bleu_deviation)),
        ("chrF", f"{system.chrf:.2f}"),
        ("sd", _two(system.chrf_deviation)),
    ]
    shown = columns(result)
    return [text for header, text in figures if header in shown] + _difference(system.difference)


def row_of_model(model: ScoredModel) -> list[str]:
    """A row below that of a system with several seeds."""
    return [model.depth, "", f"{model.quality.bleu:.2f}", "", f"{model.quality.chrf:.2f}"]


def legend(result: SystemsResult) -> list[str]:
    lines = [
        f"difference: BLEU minus that of {result.baseline.label}. Its interval and two-sided p are of a paired "
        f"bootstrap over sentences ({result.samples} samples, seed {result.seed}): what another test set might change."
    ]
    if result.has_seeds:
        lines.append("sd: standard deviation over the seeds, what another training might change.")
    return lines


def _table(result: SystemsResult, console: Console, part: slice, longest_name: int | None = None) -> Table:
    """With this part of the columns."""
    table = plain_table(console, "", FIRST_COLUMN, *columns(result)[part])
    for system in result.systems:
        figures = row_of_system(system, result)[part]
        table.add_row(_name(system.label, longest_name), *figures, style="bold" if result.has_seeds else None)
        for model in system.models if len(system.models) > 1 else ():
            if figures_of_model := row_of_model(model)[part]:
                table.add_row(_name(MODEL_INDENT + model.name, longest_name), *figures_of_model)
    return table


def _fits(table: Table, console: Console) -> bool:
    return console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width


def _name(name: str, longest: int | None) -> Text:
    text = Text(name)
    if longest is not None:
        text.truncate(longest, overflow="ellipsis")
    return text


def _difference(difference: Difference | None) -> list[str]:
    if difference is None:
        return ["baseline", "", ""]
    interval = f"{difference.low:+.2f} to {difference.high:+.2f}"
    return [f"{difference.bleu:+.2f}", interval, _p(difference.p_value)]


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)

"""What to show of a comparison of ways of training: scores, differences to the baseline and how sure they are."""

import textwrap
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from anydepth.errors import UserError
from anydepth.evaluate.compare import System, SystemsResult
from anydepth.evaluate.figures import INK, PAPER, SERIES, tip_points
from anydepth.evaluate.kept_outputs import KeptOutputs
from anydepth.evaluate.render import write_report
from anydepth.evaluate.report import Column, Figure, Heading, Report, Row, Section, Table, Text, Value

COLOUR, SEED_COLOUR = SERIES[0], SERIES[1]
BELOW = 0.22  # of the distance of two rows: where the seeds are, so that they do not hide the interval
LONGEST_NAME, WIDEST_LABEL = 22, 56  # letters in a line


def compare_report(result: SystemsResult) -> Report:
    baseline, conditions = result.baseline.label, result.conditions
    over_seeds = ", the mean over the seeds," if result.has_seeds else ""
    test = (
        f"Difference, interval and p tell what another test set might change. A paired bootstrap draws sentences with "
        f"replacement, {result.samples} times and the same for all systems, and takes BLEU{over_seeds} of a system "
        f"minus that of {baseline} each time (Koehn 2004). A sentence is drawn with its translations by all models."
    )
    seeds = (
        "The bootstrap draws the seeds of each system with replacement as well, so interval and p also cover what "
        "training again might change. sd is the standard deviation over the seeds."
        if result.over_seeds
        else "sd, the standard deviation over the seeds of a system, tells what training again might change. The "
        "interval and p do not cover that: a difference may be sure for these models and still no larger than what "
        "another seed makes."
        if result.has_seeds
        else "What training again with another seed might change is not covered: each system is a single model."
    )
    two_sided = (
        "p is two-sided: of systems no better or worse than the baseline one in twenty has a p below 0.05. sacreBLEU's "
        "p-values come out at about half of it."
    )
    sections: list[Section] = [
        Heading(f"Differences to {baseline}"),
        _differences(result),
        Heading("All figures"),
        _table(result),
        *(Text(line, where="terminal") for line in _legend_lines(result)),
        Text(test, where="page"),
        Text(seeds, where="page"),
        Text(two_sided, "soft", where="page"),
        *(Text(f"{name}: {text}", where="terminal") for name, text in result.signatures.items()),
        conditions.details(
            result.signatures,
            {
                "bootstrap": f"{result.samples} samples, seed {result.seed}",
                "translations": "in outputs/ beside this page, a file for each model; compare.json says which is whose",
            },
        ),
    ]
    return Report(f"Comparison: {', '.join(result.labels)}", sections, result.to_json(), conditions.lead)


def write_comparison(result: SystemsResult, folder: Path) -> Path:
    """Write the report and the outputs of its models, and of no others, into `folder`; return the page's path."""
    try:
        kept = KeptOutputs(folder)
        for model in result.models:
            kept.keep(model.file, model.made_by, model.outputs)
        page = write_report(compare_report(result), folder, "compare.json")
        kept.forget_all_but([model.file for model in result.models])
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return page


def _table(result: SystemsResult) -> Table:
    """A row for each system, and below it one for each of several seeds."""
    seeds: list[Column] = [Column("seeds")] if result.has_seeds else []
    sd: list[Column] = [Column("sd", "standard deviation over the seeds", ".2f")] if result.has_seeds else []
    columns = [
        Column("system"),
        Column("depth"),
        *seeds,
        Column("BLEU", format=".2f"),
        *sd,
        Column("chrF", format=".2f"),
        *sd,
        Column("difference", f"BLEU minus that of {result.baseline.label}", "+.2f"),
        Column("95% interval"),
        Column("p", "two-sided, of a paired bootstrap over sentences"),
    ]
    rows = []
    for system in result.systems:
        rows.append(Row(_cells(system, result.has_seeds), strong=result.has_seeds))
        for model in system.models if len(system.models) > 1 else ():
            cells: list[Value] = [model.name, model.depth, None, model.quality.bleu, None, model.quality.chrf]
            rows.append(Row(cells, indent=True))
    return Table(columns, rows)


def _legend_lines(result: SystemsResult) -> list[str]:
    lines = [
        f"difference: BLEU minus that of {result.baseline.label}. Its interval and two-sided p are of a paired "
        f"bootstrap over sentences ({result.samples} samples, seed {result.seed}): what another test set might change."
    ]
    if result.has_seeds:
        lines.append("sd: standard deviation over the seeds, what another training might change.")
    return lines


def _cells(system: System, has_seeds: bool) -> list[Value]:
    bleu: list[Value] = [system.bleu, system.bleu_deviation] if has_seeds else [system.bleu]
    chrf: list[Value] = [system.chrf, system.chrf_deviation] if has_seeds else [system.chrf]
    count: list[Value] = [str(len(system.models))] if has_seeds else []
    difference = system.difference
    if difference is None:
        return [system.label, system.depth, *count, *bleu, *chrf, "baseline"]
    interval = f"{difference.low:+.2f} to {difference.high:+.2f}"
    p = f"{difference.p_value:.3f}" if difference.p_value >= 0.001 else "<0.001"
    return [system.label, system.depth, *count, *bleu, *chrf, difference.bleu, interval, p]


def _differences(result: SystemsResult) -> Figure:
    """A row for each system, the baseline on top: a dot at the difference, its interval, a small dot for each seed."""

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.axvline(0, color=INK, linewidth=1.0, zorder=1)
        for row, system in enumerate(result.systems):
            _draw_system(axes, row, system)
            if len(system.models) > 1:
                seeds, places = result.differences_of_seeds(system), [row + BELOW] * len(system.models)
                axes.scatter(seeds, places, s=16, color=SEED_COLOUR, linewidths=0, zorder=3)
                tips = [f"{model.name}: {model.quality.bleu:.2f} BLEU" for model in system.models]
                tip_points(axes, seeds, places, tips, size=6)
        axes.set_yticks(range(len(result.labels)), [textwrap.fill(label, LONGEST_NAME) for label in result.labels])
        axes.set_ylim(len(result.labels) - 0.5, -0.5)
        axes.set_xlabel(textwrap.fill(f"BLEU minus that of {result.baseline.label}, higher is better", WIDEST_LABEL))
        axes.margins(x=0.06)
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        canvas.legend(handles=_legend(result), loc="outside lower center", ncols=2, frameon=False, fontsize=9)

    size = (5.6, 1.6 + 0.5 * len(result.systems))
    return Figure(
        "differences", "Difference in BLEU of each system to the baseline, with its interval", draw, size=size
    )


def _draw_system(axes: Axes, row: int, system: System) -> None:
    difference = system.difference
    if difference is None:
        axes.plot([0], [row], "D", color=INK, markersize=6, zorder=4)
        tip_points(axes, [0], [row], [f"{system.label}: {system.bleu:.2f} BLEU, the baseline"])
        return
    axes.plot([difference.low, difference.high], [row, row], "-|", color=COLOUR, linewidth=1.8, markersize=9, zorder=3)
    face = COLOUR if difference.is_clear else PAPER
    axes.plot([difference.bleu], [row], "o", color=COLOUR, markerfacecolor=face, markersize=8, zorder=4)
    interval = f"{difference.low:+.2f} to {difference.high:+.2f}"
    tip_points(axes, [difference.bleu], [row], [f"{system.label}: {difference.bleu:+.2f} BLEU, {interval}"])


def _legend(result: SystemsResult) -> list[Line2D]:
    clear = {system.difference.is_clear for system in result.systems if system.difference}
    handles = []
    if True in clear:
        handles.append(_handle("difference, 95% interval", COLOUR))
    if False in clear:
        handles.append(_handle("difference, 0 within its interval", COLOUR, markerfacecolor=PAPER))
    if result.has_seeds:
        handles.append(_handle("one seed", SEED_COLOUR, linestyle="", markersize=4))
    return handles


def _handle(label: str, colour: str, **look: Any) -> Line2D:
    return Line2D([], [], label=label, color=colour, **{"marker": "o", "markersize": 8, **look})

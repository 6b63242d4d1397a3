"""What to show of a comparison of ways of training: scores, differences to the baseline and how sure they are."""

import textwrap
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from anydepth.errors import UserError
from anydepth.evaluate import report as rp
from anydepth.evaluate.compare import CompareResult, System
from anydepth.evaluate.figures import INK, PAPER, SERIES, Series, plot
from anydepth.evaluate.kept_outputs import KeptOutputs
from anydepth.evaluate.render import write_report

BELOW = 0.22  # of the distance of two rows: where the seeds are, so that they do not hide the interval
LONGEST_NAME, WIDEST_LABEL = 22, 56  # letters in a line
ONE_TEST_SET = (
    "Difference, interval and p tell what another test set might change. A paired bootstrap draws sentences with "
    "replacement, {samples} times and the same for all systems, and takes BLEU{over_seeds} of a system minus that of "
    "{baseline} each time (Koehn 2004). A sentence is drawn with its translations by all models."
)
SEEDS = (
    "sd, the standard deviation over the seeds of a system, tells what training again might change. The interval and p "
    "do not cover that: a difference may be sure for these models and still no larger than what another seed makes."
)
DRAWN_SEEDS = (
    "The bootstrap draws the seeds of each system with replacement as well, so interval and p also cover what training "
    "again might change. sd is the standard deviation over the seeds."
)
NO_SEEDS = "What training again with another seed might change is not covered: each system is a single model."
TWO_SIDED = (
    "p is two-sided: of systems no better or worse than the baseline one in twenty has a p below 0.05. sacreBLEU's "
    "p-values come out at about half of it."
)


def compare_report(result: CompareResult) -> rp.Report:
    baseline, conditions, has_seeds = result.baseline.label, result.conditions, result.has_seeds
    over_seeds = ", the mean over the seeds," if has_seeds else ""
    test = ONE_TEST_SET.format(samples=result.samples, over_seeds=over_seeds, baseline=baseline)
    legend = [
        f"difference: BLEU minus that of {baseline}. Its interval and two-sided p are of a paired bootstrap over "
        f"sentences ({result.samples} samples, seed {result.seed}): what another test set might change.",
        *(["sd: standard deviation over the seeds, what another training might change."] if has_seeds else []),
        f"engine: {conditions.engines}",
    ]
    more = {
        "bootstrap": f"{result.samples} samples, seed {result.seed}",
        "translations": "in outputs/ beside this page, a file for each model; compare.json says which is whose",
    }
    sections: list[rp.Section] = [
        rp.Heading(f"Differences to {baseline}"),
        _differences(result),
        rp.Heading("All figures"),
        _table(result),
        *(rp.Text(line, where="terminal") for line in legend),
        rp.Text(test, where="page"),
        rp.Text(DRAWN_SEEDS if result.over_seeds else SEEDS if has_seeds else NO_SEEDS, where="page"),
        rp.Text(TWO_SIDED, "soft", where="page"),
        *(rp.Text(f"{name}: {text}", where="terminal") for name, text in result.signatures.items()),
        conditions.details(result.signatures, more),
    ]
    return rp.Report(f"Comparison: {', '.join(result.labels)}", sections, result.to_json(), conditions.lead)


def write_comparison(result: CompareResult, folder: Path) -> Path:
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


def _table(result: CompareResult) -> rp.Table:
    """A row for each system, and below it one for each of several seeds."""
    sd, baseline = "standard deviation over the seeds", f"BLEU minus that of {result.baseline.label}"
    every = [
        rp.Column("system", lambda one: one.label),
        rp.Column("depth", lambda one: one.depth),
        rp.Column("seeds", lambda one: str(len(one.models))),
        rp.Column("BLEU", lambda one: one.bleu.mean, ".2f"),
        rp.Column("sd", lambda one: one.bleu.deviation, ".2f", sd),
        rp.Column("chrF", lambda one: one.chrf.mean, ".2f"),
        rp.Column("sd", lambda one: one.chrf.deviation, ".2f", sd),
        rp.Column("difference", _difference, "+.2f", baseline),
        rp.Column("95% interval", _interval),
        rp.Column("p", _p_value, help="two-sided, of a paired bootstrap over sentences"),
    ]
    columns = [column for column in every if result.has_seeds or column.name not in ("seeds", "sd")]
    rows: list[Any] = []
    for system in result.systems:
        rows += rp.tabulate(columns, [system], strong=lambda one: result.has_seeds).rows
        for model in system.models if len(system.models) > 1 else ():
            known = [model.name, model.depth, None, model.quality.bleu, None, model.quality.chrf]
            rows.append(rp.Row(known, indent=True))
    return rp.Table(columns, rows)


def _difference(system: System) -> rp.Value:
    return "baseline" if system.difference is None else system.difference.bleu


def _interval(system: System) -> str:
    return "" if system.difference is None else f"{system.difference.low:+.2f} to {system.difference.high:+.2f}"


def _p_value(system: System) -> str:
    if system.difference is None:
        return ""
    return f"{system.difference.p_value:.3f}" if system.difference.p_value >= 0.001 else "<0.001"


def _differences(result: CompareResult) -> rp.Figure:
    """A row for each system, the baseline on top: a dot at the difference, its interval, a small dot for each seed."""
    labels = [textwrap.fill(label, LONGEST_NAME) for label in result.labels]

    def rows(canvas: Canvas, axes: Axes) -> None:
        axes.axvline(0, color=INK, linewidth=1.0, zorder=1)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)

    series = [one for row, system in enumerate(result.systems) for one in _series(result, row, system)]
    across = textwrap.fill(f"BLEU minus that of {result.baseline.label}, higher is better", WIDEST_LABEL)
    title = "Difference in BLEU of each system to the baseline, with its interval"
    return rp.Figure(
        "differences", title, plot(series, across, "", legend=2, then=rows), size=(5.6, 1.6 + 0.5 * len(labels))
    )


def _series(result: CompareResult, row: int, system: System) -> list[Series]:
    found, point = system.difference, {"marker": "o", "markersize": 8, "linestyle": "", "zorder": 4}
    if found is None:
        tip = f"{system.label}: {system.bleu.mean:.2f} BLEU, the baseline"
        series = [Series([0], [row], {**point, "color": INK, "marker": "D", "markersize": 6}, tips=[tip])]
    else:
        look = {"color": SERIES[0], "marker": "|", "markersize": 9, "linewidth": 1.8, "zorder": 3}
        label = "difference, 95% interval" if found.is_clear else "difference, 0 within its interval"
        point |= {"color": SERIES[0], "markerfacecolor": SERIES[0] if found.is_clear else PAPER}
        tip = f"{system.label}: {found.bleu:+.2f} BLEU, {_interval(system)}"
        series = [Series([found.low, found.high], [row, row], look), Series([found.bleu], [row], point, label, [tip])]
    if len(system.models) > 1:
        seeds = [model.quality.bleu - result.baseline.bleu.mean for model in system.models]
        tips = [f"{model.name}: {model.quality.bleu:.2f} BLEU" for model in system.models]
        look = {**point, "color": SERIES[1], "markerfacecolor": SERIES[1], "marker": "o", "markersize": 4, "zorder": 3}
        series.append(Series(seeds, [row + BELOW] * len(seeds), look, "one seed", tips))
    return series

"""The report of `anydepth plot`: what happened in one or more trainings, from their logs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anydepth.evaluate.experiment import now, versions
from anydepth.evaluate.report import Column, Figure, Heading, Report, Section, Table, Terms, Value
from anydepth.training import figures
from anydepth.training.run_log import TrainingRun

MARK = "loss.png"  # every such report has it


@dataclass(frozen=True)
class Chart:
    heading: str
    caption: str
    make: Callable[[Sequence[TrainingRun]], Figure | None]  # nothing where no run has what it shows


CHARTS = (
    Chart(
        "Gradients",
        "The gradient norm of each layer before clipping, on one colour scale for all runs, which covers all but the "
        "outermost 1% on either side, and four powers of ten at most: a closed gate lets next to nothing through. "
        "Grey: no gradient, or none that is finite.",
        figures.gradient_maps,
    ),
    Chart(
        "Gradients of the lowest layers",
        "Layers 1, 2 and 4, as far as there are, of the decoder, or of the encoder where there is no decoder; all on "
        "one scale. Where layer 1 is far below the others, the gradient vanishes on its way down (Figure 2 of Li et "
        "al. 2020).",
        figures.bottom_gradients,
    ),
    Chart(
        "Layers that are selected",
        "The last samples of the gates, a row for each language pair, and below them the probability that a layer is "
        "selected: dark is selected, light is skipped (Figures 4 and 8 of Li et al. 2020).",
        figures.sample_maps,
    ),
    Chart(
        "Utilisation",
        "The mean of the samples over language pairs, in the course of training; where there are more records "
        "than columns, also over neighbouring records (Figure 5 of Li et al. 2020).",
        figures.utilisation_maps,
    ),
    Chart(
        "Samples in the course of training",
        "At 2, 6, 25, 50 and 100% of the steps so far, the language pairs in the same order each time. A target makes "
        "them settle at 0 or 1 (Figure 7 of Li et al. 2020).",
        figures.sample_history,
    ),
    Chart(
        "Effective depth",
        "How many layers the gates expect to run, how many are selected, the mean over language pairs of both; and how "
        "far the gates are from their prior.",
        figures.depth_curves,
    ),
    Chart(
        "Loss",
        "In training and in validation. A cross: there the run diverged (Figure 3 of Li et al. 2020).",
        figures.loss_curves,
    ),
)
STALE = tuple(
    f"{name}.png"
    for name in ("gradients", "gradients-bottom", "samples", "utilisation", "samples-over-training", "depth", "loss")
)


def training_report(runs: Sequence[TrainingRun]) -> Report:
    """A table of the runs, and the charts that these runs have something for."""
    kinds = {run.loss_name for run in runs}
    loss = "NLL" if kinds == {"nll"} else "loss" if kinds == {"loss"} else "NLL or loss"
    headers = ("run", "steps", f"training {loss}", f"validation {loss}", "layers", "selected", "")
    rows = [_row(run) for run in runs]
    sections: list[Section] = [Table([Column(header) for header in headers], rows)]
    for chart in CHARTS:
        figure = chart.make(runs)
        if figure is not None:
            sections += [Heading(chart.heading), replace(figure, caption=chart.caption)]
    date, numbers = now(), ", ".join(f"{name} {number}" for name, number in versions().items())
    terms = {"from": "log.jsonl of each run, in which are all these figures", "versions": numbers, "date": date}
    sections += [Heading("How this was made"), Terms(terms)]
    data = {"runs": [dict(zip(headers, row, strict=True)) for row in rows]}
    return Report(f"Training: {', '.join(run.label for run in runs)}", sections, data, lead=f"as of {date[:10]}")


def _row(run: TrainingRun) -> list[Value]:
    training = run.curve(run.loss_name).values
    validation = {depth: curve.values[-1] for depth, curve in run.validation().items() if curve.values}
    selected = {side: run.selected(side).values for side in run.gated_sides}
    return [
        run.label,
        f"{run.last_step:,}",
        f"{training[-1]:.3f}" if training else "not finite",
        ", ".join(f"{depth} {value:.3f}".strip() for depth, value in validation.items()) or "none",
        ", ".join(f"{side} {norms.layers}" for side, norms in run.gradients().items()),
        ", ".join(f"{side} {values[-1]:g}" for side, values in selected.items() if values),
        str(run.diverged) if run.diverged else "",
    ]

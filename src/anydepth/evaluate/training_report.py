"""Pictures of trainings as a folder to keep: PNGs, and a page that needs nothing else."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anydepth.errors import UserError
from anydepth.evaluate import training_curves, training_plots
from anydepth.evaluate.experiment import now, versions
from anydepth.evaluate.page import render_page
from anydepth.evaluate.training_run import TrainingRun
from anydepth.files import write_atomically

MARK = "loss.png"  # every such report has it
PAGE = "index.html"


@dataclass(frozen=True)
class Picture:
    file: str
    title: str
    caption: str
    draw: Callable[[Sequence[TrainingRun]], bytes | None]  # nothing where no run has what it shows


PICTURES = (
    Picture(
        "gradients.png",
        "Gradients",
        "The gradient norm of each layer before clipping, on one colour scale for all runs, which covers all but the "
        "outermost 1% on either side, and four powers of ten at most: a closed gate lets next to nothing through. "
        "Grey: no gradient, or none that is finite.",
        training_plots.gradient_maps,
    ),
    Picture(
        "gradients-bottom.png",
        "Gradients of the lowest layers",
        "Layers 1, 2 and 4, as far as there are, of the decoder, or of the encoder where there is no decoder; all on "
        "one scale. Where layer 1 is far below the others, the gradient vanishes on its way down (Figure 2 of Li et "
        "al. 2020).",
        training_curves.bottom_gradients,
    ),
    Picture(
        "samples.png",
        "Layers that are selected",
        "The last samples of the gates, a row for each language pair, and below them the probability that a layer is "
        "selected: dark is selected, light is skipped (Figures 4 and 8 of Li et al. 2020).",
        training_plots.sample_maps,
    ),
    Picture(
        "utilisation.png",
        "Utilisation",
        "The mean of the samples over language pairs, in the course of training; where there are more records "
        "than columns, also over neighbouring records (Figure 5 of Li et al. 2020).",
        training_plots.utilisation_maps,
    ),
    Picture(
        "samples-over-training.png",
        "Samples in the course of training",
        "At 2, 6, 25, 50 and 100% of the steps so far, the language pairs in the same order each time. A target makes "
        "them settle at 0 or 1 (Figure 7 of Li et al. 2020).",
        training_plots.sample_history,
    ),
    Picture(
        "depth.png",
        "Effective depth",
        "How many layers the gates expect to run, how many are selected, the mean over language pairs of both; and how "
        "far the gates are from their prior.",
        training_curves.depth_curves,
    ),
    Picture(
        MARK,
        "Loss",
        "In training and in validation. A cross: there the run diverged (Figure 3 of Li et al. 2020).",
        training_curves.loss_curves,
    ),
)


def write_training_report(runs: Sequence[TrainingRun], folder: Path) -> Path:
    """Write index.html and the pictures that these runs have into `folder`; return the page's path."""
    pictures = draw(runs)
    page = folder / PAGE
    try:
        for picture in PICTURES:
            if picture.file in pictures:
                write_atomically(folder / picture.file, pictures[picture.file])
            else:  # of a report of other runs
                (folder / picture.file).unlink(missing_ok=True)
        write_atomically(page, render(runs, pictures))
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return page


def draw(runs: Sequence[TrainingRun]) -> dict[str, bytes]:
    """The PNGs by file name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name may have letters that the font has not
        drawn = {picture.file: picture.draw(runs) for picture in PICTURES}
    return {file: png for file, png in drawn.items() if png is not None}


def render(runs: Sequence[TrainingRun], pictures: dict[str, bytes]) -> str:
    kinds = {run.loss_name for run in runs}
    loss = "NLL" if kinds == {"nll"} else "loss" if kinds == {"loss"} else "NLL or loss"
    return render_page(
        "training.html.j2",
        pictures,
        labels=[run.label for run in runs],
        headers=["run", "steps", f"training {loss}", f"validation {loss}", "layers", "selected", ""],
        rows=[_row(run) for run in runs],
        shown=[picture for picture in PICTURES if picture.file in pictures],
        versions=versions(),
        date=now(),
    )


def _row(run: TrainingRun) -> list[str]:
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

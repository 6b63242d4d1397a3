"""`anydepth plot`: draws what happened in training."""

import os
from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import families, make_report_folder, stderr
from anydepth.errors import UserError


def plot(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Folders of one or more runs, finished or not; NAME=RUN names one.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the plots.  [default: RUN/plots of the first run]", show_default=False),
    ] = None,
) -> None:
    """Plot training curves: gradients of each layer, gates, losses. Several runs are plotted side by side."""
    from anydepth.evaluate.figures import SERIES
    from anydepth.evaluate.render import write_report
    from anydepth.training.report import MARK, STALE, training_report
    from anydepth.training.run_log import read_run

    for argument in runs:
        if "=" not in argument and not os.path.exists(argument):
            raise UserError(f"there is no run at {argument}")
    named = families(runs)
    if len(named) > len(SERIES):
        raise UserError(f"{len(named)} runs are too many to tell apart: give at most {len(SERIES)}")
    for label, paths in named.items():
        if len(paths) > 1:
            raise UserError(f"{label} has {len(paths)} runs: name each of its own, NAME=RUN")
    read = [read_run(label, path) for label, (path,) in named.items()]
    folder = out or next(iter(named.values()))[0] / "plots"
    make_report_folder(folder, MARK, "a folder of such pictures")
    stderr.print(f"report: {write_report(training_report(read), folder, stale=STALE)}")

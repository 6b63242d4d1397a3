"""The command line: a function per verb."""

import os
import sys

import typer

from anydepth.cli.app import app
from anydepth.cli.calibrating import calibrate
from anydepth.cli.classifying import classify
from anydepth.cli.comparing import compare
from anydepth.cli.depths import depths
from anydepth.cli.evaluating import evaluate
from anydepth.cli.explaining import explain
from anydepth.cli.exporting import export
from anydepth.cli.failures import one_line_errors
from anydepth.cli.info import info
from anydepth.cli.maps import maps
from anydepth.cli.measuring import perplexity, sweep
from anydepth.cli.oracle import oracle
from anydepth.cli.plotting import plot
from anydepth.cli.selecting import select
from anydepth.cli.serving import serve
from anydepth.cli.training import data, train
from anydepth.cli.translating import distill, translate
from anydepth.cli.word_depths import word_depths_app

# in the order of --help
for verb in (
    data,
    train,
    plot,
    translate,
    serve,
    export,
    distill,
    sweep,
    perplexity,
    classify,
    evaluate,
    explain,
    compare,
    calibrate,
    oracle,
    select,
    info,
    depths,
    maps,
):
    app.command()(verb)
app.add_typer(word_depths_app, name="word-depths")


def main() -> None:
    # By default the threads of PyTorch spin while they wait for each other. When another program has one of their
    # cores, that costs more than all the rest: training all but stopped (docs/lab-notes.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    with one_line_errors():
        code = typer.main.get_command(app).main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)

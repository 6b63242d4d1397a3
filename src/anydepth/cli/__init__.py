"""The command line: a function per verb."""

import os
import sys
from collections.abc import Callable

import typer

from anydepth.cli.app import app, errors
from anydepth.cli.benching import bench
from anydepth.cli.calibrating import calibrate
from anydepth.cli.classifying import classify
from anydepth.cli.comparing import compare
from anydepth.cli.depths import depths
from anydepth.cli.doctor import doctor
from anydepth.cli.evaluating import evaluate
from anydepth.cli.explaining import explain
from anydepth.cli.exporting import export
from anydepth.cli.failures import one_line_errors
from anydepth.cli.info import info
from anydepth.cli.maps import maps
from anydepth.cli.measuring import perplexity, sweep
from anydepth.cli.oracle import oracle
from anydepth.cli.plotting import plot
from anydepth.cli.schema import schema
from anydepth.cli.selecting import select
from anydepth.cli.serving import serve
from anydepth.cli.shortlisting import shortlist
from anydepth.cli.training import data, train
from anydepth.cli.translating import distill, translate
from anydepth.cli.word_depths import word_depths_app
from anydepth.progress import show_progress

# In the order of --help: under each heading the verbs, each with an example.
VERBS: dict[str, dict[Callable[..., None], str]] = {
    "Use a model": {
        translate: "anydepth translate --depth 6-1 < in.txt > out.txt",
        serve: "anydepth serve runs/mine --port 8080 --workers 2",
        export: "anydepth export runs/mine --depth 6-2 --to ctranslate2 --quantize int8 --out exported",
        classify: "anydepth classify runs/reviews < texts.txt > labels.tsv",
        explain: 'anydepth explain runs/reviews "a truly terrible thriller" --html words.html',
        shortlist: "anydepth shortlist runs/mine --source data/train.fr --target data/train.en",
        info: "anydepth info runs/mine",
        doctor: "anydepth doctor",
    },
    "Train one": {
        data: "anydepth data tatoeba-en-fr data",
        train: "anydepth train recipes/quickstart.yaml --out runs/mine --set train.steps=5000",
        distill: "anydepth distill runs/teacher --source data/train.fr --out data/distilled",
        select: "anydepth select runs/mine --source more.fr --reference more.en",
        plot: "anydepth plot runs/mine --out plots",
    },
    "Measure": {
        sweep: "anydepth sweep runs/mine --source test.fr --reference test.en --out report",
        calibrate: "anydepth calibrate runs/mine --source test.fr --reference test.en",
        bench: "anydepth bench runs/mine --depth 6-6 --depth 6-1",
        compare: "anydepth compare plain=runs/a,runs/b tied=runs/c,runs/d --source test.fr --reference test.en",
        oracle: "anydepth oracle runs/mine --source test.fr --reference test.en --out report",
        evaluate: "anydepth evaluate runs/reviews --test test.tsv --out report",
        perplexity: "anydepth perplexity runs/encoder --text test.txt",
    },
    "Look things up": {
        depths: "anydepth depths 12 --strategy all",
        maps: "anydepth maps 6 2",
        schema: "anydepth schema > recipe.schema.json",
    },
}
for heading, verbs in VERBS.items():
    for verb, example in verbs.items():
        app.command(rich_help_panel=heading, epilog=f"**Example:** `{example}`")(verb)
app.add_typer(word_depths_app, name="word-depths", rich_help_panel="Look things up")


def main() -> None:
    # By default the threads of PyTorch spin while they wait for each other. When another program has one of their
    # cores, that costs more than all the rest: training all but stopped (docs/lab-notes.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    show_progress(errors)
    with one_line_errors():
        code = typer.main.get_command(app).main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)

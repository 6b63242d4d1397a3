"""`anydepth select`: train the selector, which chooses the depth of each sentence."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import (
    Address,
    BatchSize,
    Beam,
    Device,
    ModelArgument,
    Reference,
    RunnerName,
    Threads,
    WorkersOption,
    families,
    make_report_folder,
    make_runner,
    results,
    stderr,
)
from anydepth.errors import UserError


class Kinds(StrEnum):
    all = "all"
    likelihood = "likelihood"
    values = "values"
    labels = "labels"


def select(
    model: ModelArgument,
    source: Annotated[
        Path, typer.Option(help="Source sentences that the model was not trained on, one per line.", show_default=False)
    ],
    reference: Reference,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for intermediate files and the report.  [default: MODEL-select, next to the model folder]",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        Kinds,
        typer.Option(
            help="What the selector predicts for each depth: likelihood (of the references), values (chrF) or labels "
            "(which depth is best, as in the paper). all trains the three and keeps the best."
        ),
    ] = Kinds.all,
    paper_size: Annotated[
        bool,
        typer.Option(
            "--paper-size",
            help="With labels: networks of the paper's size, with 2, 4 or 8 layers and feed-forward size 2,048.",
        ),
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Networks of each kind, for the standard error.")] = 3,
    trials: Annotated[int, typer.Option(min=1, help="Hyperparameter settings to try for each kind.")] = 3,
    dev_source: Annotated[
        Path | None, typer.Option(help="Source sentences to fine-tune on.", show_default=False)
    ] = None,
    dev_reference: Annotated[
        Path | None, typer.Option(help="Their reference translations.", show_default=False)
    ] = None,
    beam: Beam = 1,
    sentences: Annotated[
        int | None,
        typer.Option(min=1, help="Use a random sample of this many sentences.  [default: all]", show_default=False),
    ] = None,
    batch_size: BatchSize = 32,
    runner: RunnerName = "local",
    address: Address = None,
    workers: WorkersOption = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(min=0, max=2**30, help="Random seed of split, search and networks.")] = 1,
    steps: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
) -> None:
    """Train a selector, which chooses a depth per sentence (`translate --depth auto`). Compares it with fixed depths.

    To resume, give the same command again.
    """
    if (dev_source is None) != (dev_reference is None):
        raise UserError("to fine-tune, give both --dev-source and --dev-reference")

    from anydepth.evaluate.render import to_terminal
    from anydepth.files import only_process
    from anydepth.infer.translator import Translator
    from anydepth.selectors.data import read_sample
    from anydepth.selectors.network import KINDS
    from anydepth.selectors.select import SelectOptions, SelectorRun, check_model

    run = make_runner(runner, address, workers, device, threads)
    translator = Translator.load(model, engine="torch", device=device, threads=threads)
    folder = check_model(translator)
    sample = read_sample(translator, source, reference, sentences, seed)
    dev = None
    if dev_source is not None and dev_reference is not None:
        dev = read_sample(translator, dev_source, dev_reference)
    out = out or folder.resolve().with_name(f"{folder.resolve().name}-select")
    kinds = [one for one in KINDS if kind in (Kinds.all, one)]
    options = SelectOptions(kinds, seeds, trials, beam, batch_size, seed, steps, paper_size)
    work = SelectorRun(translator, sample, dev, out, options, run)
    work.check()
    make_report_folder(out, "select.json", "a folder of `anydepth select`")  # before hours of work, not after
    with only_process(out, "training a selector"):
        to_terminal(work.run(next(iter(families([str(model)])))), results())
    stderr.print(f"try: anydepth translate {shlex.quote(str(model))} --depth auto < in > out")

"""`anydepth distill`: translate a corpus to train on."""

import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import (
    Address,
    BatchSize,
    Beam,
    Device,
    Engine,
    From,
    LengthPenalty,
    MaxLength,
    Model,
    Quantize,
    RunnerName,
    Threads,
    To,
    Workers,
    complete_depths,
    load_translator,
    make_runner,
    stderr,
)

Depth = Annotated[
    str | None,
    typer.Option(
        help="Such as 6-2.  [default: that of the model, by `info`]", show_default=False, autocompletion=complete_depths
    ),
]


def distill(
    model: Model,
    source: Annotated[
        Path, typer.Option(help="Sentences to translate, one per line; gzip is fine.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder for the corpus.", show_default=False)],
    depth: Depth = None,
    beam: Beam = 4,
    length_penalty: LengthPenalty = 1.0,
    batch_size: BatchSize = 64,
    max_length: MaxLength = None,
    reference: Annotated[
        Path | None, typer.Option(help="Translations by people: keep the candidate closest to each (chrF).")
    ] = None,
    nbest: Annotated[
        int | None, typer.Option(min=2, help="Candidates to choose from with --reference.  [default: the beam]")
    ] = None,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="A line for every line: leave out none, cut those that are too long.")
    ] = False,
    chunk: Annotated[int, typer.Option(min=1, max=1_000_000, help="Lines translated between two saves.")] = 2048,
    from_language: From = None,
    to_language: To = None,
    engine: Engine = "torch",
    quantize: Quantize = None,
    runner: RunnerName = "here",
    address: Address = None,
    workers: Workers = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate a corpus into one to train on. The same command again resumes where it stopped, killed or not."""
    from anydepth.infer.distill import DistillOptions, output_names
    from anydepth.infer.distill import distill as carry_out

    run = make_runner(runner, address, workers, device, threads, engine, quantize)
    at = "cpu" if runner == "ray" else device  # there this model only answers questions
    translator = load_translator(model, at, threads, from_language, to_language, engine, quantize)
    options = DistillOptions(depth, beam, length_penalty, batch_size, max_length, nbest, keep_all, chunk)
    counts = carry_out(translator, source, out, options, reference, run)
    if counts.kept:
        corpus = _corpus(*(out / name for name in output_names(translator.languages)))
        if translator.pair is None:
            stderr.print(f"train on it: --set {shlex.quote(f'data.train={corpus}')}")
        else:
            stderr.print(f"train on it: in data.pairs of a recipe, write at {translator.pair}  train: {corpus}")
    else:
        stderr.print("no line was kept, so there is nothing to train on: look at the source, or raise --max-length")


def _corpus(source: Path, target: Path) -> str:
    """In YAML, on one line."""
    one, other = (
        str(p) if re.fullmatch(r"[\w./-]+", str(p)) else json.dumps(str(p), ensure_ascii=False)
        for p in (source, target)
    )
    return f"{{source: {one}, target: {other}}}"

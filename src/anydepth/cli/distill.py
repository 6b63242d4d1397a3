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
    EngineOption,
    From,
    LengthPenalty,
    MaxLength,
    ModelArgument,
    Quantize,
    RunnerName,
    Threads,
    To,
    WorkersOption,
    complete_depths,
    make_runner,
    stderr,
)

DepthOption = Annotated[
    str | None,
    typer.Option(
        help="Depth, such as 6-2.  [default: the model's default depth]",
        show_default=False,
        autocompletion=complete_depths,
    ),
]


def distill(
    model: ModelArgument,
    source: Annotated[
        Path, typer.Option(help="Sentences to translate, one per line; may be gzipped.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder for the new corpus.", show_default=False)],
    depth: DepthOption = None,
    beam: Beam = 4,
    length_penalty: LengthPenalty = 1.0,
    batch_size: BatchSize = 64,
    max_length: MaxLength = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="Reference translations. Of the candidates, keep the one closest to the reference (chrF)."),
    ] = None,
    nbest: Annotated[
        int | None, typer.Option(min=2, help="Number of candidates with --reference.  [default: the beam size]")
    ] = None,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Write a line for every line: drop none, cut those that are too long.")
    ] = False,
    chunk: Annotated[int, typer.Option(min=1, max=1_000_000, help="Lines translated between two saves.")] = 2048,
    from_language: From = None,
    to_language: To = None,
    engine: EngineOption = "torch",
    quantize: Quantize = None,
    runner: RunnerName = "local",
    address: Address = None,
    workers: WorkersOption = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate a corpus with a teacher, for sequence-level distillation. To resume, give the same command again."""
    from anydepth.infer.distill import DistillOptions, output_names
    from anydepth.infer.distill import distill as run_distill
    from anydepth.infer.translator import Translator

    run = make_runner(runner, address, workers, device, threads, engine, quantize)
    at = "cpu" if runner == "ray" else device  # there this model only answers questions
    translator = Translator.load(
        model,
        engine=engine,
        device=at,
        threads=threads,
        quantize=quantize,
        source_language=from_language,
        target_language=to_language,
    ).between()
    options = DistillOptions(depth, beam, length_penalty, batch_size, max_length, nbest, keep_all, chunk)
    counts = run_distill(translator, source, out, options, reference, run)
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

"""Verbs that translate."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from anydepth.cli.app import (
    BatchSize,
    Beam,
    CutLong,
    Device,
    Engine,
    From,
    Lambda,
    LengthPenalty,
    Model,
    ModelOrBox,
    Quantize,
    Scale,
    Speculate,
    Threads,
    To,
    UseShortlist,
    depths_of,
    errors,
    load_translator,
)
from anydepth.cli.choosing import choice_of_depth
from anydepth.cli.running import Address, RunnerName, Workers, runner_of
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.translator import Hypothesis

Depth = Annotated[
    str | None,
    typer.Option(
        help="Such as 6-2.  [default: that of the model, by `info`]", show_default=False, autocompletion=depths_of
    ),
]
DepthOrAuto = Annotated[
    str | None,
    typer.Option(
        help="Such as 6-2, or auto: by the model's selector, per sentence.  [default: that of the model, by `info`]",
        show_default=False,
        autocompletion=depths_of,
    ),
]
MaxLength = Annotated[int | None, typer.Option(min=1, help="Longest output in sub-words.  [default: twice the source]")]


def translate(
    model: ModelOrBox = None,
    depth: DepthOrAuto = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Take the best depth within this time per sentence, such as 20ms or 50/s; with --depth auto, the best "
            "trade-off of the selector.",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="With --depth auto: the price of time, 0 for the best quality, larger for more speed; if it is by "
            "labels, the probability below which it takes the deepest.  [default: the selector's]",
            show_default=False,
        ),
    ] = None,
    scale: Scale = None,
    lambda_: Lambda = None,
    beam: Beam = 1,
    nbest: Annotated[int, typer.Option(min=1, help="Give the N best as `line ||| text ||| score`.")] = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    max_length: MaxLength = None,
    max_source: Annotated[int | None, typer.Option(min=1, help="Longest source in sub-words.")] = None,
    cut_long: CutLong = False,
    source_prefix: Annotated[str, typer.Option(help="Put this before every line.")] = "",
    from_language: From = None,
    to_language: To = None,
    engine: Engine = "auto",
    quantize: Quantize = None,
    speculate: Speculate = False,
    shortlist: UseShortlist = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate standard input to standard output, line by line."""
    from anydepth.data.corpus import decode_lines

    if sys.stdin is None or sys.stdout is None:
        raise UserError("translate reads standard input and writes standard output: one of them is closed")
    if speculate and beam > 1:
        raise UserError("--speculate is for greedy search: leave out --beam, or --speculate")
    at_a_terminal = sys.stdin.isatty()
    together = 1 if at_a_terminal else batch_size  # there, sentences come one by one
    translator = load_translator(
        model,
        device,
        threads,
        from_language,
        to_language,
        engine,
        quantize,
        speculate=speculate,
        shortlist=shortlist,
        batch_size=together,
    )
    if speculate and together > 1:
        errors.print(
            f"batches of {together} run without drafts, which would take longer: give --batch-size 1 to see each "
            "sentence sooner"
        )
    found = translator.stream(
        decode_lines(sys.stdin.buffer, "standard input"),
        chunk=1 if at_a_terminal else 2048,
        depth=choice_of_depth(translator, depth, budget, threshold, beam, together, errors.print),
        beam=beam,
        nbest=nbest,
        length_penalty=length_penalty,
        batch_size=together,
        max_length=max_length,
        max_source=max_source,
        cut_long=cut_long,
        source_prefix=source_prefix,
        scores=nbest > 1,
        scale=scale,
        lambda_=lambda_,
    )
    _write_translations(sys.stdout.buffer, found, nbest)


def _write_translations(out: BinaryIO, translations: "Iterator[list[Hypothesis]]", nbest: int) -> None:
    for number, hypotheses in enumerate(translations):
        for one in hypotheses:
            line = one.text if nbest == 1 else f"{number} ||| {one.text} ||| {one.score:.4f}"
            out.write(line.encode("utf-8") + b"\n")
        if sys.stdin.isatty():
            out.flush()
    out.flush()


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
    """Translate a corpus into one to train on. The same command again goes on where it stopped, killed or not."""
    from anydepth.infer.distill import DistillOptions, output_names
    from anydepth.infer.distill import distill as carry_out

    run = runner_of(runner, address, workers, device, threads, engine, quantize)
    at = "cpu" if runner == "ray" else device  # there this model only answers questions
    translator = load_translator(model, at, threads, from_language, to_language, engine, quantize)
    options = DistillOptions(depth, beam, length_penalty, batch_size, max_length, nbest, keep_all, chunk)
    counts = carry_out(translator, source, out, options, reference, run)
    if counts.kept:
        corpus = _corpus(*(out / name for name in output_names(translator.languages)))
        if translator.pair is None:
            errors.print(f"train on it: --set {shlex.quote(f'data.train={corpus}')}")
        else:
            errors.print(f"train on it: in data.pairs of a recipe, write at {translator.pair}  train: {corpus}")
    else:
        errors.print("no line was kept, so there is nothing to train on: look at the source, or raise --max-length")


def _corpus(source: Path, target: Path) -> str:
    """In YAML, on one line."""
    one, other = (
        str(p) if re.fullmatch(r"[\w./-]+", str(p)) else json.dumps(str(p), ensure_ascii=False)
        for p in (source, target)
    )
    return f"{{source: {one}, target: {other}}}"

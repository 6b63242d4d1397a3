"""`anydepth classify`: standard input to labels; and what verbs for classifiers share."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from anydepth.cli.options import Device, Lambda, ModelArgument, ScaleOption, Threads, stderr
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.classifier import Classification, Classifier

DepthOption = Annotated[
    str | None,
    typer.Option(help="One of those that `info` shows, such as 6-0.  [default: that of the model]", show_default=False),
]
WordDepthsFile = Annotated[
    Path | None,
    typer.Option(
        "--word-depths",
        help="How deep each word goes, a file by `anydepth word-depths`.  [default: that of the model]",
        show_default=False,
    ),
]
TextsTogether = Annotated[int, typer.Option("--batch-size", min=1, help="Texts classified together.")]


def classify(
    model: ModelArgument,
    depth: DepthOption = None,
    scale: ScaleOption = None,
    lambda_: Lambda = None,
    word_depths: WordDepthsFile = None,
    batch_size: TextsTogether = 32,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Classify standard input, a text on each line. Standard output: label, probability and mean depth, with tabs."""
    from anydepth.data.corpus import decode_lines

    if sys.stdin is None or sys.stdout is None:
        raise UserError("classify reads standard input and writes standard output: one of them is closed")
    classifier = load_classifier(model, device, threads, word_depths, depth)
    found = classifier.stream(
        decode_lines(sys.stdin.buffer, "standard input"),
        chunk=1 if sys.stdin.isatty() else 2048,  # at a terminal, texts come one by one
        depth=depth,
        scale=scale,
        lambda_=lambda_,
        batch_size=batch_size,
    )
    full = len(classifier.tokenizer.opening) + classifier.longest_source + 1
    if filled := _write(sys.stdout.buffer, found, full):
        stderr.print(f"{filled:,} texts fill the {full:,} subwords that the model reads: what was longer has been cut")


def _write(out: BinaryIO, found: "Iterator[Classification]", full: int) -> int:
    """Returns how many texts have as many subwords as there can be."""
    filled = 0
    for one in found:
        filled += one.tokens >= full
        out.write(f"{one.label}\t{one.probability:.4f}\t{one.depth:.2f}\n".encode())
        if sys.stdin.isatty():
            out.flush()
    out.flush()
    return filled


def load_classifier(
    model: Path, device: str, threads: int | None, word_depths: Path | None = None, depth: str | None = None
) -> "Classifier":
    """With another table of word depths if one is given, for use at `depth`."""
    from anydepth.infer.classifier import Classifier
    from anydepth.word_depths.table import WordDepths

    classifier = Classifier.load(model, device=device, threads=threads)
    if word_depths is not None:
        return classifier.with_word_depths(WordDepths.load(word_depths), depth)
    return classifier

"""`anydepth classify`: standard input to labels; and what verbs for classifiers share."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from anydepth.cli.options import Device, Lambda, ModelOrFile, ScaleOption, Threads, stderr
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.classifier import Classification, Classifier
    from anydepth.selectors import Selector

ClassifierDepth = Annotated[
    str | None,
    typer.Option(
        help="Depth, such as 6-0; `info` lists them.  [default: the model's default depth]", show_default=False
    ),
]
WordDepthsFile = Annotated[
    Path | None,
    typer.Option(
        "--word-depths",
        help="Table of word depths, made by `anydepth word-depths`.  [default: the model's own]",
        show_default=False,
    ),
]
ExitOption = Annotated[
    str | None,
    typer.Option(
        "--exit",
        help="Early exit for whole texts. confidence:0.9 stops at the first exit with that probability, "
        "patience:2 once that many exits in a row agree. For models trained with several exits (tied-multi, "
        "halting).",
        show_default=False,
    ),
]
SpecialOption = Annotated[
    str | None,
    typer.Option(
        "--special",
        help="Depth of the special tokens at both ends of a text: deepest, mean or shallowest.  [default: as in "
        "training]",
        show_default=False,
    ),
]
UnseenOption = Annotated[
    str | None,
    typer.Option(
        "--unseen",
        help="Depth of words that are not in the table: deepest, frequency or subword.  [default: as in training]",
        show_default=False,
    ),
]
ClassifierEngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Inference engine: native (int8), torch, or auto (native where it is the faster).",
        autocompletion=lambda: ["auto", "native", "torch"],
    ),
]
TextsTogether = Annotated[int, typer.Option("--batch-size", min=1, help="Texts per batch.")]


@dataclass(frozen=True)
class WordOptions:
    """Other depths of words than those of the model, where they are given."""

    table: Path | None = None
    special: str | None = None
    unseen: str | None = None

    @property
    def are_given(self) -> bool:
        return self != WordOptions()


def classify(
    model: ModelOrFile,
    depth: ClassifierDepth = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Use the best depth within this time per text, such as 5ms or 200/s. Every depth is timed first.",
            show_default=False,
        ),
    ] = None,
    exit: ExitOption = None,
    scale: ScaleOption = None,
    lambda_: Lambda = None,
    word_depths: WordDepthsFile = None,
    special: SpecialOption = None,
    unseen: UnseenOption = None,
    batch_size: TextsTogether = 32,
    engine: ClassifierEngineOption = "auto",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Classify standard input, one text per line. Writes label, probability and mean depth, tab-separated.

    Empty lines stay empty.
    """
    from anydepth.data.corpus import decode_lines

    if sys.stdin is None or sys.stdout is None:
        raise UserError("classify reads standard input and writes standard output: one of them is closed")
    if budget is not None and (depth is not None or exit is not None):
        other = f"--depth {depth}" if depth is not None else f"--exit {exit}"
        raise UserError(f"{other} and --budget {budget} both choose the depth: give one of the two")
    words = WordOptions(word_depths, special, unseen)
    classifier = load_classifier(model, device, threads, words, depth, engine)
    at_a_terminal = sys.stdin.isatty()
    together = 1 if at_a_terminal else batch_size  # there, texts come one by one
    if budget is not None:
        chosen: str | Selector | None = classifier.within_budget(budget, batch_size=together)
    else:
        chosen = depth
    found = classifier.stream(
        decode_lines(sys.stdin.buffer, "standard input"),
        chunk=1 if at_a_terminal else 2048,
        depth=chosen,
        scale=scale,
        lambda_=lambda_,
        exit=exit,
        batch_size=together,
    )
    shortest = len(classifier.tokenizer.opening) + 1
    full = shortest + classifier.longest_source
    written = _write(sys.stdout.buffer, found, shortest, full)
    if written.filled:
        count = f"{written.filled:,} texts fill"
        stderr.print(f"{count} the {full:,} subwords that the model reads: what was longer has been cut")
    if written.empty:
        stderr.print(f"{written.empty:,} empty lines have no label and stay empty")
    if exit is not None and written.texts:
        mean, layers = written.depths / written.texts, classifier.loaded.config.encoder_layers
        stderr.print(f"texts left after {mean:.2f} of {layers} layers on average")


@dataclass
class _Totals:
    """`filled` texts have as many subwords as there can be; `depths` are those of all texts, added up."""

    texts: int = 0
    empty: int = 0
    filled: int = 0
    depths: float = 0.0


def _write(out: BinaryIO, found: "Iterator[Classification]", shortest: int, full: int) -> _Totals:
    """A line for each text; an empty one for those that have no more subwords than an empty text has."""
    written = _Totals()
    for one in found:
        if one.tokens <= shortest:
            written.empty += 1
            out.write(b"\n")
        else:
            written.texts += 1
            written.filled += one.tokens >= full
            written.depths += one.depth
            out.write(f"{one.label}\t{one.probability:.4f}\t{one.depth:.2f}\n".encode())
        if sys.stdin.isatty():
            out.flush()
    out.flush()
    return written


def load_classifier(
    model: Path,
    device: str,
    threads: int | None,
    words: WordOptions = WordOptions(),  # noqa: B008  # it is frozen
    depth: str | None = None,
    engine: str = "auto",
) -> "Classifier":
    """With other depths of words if they are given, for use at `depth`."""
    from anydepth.infer.classifier import Classifier
    from anydepth.word_depths.table import WordDepths

    classifier = Classifier.load(model, engine=engine, device=device, threads=threads)
    if not words.are_given:
        return classifier
    table = None if words.table is None else WordDepths.load(words.table)
    return classifier.with_word_depths(table, depth, special=words.special, unseen=words.unseen)

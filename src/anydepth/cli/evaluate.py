"""`anydepth evaluate`: evaluates models that classify."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from anydepth.cli.classify import (
    ClassifierDepth,
    ClassifierEngineOption,
    SpecialOption,
    UnseenOption,
    WordDepthsFile,
    WordOptions,
)
from anydepth.cli.options import Device, Threads, families, make_report_folder, results, split_names, stderr
from anydepth.cli.word_depths import LabelColumnName, TextColumnName
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.evaluate.classification_data import LabelledTexts, Member

Number = TypeVar("Number", int, float)


def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One or more classifiers, as PATH or NAME=PATH. A folder of runs seed-1, seed-2, ... or fold-1, "
            "fold-2, ... counts as one system, with mean and standard deviation.",
            show_default=False,
        ),
    ],
    test: Annotated[
        Path | None,
        typer.Option(
            help="Lines of label, tab, text, or a .csv file with a header. A model of a cross-validation fold is "
            "tested on its own held-out texts instead.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a report.  [default: print the table only]", show_default=False)
    ] = None,
    static: Annotated[
        str | None,
        typer.Option(
            metavar="[NAME=]PATH",
            help="Model to compare speed with.  [default: the same weights with all words at full depth]",
            show_default=False,
        ),
    ] = None,
    depth: ClassifierDepth = None,
    word_depths: WordDepthsFile = None,
    special: SpecialOption = None,
    unseen: UnseenOption = None,
    scales: Annotated[
        str | None,
        typer.Option(
            help="Also evaluate with word depths scaled by these factors, such as 0.5,1,2.", show_default=False
        ),
    ] = None,
    lambdas: Annotated[
        str | None,
        typer.Option(
            help="Also evaluate with these layer penalties (word depths by reconstruction).", show_default=False
        ),
    ] = None,
    exits: Annotated[
        str | None,
        typer.Option(
            help="Also evaluate with early exit, such as confidence:0.9,patience:2. For models trained with several "
            "exits.",
            show_default=False,
        ),
    ] = None,
    batch_sizes: Annotated[str, typer.Option(help="Batch sizes to time, separated by commas.")] = "1,16",
    timed: Annotated[int, typer.Option(min=1, help="Number of texts to time.")] = 200,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds over all models; the median is reported.")] = 3,
    text_column: TextColumnName = "text",
    label_column: LabelColumnName = "label",
    record: Annotated[
        bool, typer.Option(help="Write the results to the depth menu and the model card of each model.")
    ] = True,
    engine: ClassifierEngineOption = "auto",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure accuracy, depth and speed of classifiers. With --out it writes a report."""
    import torch

    from anydepth.device import choose_device
    from anydepth.evaluate.classification import EvaluationOptions
    from anydepth.evaluate.classification import evaluate as run_evaluation
    from anydepth.evaluate.classification_data import LabelledTexts
    from anydepth.evaluate.classification_report import RECORD, STALE, evaluation_report, record_evaluation
    from anydepth.evaluate.render import to_terminal, write_report

    options = EvaluationOptions(
        depth,
        _numbers(scales, float, "--scales", "0.5,1,2"),
        _numbers(lambdas, float, "--lambdas", "0,0.05,0.1"),
        tuple(split_names(exits) or ()),
        _numbers(batch_sizes, int, "--batch-sizes", "1,16"),
        timed,
        repeats,
        str(choose_device(device)),
        engine,
    )
    if threads is not None:
        torch.set_num_threads(threads)
    texts = None if test is None else LabelledTexts.read(test, text_column, label_column)
    words = WordOptions(word_depths, special, unseen)
    systems = _members(models, texts, words)
    compared = None if static is None else next(iter(_members([static], texts, WordOptions()).items()))
    if out is not None:
        make_report_folder(out, RECORD, "an evaluation")  # before hours of work, not after
    found = run_evaluation(systems, options, static=compared)
    report = evaluation_report(found)
    to_terminal(report, results())
    if record and not words.are_given:
        everyone = {**systems, **(dict([compared]) if compared else {})}
        for folder in record_evaluation(everyone, found):
            stderr.print(f"recorded in the menu and the card of {folder}")
    if out is not None:
        stderr.print(f"report: {write_report(report, out, RECORD, stale=STALE)}")


def _members(arguments: list[str], test: "LabelledTexts | None", words: WordOptions) -> "dict[str, list[Member]]":
    from anydepth.evaluate.classification_data import find_members

    return {
        label: [
            replace(member, special=words.special, unseen=words.unseen)
            for member in find_members(paths, test, words.table)
        ]
        for label, paths in families(arguments).items()
    }


def _numbers(given: str | None, kind: Callable[[str], Number], option: str, example: str) -> tuple[Number, ...]:
    try:
        return tuple(kind(part) for part in given.split(",")) if given is not None else ()
    except ValueError as error:
        raise UserError(f"{option} takes numbers with commas between them, such as {example}: not {given!r}") from error

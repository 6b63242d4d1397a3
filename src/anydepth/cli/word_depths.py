"""Verbs that work out how deep each word goes: `anydepth word-depths mi` and `reconstruction`."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anydepth.cli.options import Device, Threads, results, stderr
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.word_depths.table import WordDepths

MANY_TEXTS = 10_000

word_depths_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Compute a depth for every word, for classification.",
)

TextColumnName = Annotated[str, typer.Option("--text-column", help="Text column of a CSV file.")]
LabelColumnName = Annotated[str, typer.Option("--label-column", help="Label column of a CSV file.")]
LayersOption = Annotated[
    int, typer.Option(min=1, max=1000, help="Number of layers of the deepest words.", show_default=False)
]
Out = Annotated[Path, typer.Option(help="Output table, a JSON file; a plot is written next to it.")]


@word_depths_app.callback()
def _several_verbs() -> None:
    """Without this, a single verb would not need to be named."""


@word_depths_app.command()
def mi(
    train: Annotated[
        Path,
        typer.Option(
            help="Labelled training texts: lines of label, tab, text, or a .csv file with a header; may be gzipped.",
            show_default=False,
        ),
    ],
    layers: LayersOption,
    out: Out = Path("word-depths.json"),
    text_column: TextColumnName = "text",
    label_column: LabelColumnName = "label",
    shuffled: Annotated[
        bool,
        typer.Option(
            "--shuffled", help="Shuffle the depths among words of similar frequency: a control for experiments."
        ),
    ] = False,
) -> None:
    """Depths by mutual information with the label: the more informative a word, the fewer layers it gets."""
    from anydepth.data.corpus import read_labelled
    from anydepth.progress import progress_bar
    from anydepth.word_depths.mutual_information import count_words, make_depths, shuffle_depths

    check_out(out)
    total = sum(1 for _ in read_labelled(train, text_column, label_column))
    few = nullcontext(lambda count: None)  # which are read at once
    with few if total < MANY_TEXTS else progress_bar("texts read", total) as advance:
        counts = count_words(read_labelled(train, text_column, label_column), advance)
    depths = make_depths(counts, layers)
    write_and_show(shuffle_depths(depths, counts) if shuffled else depths, counts.occurrences, out)


@word_depths_app.command()
def reconstruction(
    train: Annotated[
        list[Path],
        typer.Option(
            help="Training texts, labelled as for `mi`; the labels are ignored. May be repeated.",
            show_default=False,
        ),
    ],
    out: Out = Path("word-depths.json"),
    encoder: Annotated[
        Path | None,
        typer.Option(
            help="Pre-trained encoder to start from: a folder or a name on the Hugging Face hub. A model that already "
            "predicts masked words from every layer is used as it is.  [default: train from scratch]",
            show_default=False,
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Input files have one text per line and no labels.")] = False,
    layers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Layers of an encoder trained from scratch.  [default: 6]", show_default=False
        ),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            min=100,
            max=250_000,
            help="Vocabulary size of an encoder trained from scratch.  [default: 8000]",
            show_default=False,
        ),
    ] = None,
    lambda_: Annotated[
        float,
        typer.Option(
            "--lambda", min=0.0, max=100.0, help="Penalty per layer, in nats; a larger one gives shallower words."
        ),
    ] = 0.1,
    occurrences: Annotated[
        list[Path] | None,
        typer.Option(
            help="Texts whose words get a depth per occurrence, as in the paper; may be repeated. All other texts use "
            "the table.",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Number of texts whose words are masked one by one to make the table.")
    ] = 2000,
    steps: Annotated[
        int,
        typer.Option(min=1, help="Training updates of the masked-word model. A warning says if there were too few."),
    ] = 2000,
    learning_rate: Annotated[float, typer.Option(min=1e-8, help="Peak learning rate of the masked-word model.")] = 3e-4,
    batch_tokens: Annotated[int, typer.Option(min=16, help="Subwords per batch.")] = 1024,
    max_tokens: Annotated[
        int,
        typer.Option(
            min=2,
            help="Maximum text length in subwords; longer texts are truncated. Should equal data.max_tokens of the "
            "recipe.",
        ),
    ] = 127,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder of the training run, used to resume it.  [default: OUT.run]"),
    ] = None,
    text_column: TextColumnName = "text",
    label_column: LabelColumnName = "label",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Depths by reconstruction: a word that few layers can predict from its context gets few layers."""
    from anydepth.data.corpus import read_labelled, read_lines
    from anydepth.word_depths.reconstruction import ReconstructionConfig, reconstruction_depths

    def read(paths: list[Path]) -> list[str]:
        if plain:
            return [line for path in paths for line in read_lines(path)]
        return [text for path in paths for text, _ in read_labelled(path, text_column, label_column)]

    check_out(out)
    if encoder is not None and (layers is not None or vocabulary is not None):
        brought, option = ("layers", "--layers") if layers is not None else ("subwords", "--vocabulary")
        raise UserError(f"an encoder brings its {brought} with it: leave out {option}, or --encoder")
    asked = ReconstructionConfig(
        encoder=encoder,
        layers=layers,
        steps=steps,
        learning_rate=learning_rate,
        batch_tokens=batch_tokens,
        sample=sample,
        lambda_=lambda_,
        max_tokens=max_tokens,
        threads=threads,
        device=device,
        vocabulary=vocabulary,
    )
    folder = work or out.with_name(f"{out.name}.run")
    write_and_show(*reconstruction_depths(asked, read(train), read(occurrences or []), folder), out)


def check_out(out: Path) -> None:
    """Before any work: whether the table and its picture may be written where they would go."""
    from anydepth.word_depths.table import WordDepths

    if out.suffix.lower() == ".png":
        raise UserError(f"{out} ends in .png, which is for the plot: give the name of a .json file with --out")
    if out.exists():
        try:
            WordDepths.load(out)
        except UserError as error:
            raise UserError(f"{out} exists and is not a table of word depths: give another file with --out") from error
    elif _picture_path(out).exists():
        raise UserError(f"{_picture_path(out)} exists, where the plot would be written: give another file with --out")


def _picture_path(out: Path) -> Path:
    return out.with_suffix(".png")


def write_and_show(depths: "WordDepths", occurrences: Mapping[str, int], out: Path) -> None:
    """Write the table and its picture, and print how these words spread over the depths."""
    from anydepth.evaluate.figures import draw
    from anydepth.evaluate.render import to_terminal
    from anydepth.evaluate.word_depths import word_depths_report
    from anydepth.files import write_atomically

    depths.save(out)
    report = word_depths_report(depths, occurrences)
    write_atomically(_picture_path(out), draw(report.figures()[0])[0])
    to_terminal(report, results())
    stderr.print(f"written: {out} and {_picture_path(out).name}")

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
    help="Work out how deep each word goes, for classification at a depth of its own for every word.",
)

TextColumnName = Annotated[str, typer.Option("--text-column", help="Column of the texts, of a CSV file.")]
LabelColumnName = Annotated[str, typer.Option("--label-column", help="Column of the labels, of a CSV file.")]
Layers = Annotated[
    int, typer.Option(min=1, max=1000, help="How many layers the deepest words go through.", show_default=False)
]
Out = Annotated[Path, typer.Option(help="The table, a JSON file; a picture goes beside it.")]


@word_depths_app.callback()
def _several_verbs() -> None:
    """Without this, a single verb would not need to be named."""


@word_depths_app.command()
def mi(
    train: Annotated[
        Path,
        typer.Option(
            help="Labelled texts, those of training alone: lines of label, tab, text, or a .csv file with a header; "
            "may be gzipped.",
            show_default=False,
        ),
    ],
    layers: Layers,
    out: Out = Path("word-depths.json"),
    text_column: TextColumnName = "text",
    label_column: LabelColumnName = "label",
    shuffled: Annotated[
        bool,
        typer.Option("--shuffled", help="Exchange the depths of words about as frequent: a control for experiments."),
    ] = False,
) -> None:
    """From mutual information: the more a word tells of the label, the fewer layers it goes through."""
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
            help="Texts to learn from, labelled as for `mi`, whose labels are not looked at; may be repeated.",
            show_default=False,
        ),
    ],
    out: Out = Path("word-depths.json"),
    encoder: Annotated[
        Path | None,
        typer.Option(
            help="A pre-trained encoder to start from, a folder or a name on the Hugging Face hub; or a model that "
            "fills in from every layer, which is used as it is.  [default: from scratch]",
            show_default=False,
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Files have a text on each line and no labels.")] = False,
    layers: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Of an encoder from scratch.  [default: 6]", show_default=False),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(min=100, max=250_000, help="Its subwords.  [default: 8000]", show_default=False),
    ] = None,
    lambda_: Annotated[
        float, typer.Option("--lambda", min=0.0, max=100.0, help="What a word pays for each layer more, in nats.")
    ] = 0.1,
    occurrences: Annotated[
        list[Path] | None,
        typer.Option(
            help="Texts whose words get a depth for each occurrence, as in the paper; may be repeated. The table is "
            "for all other texts.",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Texts of which each word is hidden in turn for the table.")
    ] = 2000,
    steps: Annotated[
        int, typer.Option(min=1, help="Updates of the model that fills in; it is said if they were too few.")
    ] = 2000,
    learning_rate: Annotated[float, typer.Option(min=1e-8, help="Its peak learning rate.")] = 3e-4,
    batch_tokens: Annotated[int, typer.Option(min=16, help="Subwords in one of its batches.")] = 1024,
    max_tokens: Annotated[
        int, typer.Option(min=2, help="Longer texts are cut, in subwords; as data.max_tokens of the recipe.")
    ] = 127,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder of its run, with which the same command goes on.  [default: OUT.run]"),
    ] = None,
    text_column: TextColumnName = "text",
    label_column: LabelColumnName = "label",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """From reconstruction: a word that few layers suffice to tell from its context goes through few layers."""
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
        raise UserError(f"{out} is where the picture would go: give the name of a .json file with --out")
    if out.exists():
        try:
            WordDepths.load(out)
        except UserError as error:
            raise UserError(f"{out} is there and holds something else: give another file with --out") from error
    elif _picture_path(out).exists():
        raise UserError(f"{_picture_path(out)} is there, where the picture would go: give another file with --out")


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

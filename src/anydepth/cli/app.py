"""The command line's frame: the app, the options that verbs share, and the console for everything but results."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from anydepth import __version__
from anydepth.artifact import bundled_model
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.translator import Translator

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Train one Transformer, run it at any depth. A depth is written encoder-decoder: **6-2**.",
)
ENGINE_NAMES = ("auto", "native", "ctranslate2", "torch")  # as in engines/auto.py, which takes a second to import
errors = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)

Model = Annotated[Path, typer.Argument(help="A model folder, or the folder of a finished run.", show_default=False)]
ModelOrBox = Annotated[
    Path | None,
    typer.Argument(
        help="A model folder, or the folder of a finished run.  [default: the bundled model, French to English]",
        show_default=False,
    ),
]
Beam = Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy search.")]
LengthPenalty = Annotated[float, typer.Option(help="GNMT length penalty.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Sentences decoded together.")]
CutLong = Annotated[bool, typer.Option("--cut-long", help="Cut lines that are too long instead of refusing them.")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="CPU threads.  [default: all cores]", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Scale = Annotated[
    float | None,
    typer.Option(
        help="Where each word has its own depth: make all deeper or shallower, such as 2 or 0.5.  "
        "[default: as in training]",
        show_default=False,
    ),
]
Lambda = Annotated[
    float | None,
    typer.Option(
        "--lambda",
        help="The price of a layer, of depths from reconstruction: larger is shallower.  [default: as in training]",
        show_default=False,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help="What runs the model: native (int8), ctranslate2, torch, or auto: the fastest that is here.",
        autocompletion=lambda: list(ENGINE_NAMES),
    ),
]
Quantize = Annotated[
    str | None,
    typer.Option(
        help="With --engine ctranslate2: compute type, such as int8.  [default: that of the engine]",
        show_default=False,
    ),
]
Speculate = Annotated[
    bool,
    typer.Option(
        "--speculate",
        help="With --engine native: the shallowest depth drafts, the asked one verifies; the same output, sooner. For "
        "sentences that come one at a time: in larger batches it would not pay, and they run as without it.",
    ),
]
UseShortlist = Annotated[
    bool,
    typer.Option(
        "--shortlist", help="Search among the outputs of the model's lexical shortlist (`anydepth shortlist`): faster."
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", help="Language to translate into, of a model that has several.", show_default=False),
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Language of the source, of a model that has several.", show_default=False),
]


def depths_of(context: typer.Context) -> list[str]:
    """For completion: the depths of the model that has been typed, read without loading anything."""
    try:
        given = context.params.get("model") or next(iter(context.args), None)
        folder = bundled_model() if given is None else Path(given)
        places = (folder / "depths.json", folder / "model" / "depths.json")
        record = json.loads(next(path for path in places if path.is_file()).read_text("utf-8"))
        return [str(row["name"]) for row in record["depths"]]
    except (StopIteration, OSError, ValueError, KeyError, TypeError, UserError):
        return []


def load_translator(
    model: Path | None,
    device: str,
    threads: int | None,
    source: str | None = None,
    target: str | None = None,
    engine: str = "torch",
    quantize: str | None = None,
    *,
    speculate: bool = False,
    shortlist: bool = False,
    batch_size: int = 1,
) -> "Translator":
    """The model for the language pair that the user wants, refused where that is not clear; on the engine."""
    from anydepth.infer.translator import on_engine

    translator = load_model(model, device, threads).between(source, target)
    return on_engine(
        translator, engine, threads, quantize, speculate=speculate, shortlist=shortlist, batch_size=batch_size
    )


def load_model(model: Path | None, device: str, threads: int | None) -> "Translator":
    """The model for all of its language pairs."""
    import torch

    from anydepth.infer.translator import Translator

    if threads is not None:
        torch.set_num_threads(threads)
    return Translator.load(bundled_model() if model is None else model, engine="torch", device=device)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"anydepth {__version__}")
        raise typer.Exit

"""What verbs share: options, how models are named and loaded, where results and messages go, and where jobs run."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anydepth.artifact import bundled_model, short_name
from anydepth.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from anydepth.infer.runner import Runner
    from anydepth.infer.translator import Translator

    stderr: Console  # made when it is asked for

ENGINE_NAMES = ("auto", "native", "ctranslate2", "torch")  # as in engines/auto.py, which takes a second to import

ModelArgument = Annotated[
    Path, typer.Argument(help="A model folder, or the folder of a finished run.", show_default=False)
]
ModelOrBundled = Annotated[
    Path | None,
    typer.Argument(
        help="A model folder, or the folder of a finished run.  [default: the bundled model, Portuguese to English]",
        show_default=False,
    ),
]
ModelOrFile = Annotated[
    Path,
    typer.Argument(
        help="A model folder, the folder of a finished run, or a model file (.anydepth).", show_default=False
    ),
]
ModelFileOrBundled = Annotated[
    Path | None,
    typer.Argument(
        help="A model folder, the folder of a finished run, or a model file (.anydepth).  [default: the bundled model, "
        "Portuguese to English]",
        show_default=False,
    ),
]
Source = Annotated[Path, typer.Option(help="Source sentences, one per line.", show_default=False)]
Reference = Annotated[Path, typer.Option(help="Reference translations, line by line.", show_default=False)]
Beam = Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy search.")]
LengthPenalty = Annotated[float, typer.Option(help="GNMT length penalty.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Sentences per batch.")]
CutLong = Annotated[
    bool, typer.Option("--cut-long", help="Truncate lines that are too long instead of stopping with an error.")
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="CPU threads.  [default: all cores]", show_default=False)
]
MaxLength = Annotated[
    int | None, typer.Option(min=1, help="Maximum output length in subwords.  [default: twice the source length + 10]")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
ScaleOption = Annotated[
    float | None,
    typer.Option(
        help="With a depth per word: scale all depths by this factor, such as 2 (deeper) or 0.5 (shallower).  "
        "[default: as in training]",
        show_default=False,
    ),
]
Lambda = Annotated[
    float | None,
    typer.Option(
        "--lambda",
        help="With word depths by reconstruction: penalty per layer; a larger one gives shallower words.  "
        "[default: as in training]",
        show_default=False,
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        help="Inference engine: native (int8), ctranslate2, torch, or auto (the fastest one available).",
        autocompletion=lambda: list(ENGINE_NAMES),
    ),
]
Quantize = Annotated[
    str | None,
    typer.Option(
        help="Compute type: int8 with --engine native; int8, float32 or another with ctranslate2; float32 with torch.  "
        "[default: the engine's own]",
        show_default=False,
    ),
]
Speculate = Annotated[
    bool,
    typer.Option(
        "--speculate",
        help="With --engine native: speculative decoding. The shallowest depth drafts, the chosen depth verifies; "
        "the output is the same. It speeds up batch size 1 and is off in larger batches.",
    ),
]
UseShortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        help="Restrict the output layer to the lexical shortlist made by `anydepth shortlist`. Faster.  [default: on "
        "the native engine, where the model has one]",
        show_default=False,
    ),
]
TokenExit = Annotated[
    str | None,
    typer.Option(
        "--exit",
        help="Early exit for each token: it leaves the decoder at the first exit that is sure. margin:2 is the best "
        "logit's lead over the second, confidence:0.9 the best token's probability, patience:2 so many exits in a row "
        "that agree. For models trained at several decoder depths (tied-multi), on native and torch.",
        show_default=False,
    ),
]
Repeats = Annotated[int, typer.Option(min=1, help="Timed passes; the median is reported.")]
To = Annotated[
    str | None,
    typer.Option("--to", help="Target language, of a multilingual model.", show_default=False),
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Source language, of a multilingual model.", show_default=False),
]
DepthsOption = Annotated[
    str | None,
    typer.Option(
        help="Only these depths, such as 6-6,6-2; for an encoder-only model 6-0.  [default: all]", show_default=False
    ),
]
RunnerName = Annotated[
    str,
    typer.Option(
        "--runner",
        help="Where to translate: local, or ray (a Ray cluster, or the cores of this machine).",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster, such as ray://head:10001, or auto.  [default: start Ray on this machine]",
        show_default=False,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Ray workers on this machine.  [default: one per core]", show_default=False),
]
PIPED_WIDTH = 1000  # in a file or a pipe no table need be cut


def __getattr__(name: str) -> object:
    if name == "stderr":
        from anydepth.progress import stderr_console

        return stderr_console()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def complete_depths(context: typer.Context) -> list[str]:
    """For completion: the depths of the model that has been typed, read without loading anything."""
    try:
        given = context.params.get("model") or next(iter(context.args), None)
        folder = bundled_model() if given is None else Path(given)
        places = (folder / "depths.json", folder / "model" / "depths.json")
        record = json.loads(next(path for path in places if path.is_file()).read_text("utf-8"))
        return [str(row["name"]) for row in record["depths"]]
    except (StopIteration, OSError, ValueError, KeyError, TypeError, UserError):
        return []


@dataclass(frozen=True)
class LoadOptions:
    """How an experiment loads its models: the keyword arguments of `Translator.load`."""

    engine: str
    quantize: str | None
    device: str
    threads: int | None
    source_language: str | None
    target_language: str | None


def load_families(arguments: Sequence[str], on: LoadOptions) -> "dict[str, list[Translator]]":
    """Each model for the language pair that is wanted of all of them."""
    from anydepth.infer.translator import Translator

    return {
        label: [Translator.load(path, **asdict(on)).between() for path in paths]
        for label, paths in families(arguments).items()
    }


def families(arguments: Sequence[str]) -> dict[str, list[Path]]:
    """The folders under each label, from arguments such as runs/flexible or individual=runs/1-1,runs/2-2."""
    read = [_family(argument) for argument in arguments]
    names = [name or short_name(paths[0]) for name, paths in read]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return {name: paths for name, (_, paths) in zip(names, read, strict=True)}


def _family(argument: str) -> tuple[str | None, list[Path]]:
    """The name a user gave, if any, and the folders. What exists as it stands is one folder, whatever it looks like."""
    name, equals, rest = argument.partition("=")
    if "," in argument and not equals and not os.path.exists(argument):
        raise UserError(f"there is no model at {argument}: to take several together, write NAME={argument}")
    if not equals or os.path.exists(argument):
        return None, [Path(argument)]
    paths = [rest] if os.path.exists(rest) else rest.split(",")
    if not name.strip() or not all(path.strip() for path in paths):
        raise UserError(f"{argument!r} names no model: write NAME=PATH or NAME=PATH,PATH")
    return name.strip(), [Path(path.strip()) for path in paths]


def make_report_folder(folder: Path, mark: str, kind: str) -> None:
    """Refuse a folder with other files in it. `mark` is the file by which a report of this kind is known."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / mark).exists():
        raise UserError(f"{folder} is not empty and not {kind}: give another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error


def results() -> "Console":
    """Standard output, for tables."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)


def make_runner(
    name: str,
    address: str | None,
    workers: int | None,
    device: str,
    threads: int | None,
    engine: str = "torch",
    quantize: str | None = None,
) -> "Runner":
    from anydepth.infer.runner import local

    if name == "ray":
        from anydepth.export.ray import RayRunner

        if engine == "auto":
            raise UserError("machines might take different engines with auto: name one, such as --engine native")
        if address is not None and workers is not None:
            raise UserError("a cluster has its own workers: leave out --workers, or --address")
        return RayRunner(address, workers, device, threads or 1, engine, quantize).started()
    if name != "local":
        raise UserError(f"there is no runner {name!r}; choose one of local, ray")
    if address is not None or workers is not None:
        raise UserError("--address and --workers are for --runner ray")
    return local


def split_names(depths: str | None) -> list[str] | None:
    return None if depths is None else [depth.strip() for depth in depths.split(",")]

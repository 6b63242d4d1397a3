"""The command line: one function per verb, and one place that turns errors into a line and an exit code."""

import errno
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, NoReturn

import typer
from rich.console import Console

from anydepth import __version__
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.translator import Hypothesis

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Train one Transformer, run it at any depth. A depth is written encoder-decoder: **6-2**.",
)
errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

OUT_OF_MEMORY = "out of memory: use a smaller batch (--batch-size, train.batch_tokens) or a smaller model"

Model = Annotated[Path, typer.Argument(help="A model folder, or the folder of a finished run.", show_default=False)]
Beam = Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy search.")]
LengthPenalty = Annotated[float, typer.Option(help="GNMT length penalty.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Sentences decoded together.")]
CutLong = Annotated[bool, typer.Option("--cut-long", help="Cut lines that are too long instead of refusing them.")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="CPU threads.  [default: all cores]", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="tatoeba-en-fr or tatoeba-en-es.", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="Where to put it.", show_default=False)],
    archive: Annotated[Path | None, typer.Option(help="The source archive, if it is already at hand.")] = None,
) -> None:
    """Fetch a ready corpus: split into train, valid and test, no sentence shared between them, checksummed."""
    from anydepth.text.datasets import fetch

    found = fetch(name, folder, archive)
    pairs = ", ".join(f"{part} {count:,}" for part, count in found["pairs"].items())
    errors.print(f"{folder}: {pairs} pairs{' (was already there)' if found['already_there'] else ''}")


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/quickstart.yaml.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder of the run; the model will be in its `model`.", show_default=False)],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe; may be repeated."),
    ] = None,
) -> None:
    """Train a model. The same command again resumes exactly where the run stopped, killed or not."""
    from anydepth.recipe import read_recipe
    from anydepth.recipe import train as carry_out

    carry_out(read_recipe(recipe, set_ or []), out, errors)


@app.command()
def translate(
    model: Model,
    depth: Annotated[str | None, typer.Option(help="Such as 6-2.  [default: the deepest]", show_default=False)] = None,
    beam: Beam = 1,
    nbest: Annotated[int, typer.Option(min=1, help="Give the N best as `line ||| text ||| score`.")] = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Longest output in sub-words.  [default: twice the source]")
    ] = None,
    max_source: Annotated[int | None, typer.Option(min=1, help="Longest source in sub-words.")] = None,
    cut_long: CutLong = False,
    source_prefix: Annotated[str, typer.Option(help="Put this before every line.")] = "",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate standard input to standard output, line by line."""
    from anydepth.text.corpus import decode_lines

    if sys.stdin is None or sys.stdout is None:
        raise UserError("translate reads standard input and writes standard output: one of them is closed")
    translator = _load(model, device, threads)
    found = translator.stream(
        decode_lines(sys.stdin.buffer, "standard input"),
        chunk=1 if sys.stdin.isatty() else 2048,
        depth=depth,
        beam=beam,
        nbest=nbest,
        length_penalty=length_penalty,
        batch_size=batch_size,
        max_length=max_length,
        max_source=max_source,
        cut_long=cut_long,
        source_prefix=source_prefix,
        scores=nbest > 1,
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


@app.command()
def sweep(
    models: Annotated[
        list[Path], typer.Argument(help="One or more models; several are compared cell by cell.", show_default=False)
    ],
    source: Annotated[Path, typer.Option(help="Source sentences, one per line.", show_default=False)],
    reference: Annotated[Path, typer.Option(help="Their translations, line by line.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the report.", show_default=False)],
    depths: Annotated[
        str | None, typer.Option(help="Only these, such as 6-6,6-2.  [default: all]", show_default=False)
    ] = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes over all depths; the median counts.")] = 1,
    samples: Annotated[int, typer.Option(min=1, help="Samples of the paired bootstrap between models.")] = 1000,
    cut_long: CutLong = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure every depth: quality, time, size. Leaves a report, and the figures in the model's depth menu."""
    from anydepth.evaluate.remember import remember
    from anydepth.evaluate.report import write_report
    from anydepth.evaluate.sweep import sweep as run_sweep
    from anydepth.evaluate.table import print_table
    from anydepth.text.corpus import read_lines

    sources, references = list(read_lines(source)), list(read_lines(reference))
    _make_folder(out)  # before hours of work, not after
    labels = _labels(models)
    translators = {label: _load(path, device, threads) for label, path in zip(labels, models, strict=True)}
    result = run_sweep(
        translators,
        sources,
        references,
        depths=None if depths is None else [depth.strip() for depth in depths.split(",")],
        beam=beam,
        length_penalty=length_penalty,
        batch_size=batch_size,
        cut_long=cut_long,
        repeats=repeats,
        samples=samples,
        source_name=source.name,
        reference_name=reference.name,
        console=errors,
    )
    print_table(result, Console())
    for label, translator in translators.items():
        remember(translator, result, label, console=errors)
    page = write_report(result, out)
    errors.print(f"report: {page}")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error


def _labels(models: Sequence[Path]) -> list[str]:
    """Short names for models: the folder's; a run's, for its model; numbered where two would be the same."""
    names = [path.parent.name if path.name == "model" else path.name for path in (p.resolve() for p in models)]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _load(model: Path, device: str, threads: int | None):  # type: ignore[no-untyped-def]
    import torch

    from anydepth.artifact import load

    if threads is not None:
        torch.set_num_threads(threads)
    return load(model, device)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"anydepth {__version__}")
        raise typer.Exit


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Whatever a user can mend becomes one line on standard error and exit code 2."""
    try:
        yield
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone, as with `| head`
        sys.exit(141)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "; free some space and give the same command again" if full else ""
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}{advice}")
    except MemoryError:
        _fail(OUT_OF_MEMORY)
    except Exception as error:
        if isinstance(error, RuntimeError) and re.search(r"out of memory|allocate memory", str(error)):
            _fail(OUT_OF_MEMORY)
        if not hasattr(error, "format_message"):  # what click and typer's own copy of it have in common
            raise
        message = error.format_message()
        if not message:  # a bare `anydepth` has printed its help
            sys.exit(2)
        _fail(f"{message} (--help shows what there is)")


def _fail(message: str) -> NoReturn:
    errors.print(f"anydepth: {' '.join(message.split())}")
    sys.exit(2)


def main() -> None:
    # By default the threads of PyTorch spin while they wait for each other. When another program has one of their
    # cores, that costs more than all the rest: training all but stopped (docs/lab-notes.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    with _one_line_errors():
        code = typer.main.get_command(app).main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)

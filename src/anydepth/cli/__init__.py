"""The command line: a file per verb. Errors that a user can mend become one line and exit code 2."""

import errno
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, NoReturn

import typer

from anydepth import __version__
from anydepth.errors import UserError
from anydepth.progress import show_progress, stderr_console

SECONDS_TO_BE_ENDED = 5
FLAGS = {  # of the keyword arguments that messages of the library name
    **{name: name for name in ("archive", "device", "engine", "exits", "lambdas", "out", "quantize", "scales")},
    **{name: name for name in ("shortlist", "speculate", "static", "test", "vocabulary", "work")},
    **{name: name.replace("_", "-") for name in ("cut_long", "dev_source", "max_tokens", "word_depths")},
    "source_language": "from",
    "target_language": "to",
}
KEYWORDS = re.compile(rf'\b({"|".join(FLAGS)})=(?:True|…|"([^"]*)")')
OUT_OF_MEMORY = "out of memory: use a smaller batch (--batch-size, train.batch_tokens) or a smaller model"

# In the order of --help: under each heading the verbs, each with an example. A verb is the function of its name in the
# file of its name.
VERBS: dict[str, dict[str, str]] = {
    "Use a model": {
        "translate": "anydepth translate --depth 6-1 < in.txt > out.txt",
        "serve": "anydepth serve runs/mine --port 8080 --workers 2",
        "export": "anydepth export runs/mine --depth 6-2 --to ctranslate2 --quantize int8 --out exported",
        "classify": "anydepth classify runs/reviews < texts.txt > labels.tsv",
        "explain": 'anydepth explain runs/reviews "a truly terrible thriller" --html words.html',
        "shortlist": "anydepth shortlist runs/mine --source data/train.fr --target data/train.en",
        "info": "anydepth info runs/mine",
        "doctor": "anydepth doctor",
    },
    "Train a model": {
        "data": "anydepth data tatoeba-en-fr data",
        "train": "anydepth train recipes/quickstart.yaml --out runs/mine --set train.steps=5000",
        "import": "anydepth import Helsinki-NLP/opus-mt-fr-en --out opus",
        "distill": "anydepth distill runs/teacher --source data/train.fr --out data/distilled",
        "select": "anydepth select runs/mine --source more.fr --reference more.en",
        "plot": "anydepth plot runs/mine --out plots",
    },
    "Measure": {
        "sweep": "anydepth sweep runs/mine --source test.fr --reference test.en --out report",
        "calibrate": "anydepth calibrate runs/mine --source test.fr --reference test.en",
        "bench": "anydepth bench runs/mine --depths 6-6,6-1",
        "compare": "anydepth compare plain=runs/a,runs/b tied=runs/c,runs/d --source test.fr --reference test.en",
        "oracle": "anydepth oracle runs/mine --source test.fr --reference test.en --out report",
        "evaluate": "anydepth evaluate runs/reviews --test test.tsv --out report",
        "perplexity": "anydepth perplexity runs/encoder --text test.txt",
    },
    "Reference": {
        "depths": "anydepth depths 12 --strategy all",
        "maps": "anydepth maps 6 2",
        "schema": "anydepth schema > recipe.schema.json",
    },
}
GROUP, GROUP_HEADING = "word-depths", "Train a model"  # verbs of its own


def build_app(only: str | None = None) -> typer.Typer:
    """The command line with all verbs, or with this one: that imports less, and a start is sooner."""
    app = typer.Typer(
        add_completion=True,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        help="Train one Transformer, run it at any depth. A depth is written encoder-decoder: **6-2**.",
    )
    app.callback(invoke_without_command=True)(_version)
    for heading, verbs in VERBS.items():
        for name, example in verbs.items():
            if only in (None, name):
                file = f"{name}_" if iskeyword(name) else name
                verb = getattr(import_module(f"{__name__}.{file}"), file)
                app.command(name, rich_help_panel=heading, epilog=f"**Example:** `{example}`")(verb)
    if only in (None, GROUP):
        from anydepth.cli.word_depths import word_depths_app

        app.add_typer(word_depths_app, name=GROUP, rich_help_panel=GROUP_HEADING)
    return app


def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"anydepth {__version__}")
        raise typer.Exit


def hide_types_of_flags(command: Any) -> None:
    """A flag takes no value, but in the help typer 0.29 shows `<bool>` after it."""
    for option in (*command.params, command.get_help_option(typer.Context(command))):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for verb in getattr(command, "commands", {}).values():
        hide_types_of_flags(verb)


def main() -> None:
    # By default the threads of PyTorch spin while they wait for each other. When another program has one of their
    # cores, that costs more than all the rest: training all but stopped (docs/lab-notes.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # there are none, and looking for them takes a while
    if "TORCHELASTIC_RUN_ID" in os.environ:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # no stack of a process whose connection has been closed
    show_progress()
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    known = asked in (GROUP, "--version") or any(asked in verbs for verbs in VERBS.values())
    with one_line_errors():
        command = typer.main.get_command(build_app(asked if known else None))
        hide_types_of_flags(command)
        code = command.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever a user can mend becomes one line on standard error and exit code 2."""
    try:
        yield
    except UserError as error:
        _fail(_with_flags(str(error)), said_by_all=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone, as with `| head`
        sys.exit(141)
    except KeyboardInterrupt:
        stderr_console().print("interrupted")
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
        is_cut_off = type(error).__name__ in ("DistNetworkError", "DistStoreError")  # of torch, maybe not imported
        if is_cut_off and os.environ.get("RANK", "0") != "0":
            first_line = str(error).partition("\n")[0]
            _fail(f"the connection to process 0 is lost, which may have said why ({first_line})", said_by_all=True)
        if not hasattr(error, "format_message"):  # what click and typer's own copy of it have in common
            raise
        message = error.format_message()
        if not message:  # a bare `anydepth` has printed its help
            sys.exit(2)
        _fail(f"{message} (--help shows what there is)")


def _with_flags(message: str) -> str:
    """What the library says of its keyword arguments, `engine="torch"`, in the words of the command line."""
    return KEYWORDS.sub(lambda found: f"--{FLAGS[found[1]]}{f' {found[2]}' if found[2] else ''}", message)


def _fail(message: str, said_by_all: bool = False) -> NoReturn:
    """Of several processes that train together and all find the same wrong, the first one on a machine says so, and
    torchrun ends the others before they do."""
    together = "TORCHELASTIC_RUN_ID" in os.environ
    rank = os.environ.get("RANK", "0") if together else "0"
    if together and said_by_all and os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(SECONDS_TO_BE_ENDED)
    stderr_console().print(f"anydepth: {'' if rank == '0' else f'process {rank}: '}{' '.join(message.split())}")
    sys.exit(2)

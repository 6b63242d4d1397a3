"""The one place that turns errors into a line and an exit code."""

import errno
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from anydepth.cli.app import errors
from anydepth.errors import UserError

SECONDS_TO_BE_ENDED = 5
FLAGS = {  # of the keyword arguments that messages of the library name
    **{name: name for name in ("engine", "quantize", "device", "speculate", "shortlist")},
    "cut_long": "cut-long",
    "source_language": "from",
    "target_language": "to",
}
KEYWORDS = re.compile(rf'\b({"|".join(FLAGS)})=(?:True|"([^"]*)")')
OUT_OF_MEMORY = "out of memory: use a smaller batch (--batch-size, train.batch_tokens) or a smaller model"


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever a user can mend becomes one line on standard error and exit code 2."""
    try:
        yield
    except UserError as error:
        _fail(with_flags(str(error)), said_by_all=True)
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


def with_flags(message: str) -> str:
    """What the library says of its keyword arguments, `engine="torch"`, in the words of the command line."""
    return KEYWORDS.sub(lambda found: f"--{FLAGS[found[1]]}{f' {found[2]}' if found[2] else ''}", message)


def _fail(message: str, said_by_all: bool = False) -> NoReturn:
    """Of several processes that train together and all find the same wrong, the first one on a machine says so, and
    torchrun ends the others before they do."""
    together = "TORCHELASTIC_RUN_ID" in os.environ
    rank = os.environ.get("RANK", "0") if together else "0"
    if together and said_by_all and os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(SECONDS_TO_BE_ENDED)
    errors.print(f"anydepth: {'' if rank == '0' else f'process {rank}: '}{' '.join(message.split())}")
    sys.exit(2)

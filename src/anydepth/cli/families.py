"""What verbs that evaluate have in common: models and families of models as arguments, and where results go."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from anydepth.cli.app import load_translator
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.translator import Translator

PIPED_WIDTH = 1000  # in a file or a pipe no table need be cut


def load_families(
    arguments: Sequence[str],
    device: str,
    threads: int | None,
    source: str | None = None,
    target: str | None = None,
    **engine: Any,
) -> "dict[str, list[Translator]]":
    """Each model for the language pair that is wanted of all of them; `engine` as `load_translator` takes it."""
    return {
        label: [load_translator(path, device, threads, source, target, **engine) for path in paths]
        for label, paths in families(arguments).items()
    }


def families(arguments: Sequence[str]) -> dict[str, list[Path]]:
    """The folders under each label, from arguments such as runs/flexible or individual=runs/1-1,runs/2-2."""
    from anydepth.artifact.model import short_name

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


def results() -> Console:
    """Standard output, for tables."""
    return Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)

"""Verbs that measure."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anydepth.cli.app import BatchSize, Beam, CutLong, Device, LengthPenalty, Threads, errors, load_translator
from anydepth.depth.assignment import STRATEGIES
from anydepth.errors import UserError

PIPED_WIDTH = 1000  # in a file or a pipe no table need be cut


def sweep(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One or more models; several are compared cell by cell. NAME=PATH names one, and NAME=PATH,PATH,... "
            "takes several together, such as a model trained for each depth.",
            show_default=False,
        ),
    ],
    source: Annotated[Path, typer.Option(help="Source sentences, one per line.", show_default=False)],
    reference: Annotated[Path, typer.Option(help="Their translations, line by line.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the report.", show_default=False)],
    depths: Annotated[
        str | None, typer.Option(help="Only these, such as 6-6,6-2.  [default: all]", show_default=False)
    ] = None,
    force: Annotated[
        str | None,
        typer.Option(
            help=f"Measure at the depths of this strategy ({', '.join(STRATEGIES)}) instead of the model's own.",
            show_default=False,
        ),
    ] = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes over all depths; the median counts.")] = 1,
    samples: Annotated[int, typer.Option(min=1, help="Samples of the paired bootstrap between models.")] = 1000,
    cut_long: CutLong = False,
    record: Annotated[
        bool, typer.Option(help="Put the figures into the depth menu and the card of each model.")
    ] = True,
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
    translators = {
        label: [load_translator(path, device, threads) for path in paths] for label, paths in families(models).items()
    }
    result = run_sweep(
        translators,
        sources,
        references,
        depths=None if depths is None else [depth.strip() for depth in depths.split(",")],
        force=force,
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
    print_table(result, Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH))
    for label, members in translators.items() if record else ():
        for member in members:
            if remember(member, result, label, console=errors):
                errors.print(f"recorded in the menu and the card of {member.folder}")
    page = write_report(result, out)
    errors.print(f"report: {page}")


def _make_folder(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "sweep.json").exists():
        raise UserError(f"{folder} is not empty and not a report: give another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error


def families(arguments: Sequence[str]) -> dict[str, list[Path]]:
    """The folders under each label, from arguments such as runs/flexible or individual=runs/1-1,runs/2-2."""
    read = [_family(argument) for argument in arguments]
    names = [name or _short_name(paths[0]) for name, paths in read]
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


def _short_name(model: Path) -> str:
    """The folder's name; for the model of a run, the run's."""
    path = model.resolve()
    return path.parent.name if path.name == "model" else path.name

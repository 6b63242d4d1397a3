"""Verbs that lead to a model: data, train."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.app import errors


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


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/quickstart.yaml.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder of the run; the model will be in OUT/model.", show_default=False)],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe; may be repeated."),
    ] = None,
) -> None:
    """Train a model. The same command again resumes exactly where the run stopped, killed or not."""
    from anydepth.recipe import train as carry_out
    from anydepth.recipe_file import read_recipe

    carry_out(read_recipe(recipe, set_ or []), out, errors)

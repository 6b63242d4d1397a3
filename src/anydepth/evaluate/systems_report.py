"""A comparison as a folder to keep: a page that needs nothing else, the picture, the figures, every translation."""

import json
from pathlib import Path

from anydepth.errors import UserError
from anydepth.evaluate.kept_outputs import KeptOutputs
from anydepth.evaluate.page import render_page
from anydepth.evaluate.systems_plot import draw_differences
from anydepth.evaluate.systems_result import SystemsResult
from anydepth.evaluate.systems_table import FIRST_COLUMN, columns, row_of_model, row_of_system
from anydepth.files import write_atomically

PICTURE = "differences.png"


def write_systems_report(result: SystemsResult, folder: Path) -> Path:
    """Write index.html, compare.json, the picture and outputs/ into `folder`; return the page's path."""
    pictures = {PICTURE: draw_differences(result)}
    page = folder / "index.html"
    try:
        kept = KeptOutputs(folder)
        for model in result.models:
            kept.keep(model.file, model.made_by, model.outputs)
        write_atomically(folder / PICTURE, pictures[PICTURE])
        content = json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(folder / "compare.json", content + "\n")
        write_atomically(page, render(result, pictures))
        kept.forget_all_but([model.file for model in result.models])
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return page


def render(result: SystemsResult, pictures: dict[str, bytes]) -> str:
    return render_page(
        "systems.html.j2",
        pictures,
        result=result,
        conditions=result.conditions,
        headers=[FIRST_COLUMN, *columns(result)],
        rows=[
            {
                "system": system,
                "cells": row_of_system(system, result),
                "models": [(model.name, row_of_model(model)) for model in system.models],
            }
            for system in result.systems
        ],
        picture=PICTURE,
    )

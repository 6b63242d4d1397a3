"""A comparison as a folder to keep: a page that needs nothing else, the picture, the figures, every translation."""

import json
from pathlib import Path

from anydepth.errors import UserError
from anydepth.evaluate.kept_outputs import FOLDER, RECORD, digest_of, files_in, path_of, text_of
from anydepth.evaluate.page import file_stems, render_page
from anydepth.evaluate.systems_plot import draw_differences
from anydepth.evaluate.systems_result import SystemsResult
from anydepth.evaluate.systems_table import FIRST_COLUMN, columns, row_of_model, row_of_system
from anydepth.files import write_atomically

PICTURE = "differences.png"


def write_systems_report(result: SystemsResult, folder: Path) -> Path:
    """Write index.html, compare.json, the picture and outputs/ into `folder`; return the page's path."""
    files = files_of(result)
    pictures = {PICTURE: draw_differences(result)}
    page = folder / "index.html"
    try:
        old = {path_of(folder, file["file"]) for file in files_in(folder)}
        new = _write_outputs(result, files, folder)
        write_atomically(folder / PICTURE, pictures[PICTURE])
        content = json.dumps(result.to_json(files), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(folder / RECORD, content + "\n")
        write_atomically(page, render(result, pictures))
        for path in old - new:  # of a comparison with other models
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return page


def files_of(result: SystemsResult) -> dict[str, list[dict[str, str]]]:
    """The file of each model's outputs, what it was made by, and its checksum; models are numbered in their system."""
    stems = file_stems(result.labels)
    return {
        system.label: [
            {
                "file": f"{FOLDER}/{stems[system.label]}.{number}.txt",
                "made_by": model.made_by,
                "sha256": digest_of(text_of(model.outputs)),
            }
            for number, model in enumerate(system.models, 1)
        ]
        for system in result.systems
    }


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


def _write_outputs(result: SystemsResult, files: dict[str, list[dict[str, str]]], folder: Path) -> set[Path]:
    written = set()
    for system in result.systems:
        for model, file in zip(system.models, files[system.label], strict=True):
            path = path_of(folder, file["file"])
            write_atomically(path, text_of(model.outputs))
            written.add(path)
    return written

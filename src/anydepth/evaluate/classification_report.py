"""An evaluation as a folder to keep: a page that needs nothing else, the pictures and all figures."""

import json
from pathlib import Path

from anydepth.errors import UserError
from anydepth.evaluate.classification_plot import draw_accuracy, draw_speed
from anydepth.evaluate.classification_result import Evaluation, System
from anydepth.evaluate.classification_table import (
    curve_columns,
    curve_row,
    legend,
    quality_columns,
    quality_rows,
    time_columns,
    time_rows,
)
from anydepth.evaluate.explained import colours
from anydepth.evaluate.page import render_page
from anydepth.files import write_atomically

RECORD, PAGE = "evaluation.json", "index.html"
ACCURACY, SPEED = "accuracy-depth.png", "speed-batch.png"
SIZES_OF_A_LINE = 3  # two points make no picture
LARGEST_MATRIX = 8  # labels; of more, the page shows how many of each were found


def write_evaluation(evaluation: Evaluation, folder: Path) -> Path:
    """Write index.html, evaluation.json and the pictures into `folder`; return the page's path."""
    pictures = {ACCURACY: draw_accuracy(evaluation)}
    if len(evaluation.conditions.batch_sizes) >= SIZES_OF_A_LINE:
        pictures[SPEED] = draw_speed(evaluation)
    content = json.dumps(evaluation.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    try:
        (folder / SPEED).unlink(missing_ok=True)  # of an evaluation before this one
        for name, png in pictures.items():
            write_atomically(folder / name, png)
        write_atomically(folder / RECORD, content + "\n")
        write_atomically(folder / PAGE, render(evaluation, pictures))
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return folder / PAGE


def render(evaluation: Evaluation, pictures: dict[str, bytes]) -> str:
    sizes = evaluation.conditions.batch_sizes
    quality, times = quality_rows(evaluation), time_rows(evaluation)
    small = len(evaluation.labels) <= LARGEST_MATRIX
    return render_page(
        "classification.html.j2",
        pictures,
        evaluation=evaluation,
        conditions=evaluation.conditions,
        best=_shown(evaluation),
        headers=["system", *quality_columns(evaluation), *time_columns(evaluation)],
        rows=[(one.name, one.cells + other.cells, one.is_main) for one, other in zip(quality, times, strict=True)],
        marked=any(not one.is_main for one in quality),
        curve_headers=["", *curve_columns(evaluation)],
        curves={
            system.label: [(point.setting.name, curve_row(point, sizes)) for point in system.points]
            for system in evaluation.systems
            if system.curve
        },
        legend=legend(evaluation),
        matrices={system.label: _matrix(system, evaluation.labels) for system in evaluation.systems} if small else {},
        colours=colours(max((one.layers for _, one in evaluation.mistakes), default=1)),
        accuracy_picture=ACCURACY,
        speed_picture=SPEED,
    )


def _shown(evaluation: Evaluation) -> System | None:
    """The system with depths of words that the tiles on top tell of: the most accurate."""
    others = [one for one in evaluation.systems if one.main.share.mean < 1]
    return max(others, key=lambda one: one.main.accuracy.mean, default=None)


def _matrix(system: System, labels: tuple[str, ...]) -> list[tuple[str, list[int], float | None]]:
    """For each true label how many texts were found to be what, and the share that was right."""
    return [
        (true, [system.confusion.get((true, found), 0) for found in labels], system.right_of(true)) for true in labels
    ]

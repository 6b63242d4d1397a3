"""`anydepth maps`: shows which teacher layers each layer of a student can learn from."""

import shutil
import sys
from typing import Annotated

import typer

from anydepth.depth.drawing import draw_maps, marks_for


def maps(
    teacher: Annotated[
        int, typer.Argument(metavar="T", min=1, max=1000, help="How many layers the teacher has.", show_default=False)
    ],
    student: Annotated[
        int, typer.Argument(metavar="S", min=1, max=1000, help="How many layers the student has.", show_default=False)
    ],
) -> None:
    """Show which layers of a T-layer teacher each layer of an S-layer student can learn from (Wu et al. 2020)."""
    width = shutil.get_terminal_size((80, 24)).columns
    print("\n".join(draw_maps(teacher, student, width, marks_for(sys.stdout.encoding))))

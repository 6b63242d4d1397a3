"""`anydepth maps`: shows which teacher layers each layer of a student can learn from."""

import shutil
import sys
from typing import Annotated

import typer

from anydepth.depth.drawing import draw_maps, marks_for


def maps(
    teacher: Annotated[
        int, typer.Argument(metavar="T", min=1, max=1000, help="Number of layers of the teacher.", show_default=False)
    ],
    student: Annotated[
        int, typer.Argument(metavar="S", min=1, max=1000, help="Number of layers of the student.", show_default=False)
    ],
) -> None:
    """Show the layer mappings from a T-layer teacher to an S-layer student (Wu et al. 2020)."""
    width = shutil.get_terminal_size((80, 24)).columns
    print("\n".join(draw_maps(teacher, student, width, marks_for(sys.stdout.encoding))))

"""`anydepth depths`: shows which layers make up each depth."""

import shutil
import sys
from typing import Annotated

import typer

from anydepth.cli.options import stderr
from anydepth.depth.assignment import STRATEGIES, Assignment, assign, prime_warning
from anydepth.depth.drawing import Marks, draw, draw_small, marks_for, side_by_side
from anydepth.errors import UserError

ALL = "all"
TASK_BALANCE = "task balance, lower is better"
LAYER_DISTANCE = "average layer distance, higher is better"


def depths(
    layers: Annotated[
        int, typer.Argument(metavar="D", min=1, max=1000, help="Number of layers of the stack.", show_default=False)
    ],
    strategy: Annotated[str, typer.Option(help=f"{', '.join(STRATEGIES)}, or {ALL} to compare them.")] = "optimal",
) -> None:
    """Show the layers of each depth, for a stack of D layers trained for all depths that divide D."""
    width, marks = shutil.get_terminal_size((80, 24)).columns, marks_for(sys.stdout.encoding)
    if strategy not in (*STRATEGIES, ALL):
        raise UserError(f"there is no strategy {strategy!r}: choose from {', '.join((*STRATEGIES, ALL))}")
    if strategy == ALL:
        lines = _compared([assign(name, layers) for name in STRATEGIES], width, marks)
    else:
        lines = _drawn(assign(strategy, layers), width, marks)
    if warning := prime_warning(layers):
        stderr.print(f"warning: {warning}")
    print("\n".join(lines))


def _drawn(assignment: Assignment, width: int, marks: Marks) -> list[str]:
    return [
        *draw(assignment, width, marks),
        "",
        f"TB  {assignment.task_balance:.2f}  {TASK_BALANCE}",
        f"ALD {assignment.average_layer_distance:.2f}  {LAYER_DISTANCE}",
    ]


def _compared(assignments: list[Assignment], width: int, marks: Marks) -> list[str]:
    table = [f"{one.strategy:<12}{one.task_balance:>6.2f}{one.average_layer_distance:>8.2f}" for one in assignments]
    meanings = f"TB: {TASK_BALANCE}; ALD: {LAYER_DISTANCE}"
    drawings = side_by_side([draw_small(one, width, marks) for one in assignments], width)
    return [f"{'strategy':<12}{'TB':>6}{'ALD':>8}", *table, "", meanings, "", *drawings]

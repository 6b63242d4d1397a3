"""The picture of a comparison: how far each way of training is from the baseline, and how sure that is."""

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anydepth.evaluate.figures import SERIES
from anydepth.evaluate.heat_maps import INK, new_figure, png_of
from anydepth.evaluate.systems_result import System, SystemsResult

COLOUR, SEED_COLOUR = SERIES[0], SERIES[1]
BELOW = 0.22  # of the distance of two rows: where the seeds are, so that they do not hide the interval
LONGEST_NAME, WIDEST_LABEL = 28, 80  # letters in a line


def draw_differences(result: SystemsResult) -> bytes:
    """A row for each system, the baseline on top: a dot at the difference, its interval, a small dot for each seed."""
    figure = new_figure(8.0, 1.7 + 0.55 * len(result.systems))
    axes = figure.subplots()
    axes.axvline(0, color=INK, linewidth=1.0, zorder=1)
    for row, system in enumerate(result.systems):
        _draw_system(axes, row, system)
        if len(system.models) > 1:
            seeds = result.differences_of_seeds(system)
            axes.scatter(seeds, [row + BELOW] * len(seeds), s=16, color=SEED_COLOUR, linewidths=0, zorder=3)
    names = [textwrap.fill(label, LONGEST_NAME) for label in result.labels]
    axes.set_yticks(range(len(names)), names, color=INK, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    across = textwrap.fill(f"BLEU minus that of {result.baseline.label}, higher is better", WIDEST_LABEL)
    axes.set_xlabel(across, color=INK, parse_math=False)
    axes.margins(x=0.06)
    axes.grid(axis="x", color="#d9dde2", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(handles=_legend(result), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return png_of(figure)


def _draw_system(axes: Axes, row: int, system: System) -> None:
    difference = system.difference
    if difference is None:
        axes.plot([0], [row], "D", color=INK, markersize=6, zorder=4)
        return
    axes.plot([difference.low, difference.high], [row, row], "-|", color=COLOUR, linewidth=1.8, markersize=9, zorder=3)
    face = COLOUR if difference.is_clear else "white"
    axes.plot([difference.bleu], [row], "o", color=COLOUR, markerfacecolor=face, markersize=8, zorder=4)


def _legend(result: SystemsResult) -> list[Line2D]:
    clear = {system.difference.is_clear for system in result.systems if system.difference}
    handles = []
    if True in clear:
        handles.append(_handle("difference with its 95% interval", COLOUR))
    if False in clear:
        handles.append(_handle("difference, 0 within its 95% interval", COLOUR, markerfacecolor="white"))
    if result.has_seeds:
        handles.append(_handle("one seed", SEED_COLOUR, linestyle="", markersize=4))
    return handles


def _handle(label: str, colour: str, **look: Any) -> Line2D:
    return Line2D([], [], label=label, color=colour, **{"marker": "o", "markersize": 8, **look})

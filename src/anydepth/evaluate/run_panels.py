"""Panels of runs beside each other: a column for each run, a row for each part of the model, one colour scale."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from anydepth.evaluate.heat_maps import INK, WIDEST, Grid, new_figure
from anydepth.evaluate.training_run import LayersOverSteps

NOTHING = "#c9ced4"  # no value: a layer that no gradient reached, or one that is not finite
LARGEST_RATIO = 1e4  # on a log scale: what is less, such as the gradient behind a closed gate, is nothing
WIDEST_PANEL = 5.5  # inches
BAR_WIDTH = 0.2  # inches
LETTERS_PER_INCH, LETTERS_IN_LEGEND = 11, 60
CELLS_WITH_GAPS = 40


class Panels:
    """A figure with a grid of axes, each found by its row and its column; those that are not asked for stay empty."""

    def __init__(self, heights: Mapping[str, float], labels: Sequence[str]) -> None:
        self.width = min(WIDEST_PANEL, WIDEST / len(labels))
        self.figure: Figure = new_figure(self.width * len(labels), sum(heights.values()) + 0.6)
        grid = self.figure.subplots(
            len(heights), len(labels), squeeze=False, gridspec_kw={"height_ratios": list(heights.values())}
        )
        self._axes = {(row, label): grid[i, j] for i, row in enumerate(heights) for j, label in enumerate(labels)}
        self._used: list[Axes] = []

    def at(self, row: str, label: str, title: str) -> Axes:
        axes: Axes = self._axes[row, label]
        self._used.append(axes)
        axes.set_title(self.wrapped(title), fontsize=10, color=INK, parse_math=False)
        return axes

    def wrapped(self, text: str) -> str:
        letters = int(LETTERS_PER_INCH * (self.width - 0.6))
        return "\n".join(textwrap.fill(shortened(line, 2 * letters), letters) for line in text.splitlines())

    def hide_unused(self) -> list[Axes]:
        for axes in self._axes.values():
            axes.set_visible(axes in self._used)
        return self._used


def draw_over_steps(axes: Axes, values: LayersOverSteps, norm: Normalize, cmap: str, last_step: int) -> None:
    """Steps across, layers up, the lowest at the bottom."""
    first = 2 * values.steps[0] - values.steps[1] if len(values.steps) > 1 else 0
    edges = [max(0, first), *values.steps]
    layers = np.arange(values.layers + 1) + 0.5
    axes.pcolormesh(edges, layers, values.grid, norm=norm, cmap=cmap)
    axes.set_facecolor(NOTHING)
    axes.axvspan(edges[-1], max(last_step, edges[-1]), color="white", linewidth=0)
    axes.set_xlim(0, last_step)
    axes.set_yticks(ticks_of(values.layers))
    axes.set_ylabel("layer", color=INK)
    steps_across(axes)
    _bare(axes)


def draw_rows(axes: Axes, grid: Grid, names: Sequence[str], norm: Normalize, cmap: str, group: int = 0) -> None:
    """Layers across, a row for each name, the first on top; a line after each `group` of rows."""
    rows, layers = grid.shape
    has_gaps = layers <= CELLS_WITH_GAPS and rows <= CELLS_WITH_GAPS
    gaps: dict[str, Any] = {"edgecolors": "white", "linewidth": 0.6} if has_gaps else {}
    axes.pcolormesh(np.arange(layers + 1) + 0.5, np.arange(rows + 1) - 0.5, grid, norm=norm, cmap=cmap, **gaps)
    for place in range(group, rows, group) if group > 1 else ():
        axes.axhline(place - 0.5, color=INK, linewidth=1.0)
    axes.set_facecolor(NOTHING)
    axes.invert_yaxis()
    axes.set_xticks(ticks_of(layers))
    axes.set_yticks(range(rows), names, parse_math=False)
    axes.set_xlabel("layer", color=INK)
    _bare(axes)


def colour_bar(figure: Figure, panels: Sequence[Axes], norm: Normalize, cmap: str, title: str) -> None:
    slim = 0.9 * figure.get_figheight() / BAR_WIDTH
    bar = figure.colorbar(ScalarMappable(norm, cmap), ax=list(panels), shrink=0.9, aspect=slim, pad=0.02)
    bar.outline.set_visible(False)
    if isinstance(norm, LogNorm) and norm.vmin and norm.vmax:
        ticks = log_ticks(norm.vmin, norm.vmax)
        bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
        bar.minorticks_off()
    figure.suptitle(title, fontsize=12, color=INK)


def log_scale(grids: Iterable[Grid]) -> LogNorm:
    """Around nearly all of the values: a single explosion must not hide everything else."""
    values = np.concatenate([grid.ravel() for grid in grids])
    values = values[values > 0]  # which NaN is not
    if not len(values):
        return LogNorm(0.1, 1.0)
    low, high = (float(value) for value in np.percentile(values, [1, 99], method="nearest"))
    low = max(low, high / LARGEST_RATIO)
    return LogNorm(low, high) if high > 1.01 * low else LogNorm(low / 2, high * 2)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, at most eight or so; the two themselves where there are no such between them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = last - first
    digits: tuple[float, ...] = (1,)
    if decades <= 3:
        digits = (1, 2, 5) if high / low > 5 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    every = range(first, last + 1, max(1, math.ceil(decades / 8)))
    found = [digit * 10.0**power for power in every for digit in digits if low <= digit * 10.0**power <= high]
    return found if len(found) > 1 else [low, high]


def ticks_of(layers: int) -> list[int]:
    every = next(size for size in (1, 2, 3, 4, 5, 10, 20, 25, 50, layers) if layers <= 7 * size or size == layers)
    multiples = list(range(every, layers + 1, every))
    return multiples if every <= 2 else [1, *multiples]


def steps_across(axes: Axes) -> None:
    axes.set_xlabel("step", color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def legend(figure: Figure, entries: Mapping[str, Line2D], columns: int) -> None:
    """Below the panels. The texts are set last: a label may begin with _ or have a $, which mean something else."""
    drawn = figure.legend(
        handles=list(entries.values()),
        labels=["-"] * len(entries),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )
    for text, label in zip(drawn.get_texts(), entries, strict=True):
        text.set_parse_math(False)
        text.set_text(shortened(label, LETTERS_IN_LEGEND))


def shortened(text: str, letters: int) -> str:
    """Without its middle, if it is longer: the end says what is special."""
    text = " ".join(text.split())
    return text if len(text) <= letters else f"{text[: letters // 2]}…{text[-(letters // 2 - 1) :]}"


def line(colour: str, **look: Any) -> Line2D:
    return Line2D([], [], color=colour, **{"linewidth": 1.6, **look})


def plain_axes(axes: Axes) -> None:
    axes.grid(color="#d9dde2", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _bare(axes: Axes) -> None:
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)

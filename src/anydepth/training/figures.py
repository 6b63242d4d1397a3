"""Charts of trainings: gradient norms and gates of each layer, losses, effective depth (Li et al. 2020).

Runs stand beside each other, a column for each, or share an axis, a colour for each.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from anydepth.evaluate.figures import INK, PAPER, SERIES, legend_below, series_style, shortened, tip_points, with_tip
from anydepth.evaluate.report import Figure
from anydepth.training.run_log import LayerGrid, LayersOverSteps, StepCurve, TrainingRun, in_order

WIDEST, WIDEST_PANEL, BAR_WIDTH = 12.5, 5.5, 0.2  # inches
LETTERS_PER_INCH = 11
BOTTOM_LAYERS = (1, 2, 4)  # those of the paper's Figure 2
MOST_COLUMNS = 150  # of a map over steps: no more than it has pixels
MOST_POINTS = 60  # of a curve of gradient norms, which is rough
MOST_TIPS = 12  # along the steps; a tip over a map says a mean over the neighbours
CELLS_WITH_GAPS = 40
LARGEST_RATIO = 1e4  # on a log scale: what is less, such as the gradient behind a closed gate, is nothing
GRADIENT_COLOURS, GATE_COLOURS = "viridis", "Blues"  # light is skipped, dark is selected
NOTHING = "#c9ced4"  # no value: a layer that no gradient reached, or one that is not finite
FROM_0_TO_1 = Normalize(0.0, 1.0)
STYLES = ("-", "--", ":", "-.")

Finish = Callable[[Canvas, Sequence[Axes]], None]
Curve = tuple[str, StepCurve, dict[str, Any]]  # what tips call it, and its look


@dataclass(frozen=True)
class Panel:
    """A chart among others: runs stand beside each other, and rows of one name below each other."""

    row: str
    run: str
    title: str
    height: float  # inches
    paint: Callable[[Axes], None]


def gradient_maps(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 2, with all layers: a panel for each stack and run."""
    stacks = [(run, side, norms) for run in runs for side, norms in run.gradients().items()]
    stacks.sort(key=lambda one: one[1] == "decoder")  # in the order in which data flows
    found = [(run, side, norms.thinned(MOST_COLUMNS, geometric=True)) for run, side, norms in stacks]
    norm = log_scale(norms.grid for _, _, norms in found)
    return _maps_over_steps("gradients", "Gradient norm of each layer", found, norm, GRADIENT_COLOURS)


def utilisation_maps(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 5: how much each layer is used, the mean over language pairs."""
    found = [(run, side, run.utilisation(side).thinned(MOST_COLUMNS)) for side, run in _gated(runs)]
    return _maps_over_steps("utilisation", "Utilisation u of each layer", found, FROM_0_TO_1, GATE_COLOURS)


def sample_maps(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figures 4 and 8: the last samples, layers across and language pairs down, and the probabilities below."""
    panels = []
    for side, run in _gated(runs):
        for kind, rows in run.last_gates(side).items():
            title, height = f"{run.label}\n{side}, {kind}", 0.95 + min(0.22 * len(rows), 5.0)
            paint = _rows_painter(np.array(list(rows.values())), list(rows))
            panels.append(Panel(f"{side} {kind.partition(',')[0]}", run.label, title, height, paint))
    title = "Which layers are selected (in brackets: how many)"
    return _figure("samples", title, panels, _colour_bar(FROM_0_TO_1, GATE_COLOURS, title))


def sample_history(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 7: samples at a few moments of the training; with a K they become 0 or 1."""
    panels = []
    for side, run in _gated(runs):
        names, rows = zip(*run.history(side), strict=True)
        paint = _rows_painter(np.array(rows), names, group=run.pairs(side))
        panels.append(Panel(side, run.label, f"{run.label}\n{side}", 0.95 + min(0.2 * len(names), 6.0), paint))
    title = "Samples z in the course of training"
    return _figure("samples-over-training", title, panels, _colour_bar(FROM_0_TO_1, GATE_COLOURS, title))


def bottom_gradients(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 2: what reaches the lowest layers of the decoder, or of the encoder where there is no decoder."""
    title, panels = "Gradient norm of the lowest layers", []
    runs = [run for run in runs if run.gradients()]
    end = 1.02 * max((run.last_step for run in runs), default=0)
    looks: list[Any] = [{"color": SERIES[place], "linestyle": STYLES[place]} for place in range(len(BOTTOM_LAYERS))]
    entries: dict[str, Artist] = {}
    for run in runs:
        side, norms = list(run.gradients().items())[-1]
        stack, curves = norms.thinned(MOST_POINTS, geometric=True), []
        for layer, look in zip(BOTTOM_LAYERS, looks, strict=True):
            if layer <= stack.layers:
                points = zip(stack.steps, stack.grid[layer - 1].tolist(), strict=True)
                curves.append((f"{run.label}, layer {layer}", StepCurve.of(points), look))
                entries[f"layer {layer}"] = Line2D(
                    [], [], color=look["color"], linestyle=look["linestyle"], linewidth=1.6
                )
        panels.append(Panel("", run.label, f"{run.headline}\n{side}", 3.4, partial(_paint_curves, curves, end)))

    def finish(canvas: Canvas, used: Sequence[Axes]) -> None:
        for axes in used:
            axes.set_yscale("log")
        low, high = min(axes.get_ylim()[0] for axes in used), max(axes.get_ylim()[1] for axes in used)
        low = max(low, high / LARGEST_RATIO)
        ticks = log_ticks(low, high)
        for axes in used:
            axes.set_ylim(low, high)
            axes.set_yticks(ticks, [f"{tick:.2g}" for tick in ticks])
            axes.minorticks_off()
        legend_below(canvas, entries)
        canvas.suptitle(title, fontsize=12)

    return _figure("gradients-bottom", title, panels, finish)


def loss_curves(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 3: training and validation beside each other on one scale; a cross where a run diverged."""
    end = 1.02 * max(run.end for run in runs)
    curves: dict[str, list[Curve]] = {"training": [], "validation": []}
    entries: dict[str, Artist] = {}
    for place, run in enumerate(runs):
        look = series_style(place)
        curves["training"].append((run.label, run.curve(run.loss_name), {"color": look["color"]}))
        if not run.validation():
            entries[run.label] = Line2D([], [], **look)
        for (depth, curve), style in zip(run.validation().items(), STYLES, strict=False):
            styled = {**look, "linestyle": style, "markersize": 5}
            curves["validation"].append((f"{run.label} {depth}".strip(), curve, styled))
            entries[f"{run.label}, validation {depth}" if depth else run.label] = Line2D([], [], **styled)
        if run.diverged:
            cross: dict[str, Any] = {**look, "marker": "X", "markersize": 9, "linestyle": ""}
            entries[f"{run.label}, {run.diverged}"] = Line2D([], [], **cross)

    values = [value for found in curves.values() for _, curve, _ in found for value in curve.values]
    firsts = [curve.values[0] for _, curve, _ in curves["training"] if curve.values]

    def finish(canvas: Canvas, used: Sequence[Axes]) -> None:
        # A loss that explodes must not flatten the others: it leaves the chart at its top.
        low, high = (min(values), min(max(values), 1.25 * max(firsts))) if firsts else (0.0, 1.0)
        room = 0.05 * (high - low) or 0.5
        low, high = low - room, high + room
        for axes in used:
            axes.set_ylim(low, high)
        used[0].set_ylabel({"nll": "NLL per token", "loss": "loss"}[runs[0].loss_name])
        for run, (_, curve, look) in zip(runs, curves["training"], strict=True):
            if run.diverged:  # at the last loss there is, at the edge if that is outside
                at = min(max(curve.values[-1], low), high) if curve.values else high
                cross = {"markersize": 11, "markeredgecolor": PAPER, "clip_on": False, "zorder": 5, **look}
                used[0].plot([run.diverged.step], [at], "X", **cross)
        legend_below(canvas, entries, 2)

    shown = {name: found for name, found in curves.items() if found}
    panels = [Panel("", name, name, 3.8, partial(_paint_curves, found, end)) for name, found in shown.items()]
    return _figure("loss", "Loss", panels, finish)


def depth_curves(runs: Sequence[TrainingRun]) -> Figure | None:
    """Effective depth of each stack, expected and selected, and the KL: what the gates settle at."""
    gated = [(run, {"color": SERIES[place]}) for place, run in enumerate(runs) if run.has_gates]
    curves: dict[str, list[Curve]] = {}
    for side in in_order(side for run, _ in gated for side in run.gated_sides):
        curves[f"layers of the {side}"] = [
            *((run.label, run.curve(f"depth/{side}"), look) for run, look in gated),
            *((f"{run.label} selected", run.selected(side), {**look, "linestyle": "--"}) for run, look in gated),
        ]
    curves["KL"] = [(run.label, run.kl(), look) for run, look in gated]

    def paint(found: Sequence[Curve], axes: Axes) -> None:
        _paint_curves(found, None, axes)
        values = [0.0, *(value for _, curve, _ in found for value in curve.values)]
        room = 0.06 * (max(values) - min(values)) or 0.5  # a curve along the frame is hard to see
        axes.set_ylim(min(values) - room, max(values) + room)

    def finish(canvas: Canvas, used: Sequence[Axes]) -> None:
        entries: dict[str, Artist] = {run.label: Line2D([], [], color=look["color"]) for run, look in gated}
        entries["expected: the sum of the probabilities"] = Line2D([], [], color=INK)
        entries["selected"] = Line2D([], [], color=INK, linestyle="--")
        legend_below(canvas, entries)

    shown = {name: found for name, found in curves.items() if any(curve.steps for _, curve, _ in found)}
    panels = [Panel("", name, name, 3.2, partial(paint, found)) for name, found in shown.items()]
    return _figure("depth", "Effective depth", panels, finish)


def log_scale(grids: Iterable[LayerGrid]) -> LogNorm:
    """Around nearly all of the values: a single explosion must not hide everything else."""
    values = np.concatenate([np.empty(0), *(grid.ravel() for grid in grids)])
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


def layer_ticks(layers: int) -> list[int]:
    every = next(size for size in (1, 2, 3, 4, 5, 10, 20, 25, 50, layers) if layers <= 7 * size or size == layers)
    multiples = list(range(every, layers + 1, every))
    return multiples if every <= 2 else [1, *multiples]


def _figure(name: str, title: str, panels: Sequence[Panel], finish: Finish) -> Figure | None:
    """A column for each run, a row for each name of rows; `finish` gets the axes of the panels."""
    if not panels:
        return None
    rows, labels = (list(dict.fromkeys(names)) for names in zip(*((one.row, one.run) for one in panels), strict=True))
    heights = [max(panel.height for panel in panels if panel.row == row) for row in rows]
    width = min(WIDEST_PANEL, WIDEST / len(labels))
    letters = int(LETTERS_PER_INCH * (width - 0.6))

    def drawing(canvas: Canvas) -> None:
        grid = canvas.subplots(len(rows), len(labels), squeeze=False, gridspec_kw={"height_ratios": heights})
        places = {(panel.row, panel.run): panel for panel in panels}
        used = []
        for axes, place in zip(grid.flat, product(rows, labels), strict=True):
            axes.set_visible(place in places)
            if place in places:
                lines = places[place].title.splitlines()
                filled = (textwrap.fill(shortened(line, 2 * letters), letters) for line in lines)
                axes.set_title("\n".join(filled), fontsize=10)
                places[place].paint(axes)
                used.append(axes)
        finish(canvas, used)

    size = max(width * len(labels), 4.2), sum(heights) + 0.6
    return Figure(name, title, drawing, size=size, scroll=len(labels) > 1)


def _maps_over_steps(
    name: str, title: str, found: Sequence[tuple[TrainingRun, str, LayersOverSteps]], norm: Normalize, cmap: str
) -> Figure | None:
    """Steps across, layers up, the lowest at the bottom."""
    last_step = max((run.last_step for run, _, _ in found), default=0)

    def paint(values: LayersOverSteps, axes: Axes) -> None:
        first = 2 * values.steps[0] - values.steps[1] if len(values.steps) > 1 else 0
        edges = [max(0, first), *values.steps]
        _paint_cells(axes, edges, np.arange(values.layers + 1) + 0.5, values.grid, norm, cmap)
        axes.axvspan(edges[-1], max(last_step, edges[-1]), color=PAPER, linewidth=0)
        coarse = values.thinned(MOST_TIPS, geometric=isinstance(norm, LogNorm))
        borders = [edges[0], *coarse.steps]
        for (row, column), value in np.ndenumerate(coarse.grid):
            left, right = borders[column], borders[column + 1]
            tip = f"layer {row + 1}, steps {left:,} to {right:,}: {value:.3g}"
            _tip_cell(axes, (left, row + 0.5), right - left, tip)
        axes.set_xlim(0, last_step)
        axes.set_yticks(layer_ticks(values.layers))
        axes.set_ylabel("layer")
        _steps_across(axes)

    panels = []
    for run, side, values in found:
        height = 1.0 + min(max(0.11 * values.layers, 0.8), 4.0)
        panels.append(Panel(side, run.label, f"{run.headline}\n{side}", height, partial(paint, values)))
    return _figure(name, title, panels, _colour_bar(norm, cmap, title))


def _rows_painter(grid: LayerGrid, names: Sequence[str], group: int = 0) -> Callable[[Axes], None]:
    """Layers across, a row for each name, the first on top; a line after each `group` of rows."""

    def paint(axes: Axes) -> None:
        rows, layers = grid.shape
        few = layers <= CELLS_WITH_GAPS and rows <= CELLS_WITH_GAPS
        edges = np.arange(layers + 1) + 0.5, np.arange(rows + 1) - 0.5
        _paint_cells(axes, *edges, grid, FROM_0_TO_1, GATE_COLOURS, gaps=few)
        for (row, column), value in np.ndenumerate(grid) if few else ():
            tip = f"{names[row]}, layer {column + 1}: {value:.2f}".removeprefix(", ")
            _tip_cell(axes, (column + 0.5, row - 0.5), 1, tip)
        for place in range(group, rows, group) if group > 1 else ():
            axes.axhline(place - 0.5, color=INK, linewidth=1.0)
        axes.invert_yaxis()
        axes.set_xticks(layer_ticks(layers))
        axes.set_yticks(range(rows), list(names))
        axes.set_xlabel("layer")

    return paint


def _colour_bar(norm: Normalize, cmap: str, title: str) -> Finish:
    def finish(canvas: Canvas, panels: Sequence[Axes]) -> None:
        slim = 0.9 * canvas.get_figheight() / BAR_WIDTH
        bar = canvas.colorbar(ScalarMappable(norm, cmap), ax=list(panels), shrink=0.9, aspect=slim, pad=0.02)
        bar.outline.set_visible(False)
        if isinstance(norm, LogNorm) and norm.vmin and norm.vmax:
            ticks = log_ticks(norm.vmin, norm.vmax)
            bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
            bar.minorticks_off()
        canvas.suptitle(title, fontsize=12)

    return finish


def _paint_curves(curves: Sequence[Curve], end: float | None, axes: Axes) -> None:
    """Each with its name for the tips and its look, over the steps up to `end`."""
    for label, curve, look in curves:
        axes.plot(curve.steps, curve.values, **{"linewidth": 1.6, **look})
        every = max(1, math.ceil(len(curve.steps) / (2 * MOST_TIPS)))
        steps, values = curve.steps[::-every][::-1], curve.values[::-every][::-1]  # the last one is always among them
        tips = [f"{label}, step {step:,}: {value:.3g}" for step, value in zip(steps, values, strict=True)]
        tip_points(axes, steps, values, tips, size=9)
    axes.grid()
    _steps_across(axes)
    axes.set_xlim(0, end)


def _gated(runs: Sequence[TrainingRun]) -> list[tuple[str, TrainingRun]]:
    """Each stack with gates, the encoder's first."""
    return [(side, run) for side in ("encoder", "decoder") for run in runs if side in run.gated_sides]


def _tip_cell(axes: Axes, corner: tuple[float, float], width: float, tip: str) -> None:
    """All but invisible: a browser has no tip for what is not painted."""
    cell = Rectangle(corner, width, 1, facecolor=NOTHING, alpha=0.004, linewidth=0, zorder=4)
    axes.add_patch(with_tip(cell, tip)).set_in_layout(False)


def _paint_cells(
    axes: Axes, x: Any, y: Any, grid: LayerGrid, norm: Normalize, cmap: str, *, gaps: bool = False
) -> None:
    """Between these edges, on a ground for what has no value."""
    axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, facecolor=NOTHING, linewidth=0, zorder=-1))
    look: dict[str, Any] = {"edgecolors": PAPER, "linewidth": 0.6} if gaps else {"rasterized": True}
    axes.pcolormesh(x, y, grid, norm=norm, cmap=cmap, **look)
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)


def _steps_across(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

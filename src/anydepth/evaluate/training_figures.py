"""Charts of trainings: gradient norms and gates of each layer, losses, effective depth (Li et al. 2020).

Runs stand beside each other, a column for each, or share an axis, a colour for each.
"""

import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
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

from anydepth.evaluate.figures import INK, PAPER, SERIES, SHAPES, legend_below, shortened, tip_points, with_tip
from anydepth.evaluate.report import Figure
from anydepth.evaluate.training_run import (
    Grid,
    LayersOverSteps,
    Record,
    StepCurve,
    TrainingRun,
    gates,
    in_order,
    selected_layers,
)

WIDEST, WIDEST_PANEL, BAR_WIDTH = 12.5, 5.5, 0.2  # inches
LETTERS_PER_INCH = 11
MOMENTS = (0.02, 0.06, 0.25, 0.5, 1.0)  # of the training, those of the paper's Figure 7
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
WITHOUT_PAIRS = "all"  # the name in the log where there is one language pair

Paint = Callable[[Axes], None]
Panels = Mapping[tuple[str, str], tuple[str, Paint]]  # by row and run: a title, and what paints the panel


def gradient_maps(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 2, with all layers: a panel for each stack and run."""
    thin = {
        run.label: {side: norms.thinned(MOST_COLUMNS, geometric_mean) for side, norms in run.gradients().items()}
        for run in runs
        if run.gradients()
    }
    norm = log_scale(norms.grid for stacks in thin.values() for norms in stacks.values())
    return _maps_over_steps("gradients", "Gradient norm of each layer", runs, thin, norm, GRADIENT_COLOURS)


def utilisation_maps(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 5: how much each layer is used, the mean over language pairs."""
    found = {
        run.label: {side: run.utilisation(side).thinned(MOST_COLUMNS, _mean) for side in run.gated_sides}
        for run in runs
        if run.has_gates
    }
    return _maps_over_steps("utilisation", "Utilisation u of each layer", runs, found, FROM_0_TO_1, GATE_COLOURS)


def sample_maps(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figures 4 and 8: the last samples, layers across and language pairs down, and the probabilities below."""
    heights: dict[str, float] = {}
    panels: dict[tuple[str, str], tuple[str, Paint]] = {}
    for side in _sides(run.gated_sides for run in runs):
        for run in (run for run in runs if side in run.gated_sides):
            last = run.with_gates(side)[-1]
            for kind, name in (("samples", "sample z"), ("probability", "probability")):
                rows, row = gates(last, kind, side), f"{side} {kind}"
                names = pair_names(rows, selected_layers(last, side) if kind == "probability" else {})
                title = f"{run.label}\n{side}, {name}, step {last['step']:,}"
                panels[row, run.label] = title, _rows_painter(np.array(list(rows.values())), names)
                heights[row] = max(heights.get(row, 0), 0.95 + min(0.22 * len(rows), 5.0))
    title = "Which layers are selected (in brackets: how many)"
    return _panels("samples", title, heights, panels, _colour_bar(FROM_0_TO_1, GATE_COLOURS, title))


def sample_history(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 7: samples at a few moments of the training; with a K they become 0 or 1."""
    heights: dict[str, float] = {}
    panels: dict[tuple[str, str], tuple[str, Paint]] = {}
    for side in _sides(run.gated_sides for run in runs):
        for run in (run for run in runs if side in run.gated_sides):
            named = _rows_of_moments(run, side)
            grid, names = np.array([row for _, row in named]), [name for name, _ in named]
            pairs = len(gates(run.with_gates(side)[-1], "samples", side))
            panels[side, run.label] = f"{run.label}\n{side}", _rows_painter(grid, names, group=pairs)
            heights[side] = max(heights.get(side, 0), 0.95 + min(0.2 * len(named), 6.0))
    title = "Samples z in the course of training"
    finish = _colour_bar(FROM_0_TO_1, GATE_COLOURS, title)
    return _panels("samples-over-training", title, heights, panels, finish)


def bottom_gradients(runs: Sequence[TrainingRun]) -> Figure | None:
    """Figure 2: what reaches the lowest layers of the decoder, or of the encoder where there is no decoder."""
    runs = [run for run in runs if run.gradients()]
    last_step = max((run.last_step for run in runs), default=0)
    panels: dict[tuple[str, str], tuple[str, Paint]] = {}
    shown: set[int] = set()
    for run in runs:
        side, stack = list(run.gradients().items())[-1]
        panels["", run.label] = f"{run.headline}\n{side}", _bottom_painter(run.label, stack, last_step)
        shown |= {layer for layer in BOTTOM_LAYERS if layer <= stack.layers}

    def finish(canvas: Canvas, used: Sequence[Axes]) -> None:
        _share_log_axis(used)
        legend_below(canvas, {f"layer {layer}": Line2D([], [], **_layer_look(layer)) for layer in sorted(shown)})
        canvas.suptitle("Gradient norm of the lowest layers", fontsize=12)

    return _panels("gradients-bottom", "Gradient norm of the lowest layers", {"": 3.4}, panels, finish)


def loss_curves(runs: Sequence[TrainingRun]) -> Figure:
    """Figure 3: training and validation beside each other on one scale; a cross where a run diverged."""
    validated = any(run.validation() for run in runs)

    def drawing(canvas: Canvas) -> None:
        panels = canvas.subplots(1, 2 if validated else 1, sharex=True, sharey=True, squeeze=False)[0]
        entries: dict[str, Artist] = {}
        for run, colour, shape in zip(runs, SERIES, SHAPES, strict=False):
            _plot(panels[0], run.label, run.curve(run.loss_name), color=colour)
            depths = list(run.validation().items())[: len(STYLES)]
            for (depth, curve), style in zip(depths, STYLES, strict=False):
                look = {"color": colour, "linestyle": style, "marker": shape, "markersize": 5}
                _plot(panels[1], f"{run.label} {depth}".strip(), curve, **look)
            entries |= _loss_entries(run, colour, shape, [depth for depth, _ in depths])
        for axes, name in zip(panels, ("training", "validation"), strict=False):
            axes.set_title(name)
            axes.grid()
            _steps_across(axes)
            axes.set_xlim(0, 1.02 * max(run.end for run in runs))
            axes.tick_params(labelleft=True)
        panels[0].set_ylabel({"nll": "NLL per token", "loss": "loss"}[runs[0].loss_name])
        _limit_loss(panels[0], runs)
        for run, colour in zip(runs, SERIES, strict=False):
            if run.diverged:
                _cross(panels[0], run.curve(run.loss_name), run.diverged.step, colour)
        legend_below(canvas, entries, 2)

    return Figure("loss", "Loss", drawing, size=(11.0 if validated else 6.5, 4.4), scroll=validated)


def depth_curves(runs: Sequence[TrainingRun]) -> Figure | None:
    """Effective depth of each stack, expected and selected, and the KL: what the gates settle at."""
    coloured = {colour: run for colour, run in zip(SERIES, runs, strict=False) if run.has_gates}
    panels: dict[str, list[tuple[str, str, StepCurve]]] = {}  # colour, style and curve of each line
    for side in _sides(run.gated_sides for run in coloured.values()):
        panels[f"layers of the {side}"] = [
            *((colour, "-", run.curve(f"depth/{side}")) for colour, run in coloured.items()),
            *((colour, "--", run.selected(side)) for colour, run in coloured.items()),
        ]
    panels["KL"] = [(colour, "-", run.kl()) for colour, run in coloured.items()]
    shown = {name: lines for name, lines in panels.items() if any(curve.steps for _, _, curve in lines)}
    if not shown:
        return None

    def drawing(canvas: Canvas) -> None:
        for axes, (name, lines) in zip(canvas.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
            for colour, style, curve in lines:
                kind = " selected" if style == "--" else ""
                _plot(axes, f"{coloured[colour].label}{kind}", curve, color=colour, linestyle=style)
            axes.set_title(name)
            axes.grid()
            _steps_across(axes)
            axes.set_xlim(left=0)
            values = [0.0, *(value for _, _, curve in lines for value in curve.values)]
            room = 0.06 * (max(values) - min(values)) or 0.5  # a curve along the frame is hard to see
            axes.set_ylim(min(values) - room, max(values) + room)
        entries: dict[str, Artist] = {run.label: Line2D([], [], color=colour) for colour, run in coloured.items()}
        entries["expected: the sum of the probabilities"] = Line2D([], [], color=INK)
        entries["selected"] = Line2D([], [], color=INK, linestyle="--")
        legend_below(canvas, entries)

    size = min(WIDEST, 5.0 * len(shown)), 3.8
    return Figure("depth", "Effective depth", drawing, size=size, scroll=len(shown) > 1)


def moments(records: Sequence[Record]) -> list[Record]:
    """A few of them, more at the beginning, the last one always."""
    last = records[-1]["step"]
    nearest = [min(records, key=lambda record: abs(record["step"] - share * last)) for share in MOMENTS]
    return list({record["step"]: record for record in nearest}.values())


def geometric_mean(grid: Grid) -> Grid:
    """Of each row; what is no positive number does not count."""
    means: Grid = np.exp(_mean(np.log(np.where(grid > 0, grid, np.nan))))
    return means


def pair_names(rows: Iterable[str], selected: Mapping[str, int]) -> list[str]:
    return [f"{pair} ({selected[pair]})" if pair in selected else pair for pair in rows]


def log_scale(grids: Iterable[Grid]) -> LogNorm:
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


def _panels(
    name: str,
    title: str,
    heights: Mapping[str, float],
    panels: Panels,
    finish: Callable[[Canvas, Sequence[Axes]], None],
) -> Figure | None:
    """A column for each run, a row for each of `heights`; `finish` gets the panels that there are."""
    if not panels:
        return None
    labels = list(dict.fromkeys(label for _, label in panels))
    width = min(WIDEST_PANEL, WIDEST / len(labels))
    letters = int(LETTERS_PER_INCH * (width - 0.6))

    def drawing(canvas: Canvas) -> None:
        ratios = {"height_ratios": list(heights.values())}
        grid = canvas.subplots(len(heights), len(labels), squeeze=False, gridspec_kw=ratios)
        used = []
        for (row, label), axes in zip(((row, label) for row in heights for label in labels), grid.flat, strict=True):
            axes.set_visible((row, label) in panels)
            if (row, label) in panels:
                over, paint = panels[row, label]
                lines = (textwrap.fill(shortened(line, 2 * letters), letters) for line in over.splitlines())
                axes.set_title("\n".join(lines), fontsize=10)
                paint(axes)
                used.append(axes)
        finish(canvas, used)

    size = max(width * len(labels), 4.2), sum(heights.values()) + 0.6
    return Figure(name, title, drawing, size=size, scroll=len(labels) > 1)


def _maps_over_steps(
    name: str,
    title: str,
    runs: Sequence[TrainingRun],
    found: Mapping[str, Mapping[str, LayersOverSteps]],
    norm: Normalize,
    cmap: str,
) -> Figure | None:
    runs = [run for run in runs if run.label in found]
    last_step = max((run.last_step for run in runs), default=0)
    heights: dict[str, float] = {}
    panels: dict[tuple[str, str], tuple[str, Paint]] = {}
    for side in _sides(found.values()):
        for run in (run for run in runs if side in found[run.label]):
            values = found[run.label][side]
            panels[side, run.label] = f"{run.headline}\n{side}", _steps_painter(values, norm, cmap, last_step)
            heights[side] = max(heights.get(side, 0), 1.0 + min(max(0.11 * values.layers, 0.8), 4.0))
    return _panels(name, title, heights, panels, _colour_bar(norm, cmap, title))


def _steps_painter(values: LayersOverSteps, norm: Normalize, cmap: str, last_step: int) -> Paint:
    """Steps across, layers up, the lowest at the bottom."""

    def paint(axes: Axes) -> None:
        first = 2 * values.steps[0] - values.steps[1] if len(values.steps) > 1 else 0
        edges = [max(0, first), *values.steps]
        _ground(axes)
        axes.pcolormesh(edges, np.arange(values.layers + 1) + 0.5, values.grid, norm=norm, cmap=cmap, rasterized=True)
        axes.axvspan(edges[-1], max(last_step, edges[-1]), color=PAPER, linewidth=0)
        coarse = values.thinned(MOST_TIPS, geometric_mean if isinstance(norm, LogNorm) else _mean)
        borders = [edges[0], *coarse.steps]
        for (row, column), value in np.ndenumerate(coarse.grid):
            left, right = borders[column], borders[column + 1]
            tip = f"layer {row + 1}, steps {left:,} to {right:,}: {value:.3g}"
            _tip_cell(axes, (left, row + 0.5), right - left, tip)
        axes.set_xlim(0, last_step)
        axes.set_yticks(layer_ticks(values.layers))
        axes.set_ylabel("layer")
        _steps_across(axes)
        _bare(axes)

    return paint


def _rows_painter(grid: Grid, names: Sequence[str], group: int = 0) -> Paint:
    """Layers across, a row for each name, the first on top; a line after each `group` of rows."""

    def paint(axes: Axes) -> None:
        rows, layers = grid.shape
        few = layers <= CELLS_WITH_GAPS and rows <= CELLS_WITH_GAPS
        gaps: dict[str, Any] = {"edgecolors": PAPER, "linewidth": 0.6} if few else {"rasterized": True}
        _ground(axes)
        edges = np.arange(layers + 1) + 0.5, np.arange(rows + 1) - 0.5
        axes.pcolormesh(*edges, grid, norm=FROM_0_TO_1, cmap=GATE_COLOURS, **gaps)
        for (row, column), value in np.ndenumerate(grid) if few else ():
            tip = f"{names[row]}, layer {column + 1}: {value:.2f}".removeprefix(", ")
            _tip_cell(axes, (column + 0.5, row - 0.5), 1, tip)
        for place in range(group, rows, group) if group > 1 else ():
            axes.axhline(place - 0.5, color=INK, linewidth=1.0)
        axes.invert_yaxis()
        axes.set_xticks(layer_ticks(layers))
        axes.set_yticks(range(rows), list(names))
        axes.set_xlabel("layer")
        _bare(axes)

    return paint


def _bottom_painter(label: str, norms: LayersOverSteps, last_step: int) -> Paint:
    stack = norms.thinned(MOST_POINTS, geometric_mean)

    def paint(axes: Axes) -> None:
        for layer in BOTTOM_LAYERS:
            if layer <= stack.layers:
                curve = StepCurve.of(zip(stack.steps, stack.grid[layer - 1].tolist(), strict=True))
                _plot(axes, f"{label}, layer {layer}", curve, **_layer_look(layer))
        axes.set_yscale("log")
        axes.grid()
        _steps_across(axes)
        axes.set_xlim(0, 1.02 * last_step)

    return paint


def _layer_look(layer: int) -> dict[str, Any]:
    place = BOTTOM_LAYERS.index(layer)
    return {"color": SERIES[place], "linestyle": STYLES[place], "linewidth": 1.6}


def _share_log_axis(panels: Sequence[Axes]) -> None:
    low = min(axes.get_ylim()[0] for axes in panels)
    high = max(axes.get_ylim()[1] for axes in panels)
    low = max(low, high / LARGEST_RATIO)
    ticks = log_ticks(low, high)
    for axes in panels:
        axes.set_ylim(low, high)
        axes.set_yticks(ticks, [f"{tick:.2g}" for tick in ticks])
        axes.minorticks_off()


def _colour_bar(norm: Normalize, cmap: str, title: str) -> Callable[[Canvas, Sequence[Axes]], None]:
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


def _plot(axes: Axes, label: str, curve: StepCurve, **look: Any) -> None:
    axes.plot(curve.steps, curve.values, **{"linewidth": 1.6, **look})
    every = max(1, math.ceil(len(curve.steps) / (2 * MOST_TIPS)))
    steps, values = curve.steps[::-every][::-1], curve.values[::-every][::-1]  # the last one is always among them
    tips = [f"{label}, step {step:,}: {value:.3g}" for step, value in zip(steps, values, strict=True)]
    tip_points(axes, steps, values, tips, size=9)


def _loss_entries(run: TrainingRun, colour: str, shape: str, depths: Sequence[str]) -> dict[str, Artist]:
    first = f"{run.label}, validation {depths[0]}" if depths and depths[0] else run.label
    entries: dict[str, Artist] = {first: Line2D([], [], color=colour, marker=shape)}
    for depth, style in list(zip(depths, STYLES, strict=False))[1:]:
        entries[f"{run.label}, validation {depth}"] = Line2D([], [], color=colour, linestyle=style, marker=shape)
    if run.diverged:
        entries[f"{run.label}, {run.diverged}"] = Line2D([], [], color=colour, linestyle="", marker="X", markersize=9)
    return entries


def _limit_loss(axes: Axes, runs: Sequence[TrainingRun]) -> None:
    """A loss that explodes must not flatten the others: it leaves the chart at its top."""
    training = [run.curve(run.loss_name).values for run in runs]
    curves = [*training, *(curve.values for run in runs for curve in run.validation().values())]
    values = [value for curve in curves for value in curve]
    firsts = [curve[0] for curve in training if curve]
    if firsts:
        low, high = min(values), min(max(values), 1.25 * max(firsts))
        room = 0.05 * (high - low) or 0.5
        axes.set_ylim(low - room, high + room)


def _cross(axes: Axes, curve: StepCurve, step: int, colour: str) -> None:
    """At the last loss there is, at the edge if that is outside."""
    low, high = axes.get_ylim()
    at = min(max(curve.values[-1], low), high) if curve.values else high
    axes.plot([step], [at], "X", color=colour, markersize=11, markeredgecolor=PAPER, clip_on=False, zorder=5)


def _rows_of_moments(run: TrainingRun, side: str) -> list[tuple[str, list[float]]]:
    """A row for each moment and pair. Where there are many pairs, only the first of each moment has a name."""
    named = []
    for record in moments(run.with_gates(side)):
        rows = gates(record, "samples", side)
        for place, (pair, row) in enumerate(rows.items()):
            step = f"step {record['step']:,}" if place == 0 else ""
            name = "" if pair == WITHOUT_PAIRS or len(rows) > 4 else pair
            named.append((f"{step}  {name}".strip(), row))
    return named


def _sides(found: Iterable[Iterable[str]]) -> list[str]:
    return in_order(side for sides in found for side in sides)


def _mean(grid: Grid) -> Grid:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row without values has no mean: NaN
        means: Grid = np.nanmean(grid, axis=1)
    return means


def _tip_cell(axes: Axes, corner: tuple[float, float], width: float, tip: str) -> None:
    """All but invisible: a browser has no tip for what is not painted."""
    cell = Rectangle(corner, width, 1, facecolor=NOTHING, alpha=0.004, linewidth=0, zorder=4)
    axes.add_patch(with_tip(cell, tip)).set_in_layout(False)


def _ground(axes: Axes) -> None:
    """Where there is no value."""
    axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, facecolor=NOTHING, linewidth=0, zorder=-1))


def _steps_across(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _bare(axes: Axes) -> None:
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)

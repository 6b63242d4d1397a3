"""The pictures of a report: quality and time over n x m, and the trade between the two."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from anydepth.evaluate.heat_maps import (
    INK,
    Frame,
    Grid,
    box_cells,
    draw_grid,
    heat_maps,
    new_figure,
    png_of,
    title_and_colour_bar,
)
from anydepth.evaluate.measurement import Measurement, ModelSweep
from anydepth.evaluate.shared_depths import Comparison

POINTS_WITH_NAMES = 40
# Okabe and Ito's colours, told apart with any kind of colour vision; the shapes are for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SHAPES = ("o", "s", "^", "D", "v", "P")


def bleu_maps(models: Sequence[ModelSweep]) -> bytes:
    return _maps(models, lambda one: one.bleu, "BLEU, higher is better", "viridis")


def time_maps(models: Sequence[ModelSweep]) -> bytes:
    return _maps(models, _milliseconds, "Time per sentence (ms), lower is better", "cividis_r")


def difference_map(comparison: Comparison, models: Sequence[ModelSweep], label: str) -> bytes:
    """BLEU of the model called `label` minus that of the first, where both have a depth; boxed where it beats all."""
    model = next(model for model in models if model.label == label)
    differences = {row.depth: row.differences[label] for row in comparison.shared if label in row.differences}
    frame = Frame.around(models)
    grid = _filled(frame, model, lambda one: differences.get(one.depth))
    most = max(float(np.nanmax(np.abs(grid))), 0.1)
    figure = new_figure(*frame.size)
    axes = figure.subplots()
    draw_grid(axes, frame, grid, cmap="RdBu", low=-most, high=most, number="{:+.1f}")
    won = {row.depth for row in comparison.shared if row.winner == label}
    box_cells(axes, _filled(frame, model, lambda one: float(one.depth in won)))
    axes.set_title(f"{label} minus {comparison.first}", fontsize=11, color=INK)
    title_and_colour_bar(figure, [axes], "Difference in BLEU" + (", boxed: best of all models" if won else ""))
    return png_of(figure)


def quality_time(models: Sequence[ModelSweep]) -> bytes:
    """Every depth as a point, the front of each model as a line with its depths named."""
    figure = new_figure(7.2, 5.0)
    axes = figure.subplots()
    for index, model in enumerate(models):
        colour, shape = COLOURS[index % len(COLOURS)], SHAPES[index % len(SHAPES)]
        everything, front = _points(model.measurements), _points(model.front)
        axes.scatter(*everything, s=26, marker=shape, color=colour, alpha=0.35, linewidths=0)
        # A step: between two points of the front nothing better than the faster one is on offer.
        axes.step(*front, where="post", color=colour, linewidth=1.4, alpha=0.8)
        axes.plot(*front, shape, color=colour, markersize=7, label=f"{model.label}: Pareto front")
    axes.set_xlabel("time per sentence in ms", color=INK)
    axes.set_ylabel("BLEU", color=INK)
    axes.set_title("Quality against time: each point a depth, the best trades joined", fontsize=12, color=INK)
    axes.margins(x=0.08, y=0.1)
    axes.grid(color="#d9dde2", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    _name_points(figure, axes, models)
    return png_of(figure)


def _maps(models: Sequence[ModelSweep], value: Callable[[Measurement], float], title: str, cmap: str) -> bytes:
    frame = Frame.around(models)
    return heat_maps(frame, {model.label: _filled(frame, model, value) for model in models}, title, cmap)


def _filled(frame: Frame, model: ModelSweep, value: Callable[[Measurement], float | None]) -> Grid:
    def at(n: int, m: int) -> float | None:
        one = model.cell(n, m)
        return None if one is None else value(one)

    return frame.fill(at)


def _milliseconds(one: Measurement) -> float:
    return 1000 * one.seconds_per_sentence


def _points(measurements: Sequence[Measurement]) -> tuple[list[float], list[float]]:
    return [_milliseconds(one) for one in measurements], [one.bleu for one in measurements]


def _name_points(figure: Figure, axes: Axes, models: Sequence[ModelSweep]) -> None:
    """Write the depth beside each point, those of the fronts first, in a free place around it; else not at all.

    Where there are many points, those off the fronts stay nameless.
    """
    figure.draw_without_rendering()  # settles the layout, and with it where the points are
    renderer = FigureCanvasAgg(figure).get_renderer()
    places = [(-5, 4), (6, -4), (6, 4), (-5, -4)]
    everyone = [one for model in models for one in model.measurements]
    centres = [axes.transData.transform((_milliseconds(one), one.bleu)) for one in everyone]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in centres]
    for on_front in (True, False) if len(everyone) <= POINTS_WITH_NAMES else (True,):
        taken += [] if on_front else [box for model in models for box in _front_line(axes, model)]
        for index, model in enumerate(models):
            for one in model.measurements:
                if (one in model.front) == on_front:
                    _name_point(axes, one, COLOURS[index % len(COLOURS)], on_front, places, taken, renderer)


def _front_line(axes: Axes, model: ModelSweep) -> Iterator[Bbox]:
    """Where the steps of a front are on the picture."""
    corners = [axes.transData.transform((_milliseconds(one), one.bleu)) for one in model.front]
    for (x, y), (next_x, next_y) in pairwise(corners):
        yield Bbox([[x, y - 1], [next_x, y + 1]])
        yield Bbox([[next_x - 1, y], [next_x + 1, next_y]])


def _name_point(
    axes: Axes,
    one: Measurement,
    colour: str,
    on_front: bool,
    places: Sequence[tuple[int, int]],
    taken: list[Bbox],
    renderer: RendererAgg,
) -> None:
    for dx, dy in places:
        note = axes.annotate(
            one.depth,
            (_milliseconds(one), one.bleu),
            (dx, dy),
            textcoords="offset points",
            ha="right" if dx < 0 else "left",
            va="top" if dy < 0 else "bottom",
            fontsize=9 if on_front else 7,
            alpha=1.0 if on_front else 0.7,
            color=colour,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
        box = note.get_window_extent(renderer)
        if not any(box.overlaps(other) for other in taken):
            taken.append(box)
            return
        note.remove()

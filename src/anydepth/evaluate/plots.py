"""The pictures of a report: quality and time over n x m, and the trade between the two."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from anydepth.evaluate.compare import Comparison
from anydepth.evaluate.measurement import Measurement, ModelSweep

DPI = 150
WIDEST = 12.5  # inches; a row of panels
POINTS_WITH_NAMES = 40
NARROWEST = 4.2  # inches; a title must fit
INK = "#22262b"
# Okabe and Ito's colours, told apart with any kind of colour vision; the shapes are for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SHAPES = ("o", "s", "^", "D", "v", "P")

Grid = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Frame:
    """The encoder and decoder depths of a heat map."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @classmethod
    def around(cls, models: Sequence[ModelSweep]) -> "Frame":
        """Wide enough for every one of them."""
        rows = sorted({n for model in models for n in model.rows})
        return cls(tuple(rows), tuple(sorted({m for model in models for m in model.columns})))

    @property
    def size(self) -> tuple[float, float]:
        """In inches: cells of one size whatever the menu, within reason."""
        width = 1.5 + 0.62 * len(self.columns)
        height = max(2.6, 1.2 + 0.62 * len(self.rows))
        return min(width, 12.0), min(height, 12.0)

    def fill(self, model: ModelSweep, value: Callable[[Measurement], float]) -> Grid:
        """n x m values; NaN where the model has no such depth."""
        cells = [[model.cell(n, m) for m in self.columns] for n in self.rows]
        return np.array([[math.nan if one is None else value(one) for one in row] for row in cells])


def bleu_maps(models: Sequence[ModelSweep]) -> bytes:
    return _heat_maps(models, lambda one: one.bleu, "BLEU, higher is better", "viridis")


def time_maps(models: Sequence[ModelSweep]) -> bytes:
    return _heat_maps(models, _milliseconds, "Time per sentence (ms), lower is better", "cividis_r")


def difference_map(comparison: Comparison, models: Sequence[ModelSweep], label: str) -> bytes:
    """BLEU of the model called `label` minus that of the first, where both have a depth; boxed where it beats all."""
    model = next(model for model in models if model.label == label)
    differences = {row.depth: row.differences[label] for row in comparison.shared if label in row.differences}
    frame = Frame.around(models)
    grid = frame.fill(model, lambda one: differences.get(one.depth, math.nan))
    most = max(float(np.nanmax(np.abs(grid))), 0.1)
    figure = _figure(*frame.size)
    axes = figure.subplots()
    _draw_grid(axes, frame, grid, cmap="RdBu", low=-most, high=most, number="{:+.1f}")
    won = {row.depth for row in comparison.shared if row.winner == label}
    _box_cells(axes, frame.fill(model, lambda one: float(one.depth in won)))
    axes.set_title(f"{label} minus {comparison.first}", fontsize=11, color=INK)
    _title_and_colour_bar(figure, [axes], "Difference in BLEU" + (", boxed: best of all models" if won else ""))
    return _png(figure)


def quality_time(models: Sequence[ModelSweep]) -> bytes:
    """Every depth as a point, the front of each model as a line with its depths named."""
    figure = _figure(7.2, 5.0)
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
    return _png(figure)


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
        for index, model in enumerate(models):
            for one in model.measurements:
                if (one in model.front) == on_front:
                    _name_point(axes, one, COLOURS[index % len(COLOURS)], on_front, places, taken, renderer)


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


def _heat_maps(models: Sequence[ModelSweep], value: Callable[[Measurement], float], title: str, cmap: str) -> bytes:
    """One panel per model, all on one colour scale, a depth at the same place in each."""
    frame = Frame.around(models)
    grids = [frame.fill(model, value) for model in models]
    low = min(float(np.nanmin(grid)) for grid in grids)
    high = max(float(np.nanmax(grid)) for grid in grids)
    if low == high:  # one entry: a colour scale needs two ends
        low, high = low - 0.5, high + 0.5
    width, height = frame.size
    down = math.ceil(len(models) / max(1, WIDEST // width))
    across = math.ceil(len(models) / down)
    figure = _figure(across * width, down * height)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    number = "{:.1f}" if high < 1000 else "{:.0f}"
    for axes, model, grid in zip(panels, models, grids, strict=False):
        _draw_grid(axes, frame, grid, cmap=cmap, low=low, high=high, number=number)
        axes.set_title(model.label, fontsize=11, color=INK)
    for axes in panels[len(models) :]:
        axes.set_visible(False)
    _title_and_colour_bar(figure, panels, title)
    return _png(figure)


def _draw_grid(axes: Axes, frame: Frame, grid: Grid, *, cmap: str, low: float, high: float, number: str) -> None:
    image = axes.imshow(grid, cmap=cmap, vmin=low, vmax=high, aspect="equal")
    axes.set_xticks(range(len(frame.columns)), [str(m) for m in frame.columns])
    axes.set_yticks(range(len(frame.rows)), [str(n) for n in frame.rows])
    axes.set_xlabel("decoder layers m", color=INK)
    axes.set_ylabel("encoder layers n", color=INK)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    colours = image.to_rgba(grid)
    for (row, column), cell in np.ndenumerate(grid):
        if not math.isnan(cell):
            red, green, blue, _ = colours[row, column]
            is_dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
            ink = "white" if is_dark else INK
            axes.text(column, row, number.format(cell), ha="center", va="center", fontsize=10, color=ink)


def _box_cells(axes: Axes, marked: Grid) -> None:
    for row, column in np.argwhere(marked == 1):
        corner = (column - 0.46, row - 0.46)
        seen_on_any_colour = [withStroke(linewidth=4, foreground="white")]
        box = Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=INK, linewidth=1.8, path_effects=seen_on_any_colour)
        axes.add_patch(box)


def _title_and_colour_bar(figure: Figure, panels: Sequence[Axes], title: str) -> None:
    figure.suptitle(title, fontsize=12, color=INK)
    bar = figure.colorbar(panels[0].images[0], ax=list(panels), shrink=0.9)
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(6)
    bar.update_ticks()


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(max(width, NARROWEST), height), dpi=DPI, layout="compressed", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # Without metadata the same data gives the same bytes.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()

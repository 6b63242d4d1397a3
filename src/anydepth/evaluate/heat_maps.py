"""Heat maps over n x m: encoder depths down, decoder depths across, a number in each cell."""

import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

DPI = 150
WIDEST = 12.5  # inches; a row of panels
NARROWEST = 4.2  # inches; a title must fit
INK = "#22262b"

Grid = np.ndarray[tuple[int, int], np.dtype[np.float64]]


class HasDepths(Protocol):
    """What a frame can go around: encoder depths and decoder depths."""

    @property
    def rows(self) -> list[int]: ...

    @property
    def columns(self) -> list[int]: ...


@dataclass(frozen=True)
class Frame:
    """The encoder and decoder depths of a heat map."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @classmethod
    def around(cls, models: Iterable[HasDepths]) -> "Frame":
        """Wide enough for every one of them."""
        models = list(models)
        rows = sorted({n for model in models for n in model.rows})
        return cls(tuple(rows), tuple(sorted({m for model in models for m in model.columns})))

    @property
    def size(self) -> tuple[float, float]:
        """In inches: cells of one size whatever the menu, within reason."""
        width = 1.5 + 0.62 * len(self.columns)
        height = max(2.6, 1.2 + 0.62 * len(self.rows))
        return min(width, 12.0), min(height, 12.0)

    def fill(self, value: Callable[[int, int], float | None]) -> Grid:
        """n x m values; NaN where there is no such depth."""
        cells = [[value(n, m) for m in self.columns] for n in self.rows]
        return np.array([[math.nan if cell is None else cell for cell in row] for row in cells])


def heat_maps(
    frame: Frame, grids: dict[str, Grid], title: str, cmap: str, *, number: str = "", low: float | None = None
) -> bytes:
    """One panel per label, all on one colour scale, a depth at the same place in each."""
    low = min(float(np.nanmin(grid)) for grid in grids.values()) if low is None else low
    high = max(float(np.nanmax(grid)) for grid in grids.values())
    if low == high:  # one entry: a colour scale needs two ends
        low, high = low - 0.5, high + 0.5
    width, height = frame.size
    down = math.ceil(len(grids) / max(1, WIDEST // width))
    across = math.ceil(len(grids) / down)
    figure = new_figure(across * width, down * height)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    number = number or ("{:.1f}" if high < 1000 else "{:.0f}")
    for axes, (label, grid) in zip(panels, grids.items(), strict=False):
        draw_grid(axes, frame, grid, cmap=cmap, low=low, high=high, number=number)
        axes.set_title(label, fontsize=11, color=INK)
    for axes in panels[len(grids) :]:
        axes.set_visible(False)
    title_and_colour_bar(figure, panels, title)
    return png_of(figure)


def draw_grid(axes: Axes, frame: Frame, grid: Grid, *, cmap: str, low: float, high: float, number: str) -> None:
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


def box_cells(axes: Axes, marked: Grid) -> None:
    for row, column in np.argwhere(marked == 1):
        corner = (column - 0.46, row - 0.46)
        seen_on_any_colour = [withStroke(linewidth=4, foreground="white")]
        box = Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=INK, linewidth=1.8, path_effects=seen_on_any_colour)
        axes.add_patch(box)


def title_and_colour_bar(figure: Figure, panels: Sequence[Axes], title: str) -> None:
    figure.suptitle(title, fontsize=12, color=INK)
    bar = figure.colorbar(panels[0].images[0], ax=list(panels), shrink=0.9)
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(6)
    bar.update_ticks()


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(max(width, NARROWEST), height), dpi=DPI, layout="compressed", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def png_of(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # Without metadata the same data gives the same bytes.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()

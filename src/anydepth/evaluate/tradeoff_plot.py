"""The pictures of the trade-off: quality against time, and which depths are taken."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from anydepth.evaluate.figures import SERIES, SHAPES
from anydepth.evaluate.heat_maps import INK, Frame, heat_maps, new_figure, png_of
from anydepth.evaluate.tradeoff import Outcome
from anydepth.evaluate.tradeoff_curve import Curve
from anydepth.evaluate.tradeoff_result import FixedDepth, TradeoffResult

GREY, GREY_INK, ORACLE = "#9aa3ad", "#646e78", "#b8860b"
PLACES = [(-5, 5), (6, -5), (6, 5), (-5, -5), (0, 8), (0, -9), (-8, 0), (0, -18), (0, 16)]
POINTS_WITH_NAMES = 40


def draw_curve(result: TradeoffResult) -> bytes:
    """Milliseconds per sentence across, BLEU up: the line to beat, what was learnt, and what an oracle could do."""
    figure = new_figure(9.0, 5.6)
    axes = figure.subplots()
    axes.scatter(*_columns(result.fixed), s=24, color=GREY, linewidths=0, zorder=2, label="one fixed depth")
    line = 1000 * np.array([at for at, _ in result.mixture]), [bleu for _, bleu in result.mixture]
    axes.plot(*line, color=INK, linewidth=1.3, linestyle=(0, (4, 2)), zorder=3, label="random mixture of depths")
    for index, curve in enumerate(result.curves):
        _draw_selector(axes, curve, SERIES[index], SHAPES[index])
    deepest, oracle = result.deepest_depth, result.oracle
    _draw_mark(axes, oracle, "oracle: sees references", s=170, marker="*", color=ORACLE, zorder=4)
    _draw_mark(axes, deepest, f"{deepest.name}, the deepest", s=95, facecolors="none", edgecolors=INK, zorder=4)
    saved = SERIES[result.curves.index(result.saved)]
    what = f"saved: {result.saved_kind}, threshold {result.threshold:g}"
    _draw_mark(axes, result.chosen, what, s=150, facecolors="none", edgecolors=saved, zorder=6)
    axes.set_xlabel("time per sentence in ms, one by one", color=INK)
    axes.set_ylabel("BLEU", color=INK)
    axes.set_title("Choosing the depth of each sentence is worth it above the dashed line", fontsize=12, color=INK)
    axes.margins(x=0.06, y=0.08)
    axes.grid(color="#d9dde2", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    _name_depths(figure, axes, result)
    return png_of(figure)


def draw_depths(result: TradeoffResult) -> bytes:
    """Which depths the saved selector takes, beside those that would have been best."""
    frame = Frame.around([result])
    grids = {
        f"{result.saved_kind}, threshold {result.threshold:g}": 100
        * frame.fill(lambda n, m: result.share_at(result.chosen, n, m)),
        "oracle": 100 * frame.fill(lambda n, m: result.share_at(result.oracle, n, m)),
    }
    return heat_maps(frame, grids, "Share of sentences at each depth (%)", "Blues", low=0.0)


def _draw_mark(axes: Axes, at: Outcome | FixedDepth, label: str, **look: Any) -> None:
    axes.scatter([1000 * at.seconds], [at.bleu], linewidths=1.5, label=label, **look)


def _draw_selector(axes: Axes, curve: Curve, colour: str, shape: str) -> None:
    milliseconds = np.array([1000 * point.seconds for point in curve.points])
    bleu = np.array([point.bleu for point in curve.points])
    error = np.array([point.bleu_error or 0.0 for point in curve.points])
    order = np.argsort(milliseconds)
    milliseconds, bleu, error = milliseconds[order], bleu[order], error[order]
    axes.fill_between(milliseconds, bleu - error, bleu + error, color=colour, alpha=0.18, linewidth=0, zorder=4)
    name = f"learnt {curve.kind}" + (f", ± standard error of {curve.seeds} seeds" if curve.seeds > 1 else "")
    axes.plot(milliseconds, bleu, shape + "-", color=colour, markersize=5, linewidth=1.6, zorder=5, label=name)


def _name_depths(figure: Figure, axes: Axes, result: TradeoffResult) -> None:
    """Those on the line of mixtures first, then the others, wherever there is room."""
    figure.draw_without_rendering()  # settles the layout, and with it where the points are
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in axes.transData.transform(_drawn(result))]
    line = dict(result.mixture)
    on_line = [one for one in result.fixed if abs(line.get(one.seconds, np.inf) - one.bleu) < 1e-6]
    others = [one for one in result.fixed if one not in on_line] if len(result.fixed) <= POINTS_WITH_NAMES else []
    for one in [*on_line, *others]:
        _name(axes, one, 9 if one in on_line else 7, taken)


def _drawn(result: TradeoffResult) -> list[tuple[float, float]]:
    """Points that no name may cover: the marks, and places along the curves."""
    marks: list[Outcome | FixedDepth] = [*result.fixed, result.oracle, result.chosen]
    points = [(one.seconds, one.bleu) for one in marks]
    for curve in result.curves:
        joints = sorted((point.seconds, point.bleu) for point in curve.points)
        for (x, y), (to_x, to_y) in pairwise(joints):
            points += [(x + part * (to_x - x), y + part * (to_y - y)) for part in np.linspace(0, 1, 8).tolist()]
    return [(1000 * seconds, bleu) for seconds, bleu in points]


def _name(axes: Axes, one: FixedDepth, size: int, taken: list[Bbox]) -> None:
    canvas = axes.figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    far = size / 7.5
    for dx, dy in PLACES:
        note = axes.annotate(
            one.name,
            (1000 * one.seconds, one.bleu),
            (far * dx, far * dy),
            textcoords="offset points",
            ha="center" if dx == 0 else "right" if dx < 0 else "left",
            va="top" if dy < 0 else "bottom",
            fontsize=size,
            color=INK if size > 7 else GREY_INK,
            zorder=7,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
        box = note.get_window_extent(canvas.get_renderer())
        if not any(box.overlaps(other) for other in taken) and axes.bbox.x1 >= box.x1:
            taken.append(box)
            return
        note.remove()


def _columns(depths: Iterable[FixedDepth]) -> tuple[list[float], list[float]]:
    depths = list(depths)
    return [1000 * one.seconds for one in depths], [one.bleu for one in depths]

"""The pictures of an evaluation: accuracy over depth, and speed over batch size."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from anydepth.evaluate.classification_result import Evaluation, Point, System
from anydepth.evaluate.figures import SERIES, SHAPES
from anydepth.evaluate.heat_maps import INK, new_figure, png_of

FAINT = "#d9dde2"
AT_FULL = "at full depth"


def draw_accuracy(evaluation: Evaluation) -> bytes:
    """Mean depth across, accuracy up: a line over the scales of each system, a large mark where it was trained."""
    figure = new_figure(8.0, 5.2)
    axes = figure.subplots()
    for index, system in enumerate(evaluation.systems):
        if system.label == evaluation.static:
            _draw_static(axes, system)
        else:
            _draw_system(axes, system, SERIES[index % len(SERIES)], SHAPES[index % len(SHAPES)])
    deepest = max(system.main.layers for system in evaluation.systems)
    axes.set_xlim(0.9 if deepest > 1 else 0.5, deepest + 0.04 * deepest)
    axes.set_xlabel("mean depth of a token, in layers", color=INK)
    axes.set_ylabel("accuracy in %", color=INK)
    _finish(figure, axes, "What depth is worth: accuracy over mean depth", _ways_to_read(evaluation))
    axes.set_ylim(top=min(axes.get_ylim()[1], 101))  # a deviation may go beyond what there is
    return png_of(figure)


def draw_speed(evaluation: Evaluation) -> bytes:
    """Batch size across, texts per second up."""
    figure = new_figure(8.0, 5.2)
    axes = figure.subplots()
    sizes = sorted(evaluation.conditions.batch_sizes)
    for index, system in enumerate(evaluation.systems):
        is_static = system.label == evaluation.static
        colour, shape = (INK, "D") if is_static else (SERIES[index % len(SERIES)], SHAPES[index % len(SHAPES)])
        _draw_speed(axes, system.main, sizes, colour, f"{shape}-", system.label)
        if system.own_static is not None:
            _draw_speed(axes, system.own_static, sizes, colour, f"{shape}--", f"{system.label} {AT_FULL}", hollow=True)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("texts together", color=INK)
    axes.set_ylabel("texts per second", color=INK)
    note = "bands: ± the deviation over models" if evaluation.has_members else ""
    _finish(figure, axes, "Speed over batch size", note)
    return png_of(figure)


def _draw_system(axes: Axes, system: System, colour: str, shape: str) -> None:
    joined = sorted(system.points, key=lambda point: point.depth.mean)
    if system.curve:
        axes.plot(*_places(joined), color=colour, linewidth=1.5, zorder=3)
        axes.plot(*_places(system.curve), shape, color=colour, markersize=5, zorder=4)
    for point in [*joined, *([system.own_static] if system.own_static else [])]:
        _draw_deviation(axes, point, colour)
    axes.plot(*_places([system.main]), shape, color=colour, markersize=10, label=system.label, zorder=5)
    if system.own_static is not None:
        axes.plot(
            *_places([system.own_static]),
            shape,
            color=colour,
            markerfacecolor="white",
            markersize=9,
            markeredgewidth=1.6,
            label=f"{system.label} {AT_FULL}",
            zorder=5,
        )


def _draw_static(axes: Axes, system: System) -> None:
    """A line all across: what the others are compared with."""
    axes.axhline(system.main.accuracy.mean, color=INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=2)
    _draw_deviation(axes, system.main, INK)
    axes.plot(*_places([system.main]), "D", color=INK, markersize=8, label=system.label, zorder=5)


def _draw_deviation(axes: Axes, point: Point, colour: str) -> None:
    accuracy = point.accuracy
    if accuracy.deviation is not None:
        ends = [accuracy.mean - accuracy.deviation, accuracy.mean + accuracy.deviation]
        axes.plot([point.depth.mean] * 2, ends, "-_", color=colour, linewidth=1.0, markersize=6, alpha=0.7, zorder=2)


def _draw_speed(
    axes: Axes, point: Point, sizes: Sequence[int], colour: str, look: str, label: str, *, hollow: bool = False
) -> None:
    speeds = [point.texts_per_second(size) for size in sizes]
    means = [speed.mean for speed in speeds]
    deviations = [speed.deviation or 0.0 for speed in speeds]
    low, high = ([m + sign * d for m, d in zip(means, deviations, strict=True)] for sign in (-1, 1))
    axes.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    face = "white" if hollow else colour
    axes.plot(sizes, means, look, color=colour, markersize=6, linewidth=1.6, markerfacecolor=face, label=label)


def _places(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.depth.mean for point in points], [point.accuracy.mean for point in points]


def _ways_to_read(evaluation: Evaluation) -> str:
    said = []
    if any(system.curve for system in evaluation.systems):
        said.append("large mark: as trained, small ones: other scales or lambdas")
    if evaluation.has_members:
        said.append("strokes: ± the deviation over models")
    return "; ".join(said)


def _finish(figure: Figure, axes: Axes, title: str, note: str) -> None:
    axes.set_title(title, fontsize=12, color=INK, pad=22 if note else 10)
    if note:
        axes.text(0.5, 1.02, note, transform=axes.transAxes, ha="center", va="bottom", fontsize=9, color=INK)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(y=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), 3), frameon=False, fontsize=9
    )
    for text in legend.get_texts():
        text.set_parse_math(False)

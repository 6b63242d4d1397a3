"""Curves of a training: losses, gradient norms of the lowest layers, effective depth; a colour for each run."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anydepth.evaluate.figures import SERIES, SHAPES
from anydepth.evaluate.heat_maps import INK, WIDEST, new_figure, png_of
from anydepth.evaluate.run_panels import LARGEST_RATIO, Panels, legend, line, log_ticks, plain_axes, steps_across
from anydepth.evaluate.training_plots import geometric_mean, sides_of
from anydepth.evaluate.training_run import Curve, LayersOverSteps, TrainingRun

BOTTOM_LAYERS = (1, 2, 4)  # those of the paper's Figure 2
MOST_POINTS = 60  # of a curve of gradient norms, which is rough
STYLES = ("-", "--", ":", "-.")
Line = tuple[str, str, Curve]  # colour, style
DISPLAY_NAMES = {"nll": "NLL per token", "loss": "loss"}


def bottom_gradients(runs: Sequence[TrainingRun]) -> bytes | None:
    """Figure 2: what reaches the lowest layers of the decoder, or of the encoder where there is no decoder."""
    runs = [run for run in runs if run.gradients()]
    if not runs:
        return None
    panels, deepest = Panels({"": 3.4}, [run.label for run in runs]), 0
    last_step = max(run.last_step for run in runs)
    for run in runs:
        side, stack = list(run.gradients().items())[-1]
        axes = panels.at("", run.label, f"{run.headline}\n{side}")
        _draw_bottom(axes, stack.thinned(MOST_POINTS, geometric_mean), last_step)
        deepest = max(deepest, stack.layers)
    _share_log_axis(panels.hide_unused())
    shown = [layer for layer in BOTTOM_LAYERS if layer <= deepest]
    legend(panels.figure, {f"layer {layer}": _layer_line(layer) for layer in shown}, len(shown))
    panels.figure.suptitle("Gradient norm of the lowest layers", fontsize=12, color=INK)
    return png_of(panels.figure)


def loss_curves(runs: Sequence[TrainingRun]) -> bytes:
    """Figure 3: training and validation beside each other on one scale; a cross where a run diverged."""
    validated = any(run.validation() for run in runs)
    figure = new_figure(11.0 if validated else 6.5, 4.4)
    panels = figure.subplots(1, 2 if validated else 1, sharex=True, sharey=True, squeeze=False)[0]
    entries: dict[str, Line2D] = {}
    for index, run in enumerate(runs):
        colour, shape = SERIES[index], SHAPES[index]
        _plot(panels[0], run.curve(run.loss_name), colour)
        depths = list(run.validation().items())[: len(STYLES)]
        for (_, curve), style in zip(depths, STYLES, strict=False):
            _plot(panels[1], curve, colour, linestyle=style, marker=shape, markersize=5)
        entries |= _loss_entries(run, colour, shape, [depth for depth, _ in depths])
    for axes, name in zip(panels, ("training", "validation"), strict=False):
        axes.set_title(name, fontsize=11, color=INK)
        plain_axes(axes)
        steps_across(axes)
        axes.set_xlim(0, 1.02 * max(run.end for run in runs))
        axes.tick_params(labelleft=True)
    panels[0].set_ylabel(DISPLAY_NAMES[runs[0].loss_name], color=INK)
    _limit_loss(panels[0], runs)
    for index, run in enumerate(runs):
        if run.diverged:
            _cross(panels[0], run.curve(run.loss_name), run.diverged.step, SERIES[index])
    legend(figure, entries, 2)
    return png_of(figure)


def depth_curves(runs: Sequence[TrainingRun]) -> bytes | None:
    """Effective depth of each stack, expected and selected, and the KL: what the gates settle at."""
    coloured = {colour: run for colour, run in zip(SERIES, runs, strict=False) if run.has_gates}
    panels: dict[str, list[Line]] = {}
    for side in sides_of(run.gated_sides for run in coloured.values()):
        lines = [(colour, "-", run.curve(f"depth/{side}")) for colour, run in coloured.items()]
        lines += [(colour, "--", run.selected(side)) for colour, run in coloured.items()]
        panels[f"layers of the {side}"] = lines
    panels["KL"] = [(colour, "-", run.kl()) for colour, run in coloured.items()]
    shown = {name: lines for name, lines in panels.items() if any(curve.steps for _, _, curve in lines)}
    if not shown:
        return None
    figure = new_figure(min(WIDEST, 5.0 * len(shown)), 3.8)
    for axes, (name, lines) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        for colour, style, curve in lines:
            _plot(axes, curve, colour, linestyle=style)
        axes.set_title(name, fontsize=11, color=INK)
        plain_axes(axes)
        steps_across(axes)
        axes.set_xlim(left=0)
        values = [0.0, *(value for _, _, curve in lines for value in curve.values)]
        room = 0.06 * (max(values) - min(values)) or 0.5  # a curve along the frame is hard to see
        axes.set_ylim(min(values) - room, max(values) + room)
    entries = {run.label: line(colour) for colour, run in coloured.items()}
    entries |= {"expected: the sum of the probabilities": line(INK), "selected": line(INK, linestyle="--")}
    legend(figure, entries, min(3, len(entries)))
    return png_of(figure)


def _draw_bottom(axes: Axes, stack: LayersOverSteps, last_step: int) -> None:
    for layer in BOTTOM_LAYERS:
        if layer <= stack.layers:
            axes.plot(stack.steps, stack.grid[layer - 1], **_look(layer))
    axes.set_yscale("log")
    plain_axes(axes)
    steps_across(axes)
    axes.set_xlim(0, 1.02 * last_step)


def _look(layer: int) -> dict[str, Any]:
    place = BOTTOM_LAYERS.index(layer)
    return {"color": SERIES[place], "linestyle": STYLES[place], "linewidth": 1.6}


def _layer_line(layer: int) -> Line2D:
    return Line2D([], [], **_look(layer))


def _share_log_axis(panels: Sequence[Axes]) -> None:
    low = min(axes.get_ylim()[0] for axes in panels)
    high = max(axes.get_ylim()[1] for axes in panels)
    low = max(low, high / LARGEST_RATIO)
    for axes in panels:
        axes.set_ylim(low, high)
        ticks = log_ticks(low, high)
        axes.set_yticks(ticks, [f"{tick:.2g}" for tick in ticks])
        axes.minorticks_off()


def _plot(axes: Axes, curve: Curve, colour: str, **look: Any) -> None:
    axes.plot(curve.steps, curve.values, color=colour, **{"linewidth": 1.6, **look})


def _loss_entries(run: TrainingRun, colour: str, shape: str, depths: Sequence[str]) -> dict[str, Line2D]:
    first = f"{run.label}, validation {depths[0]}" if depths and depths[0] else run.label
    entries = {first: line(colour, marker=shape)}
    for depth, style in list(zip(depths, STYLES, strict=False))[1:]:
        entries[f"{run.label}, validation {depth}"] = line(colour, linestyle=style, marker=shape)
    if run.diverged:
        entries[f"{run.label}, {run.diverged}"] = line(colour, linestyle="", marker="X", markersize=9)
    return entries


def _limit_loss(axes: Axes, runs: Sequence[TrainingRun]) -> None:
    """A loss that explodes must not flatten the others: it leaves the picture at its top."""
    training = [run.curve(run.loss_name).values for run in runs]
    curves = [*training, *(curve.values for run in runs for curve in run.validation().values())]
    values = [value for curve in curves for value in curve]
    firsts = [curve[0] for curve in training if curve]
    if firsts:
        low, high = min(values), min(max(values), 1.25 * max(firsts))
        room = 0.05 * (high - low) or 0.5
        axes.set_ylim(low - room, high + room)


def _cross(axes: Axes, curve: Curve, step: int, colour: str) -> None:
    """At the last loss there is, at the edge if that is outside."""
    low, high = axes.get_ylim()
    at = min(max(curve.values[-1], low), high) if curve.values else high
    axes.plot([step], [at], "X", color=colour, markersize=11, markeredgecolor="white", clip_on=False, zorder=5)

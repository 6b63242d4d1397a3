"""Pictures of layers in training: gradient norms and gates, runs beside each other (Li et al. 2020)."""

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.colors import Normalize

from anydepth.evaluate.heat_maps import Grid, png_of
from anydepth.evaluate.run_panels import Panels, colour_bar, draw_over_steps, draw_rows, log_scale
from anydepth.evaluate.training_run import LayersOverSteps, Record, TrainingRun, gates, in_order, selected_layers

MOMENTS = (0.02, 0.06, 0.25, 0.5, 1.0)  # of the training, those of the paper's Figure 7
MOST_COLUMNS = 150  # of a picture over steps: no more than it has pixels
GRADIENT_COLOURS, GATE_COLOURS = "viridis", "Blues"  # light is skipped, dark is selected
FROM_0_TO_1 = Normalize(0.0, 1.0)
WITHOUT_PAIRS = "all"  # the name in the log where there is one language pair


def gradient_maps(runs: Sequence[TrainingRun]) -> bytes | None:
    """Figure 2, with all layers: a panel for each stack and run."""
    found = {run.label: run.gradients() for run in runs}
    thin = {
        label: {side: norms.thinned(MOST_COLUMNS, geometric_mean) for side, norms in stacks.items()}
        for label, stacks in found.items()
        if stacks
    }
    norm = log_scale(norms.grid for stacks in thin.values() for norms in stacks.values())
    return _maps_over_steps(runs, thin, norm, GRADIENT_COLOURS, "Gradient norm of each layer")


def utilisation_maps(runs: Sequence[TrainingRun]) -> bytes | None:
    """Figure 5: how much each layer is used, the mean over language pairs."""
    found = {
        run.label: {side: run.utilisation(side).thinned(MOST_COLUMNS, _mean) for side in run.gated_sides}
        for run in runs
        if run.has_gates
    }
    return _maps_over_steps(runs, found, FROM_0_TO_1, GATE_COLOURS, "Utilisation u of each layer")


def sample_maps(runs: Sequence[TrainingRun]) -> bytes | None:
    """Figures 4 and 8: the last samples, layers across and language pairs down, and the probabilities below."""
    runs = [run for run in runs if run.has_gates]
    if not runs:
        return None
    heights: dict[str, float] = {}
    for side in sides_of(run.gated_sides for run in runs):
        pairs = max(len(gates(run.with_gates(side)[-1], "samples", side)) for run in runs if side in run.gated_sides)
        heights |= {f"{side} {kind}": 0.95 + min(0.22 * pairs, 5.0) for kind in ("samples", "probability")}
    panels = Panels(heights, [run.label for run in runs])
    for run in runs:
        for side in run.gated_sides:
            last = run.with_gates(side)[-1]
            for kind, name in (("samples", "sample z"), ("probability", "probability")):
                rows = gates(last, kind, side)
                axes = panels.at(f"{side} {kind}", run.label, f"{run.label}\n{side}, {name}, step {last['step']:,}")
                names = _pair_names(rows, selected_layers(last, side) if kind == "probability" else {})
                draw_rows(axes, np.array(list(rows.values())), names, FROM_0_TO_1, GATE_COLOURS)
    title = "Which layers are selected (in brackets: how many)"
    colour_bar(panels.figure, panels.hide_unused(), FROM_0_TO_1, GATE_COLOURS, title)
    return png_of(panels.figure)


def sample_history(runs: Sequence[TrainingRun]) -> bytes | None:
    """Figure 7: samples at a few moments of the training; with a K they become 0 or 1."""
    runs = [run for run in runs if run.has_gates]
    if not runs:
        return None
    rows = {(run.label, side): _rows_of_moments(run, side) for run in runs for side in run.gated_sides}
    sides = sides_of(run.gated_sides for run in runs)
    most = {side: max(len(found) for (_, other), found in rows.items() if other == side) for side in sides}
    panels = Panels({side: 0.95 + min(0.2 * most[side], 6.0) for side in sides}, [run.label for run in runs])
    for run in runs:
        for side in run.gated_sides:
            named = rows[run.label, side]
            grid, names = np.array([row for _, row in named]), [name for name, _ in named]
            pairs = len(gates(run.with_gates(side)[-1], "samples", side))
            axes = panels.at(side, run.label, f"{run.label}\n{side}")
            draw_rows(axes, grid, names, FROM_0_TO_1, GATE_COLOURS, group=pairs)
    title = "Samples z in the course of training"
    colour_bar(panels.figure, panels.hide_unused(), FROM_0_TO_1, GATE_COLOURS, title)
    return png_of(panels.figure)


def moments(records: Sequence[Record]) -> list[Record]:
    """A few of them, more at the beginning, the last one always."""
    last = records[-1]["step"]
    nearest = [min(records, key=lambda record: abs(record["step"] - share * last)) for share in MOMENTS]
    return list({record["step"]: record for record in nearest}.values())


def geometric_mean(grid: Grid) -> Grid:
    """Of each row; what is no positive number does not count."""
    means: Grid = np.exp(_mean(np.log(np.where(grid > 0, grid, np.nan))))
    return means


def _mean(grid: Grid) -> Grid:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row without values has no mean: NaN
        means: Grid = np.nanmean(grid, axis=1)
    return means


def _maps_over_steps(
    runs: Sequence[TrainingRun],
    found: dict[str, dict[str, LayersOverSteps]],
    norm: Normalize,
    cmap: str,
    title: str,
) -> bytes | None:
    if not found:
        return None
    runs = [run for run in runs if run.label in found]
    sides = sides_of(found.values())
    layers = {side: max(stacks[side].layers for stacks in found.values() if side in stacks) for side in sides}
    panels = Panels({side: 1.0 + min(max(0.11 * layers[side], 0.8), 4.0) for side in sides}, list(found))
    last_step = max(run.last_step for run in runs)
    for run in runs:
        for side, values in found[run.label].items():
            axes = panels.at(side, run.label, f"{run.headline}\n{side}")
            draw_over_steps(axes, values, norm, cmap, last_step)
    colour_bar(panels.figure, panels.hide_unused(), norm, cmap, title)
    return png_of(panels.figure)


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


def _pair_names(rows: Iterable[str], selected: dict[str, int]) -> list[str]:
    return [f"{pair} ({selected[pair]})" if pair in selected else pair for pair in rows]


def sides_of(found: Iterable[Iterable[str]]) -> list[str]:
    return in_order(side for sides in found for side in sides)

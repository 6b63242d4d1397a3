"""A comparison laid out by depth: encoder depths down, decoder depths across, every model's figure in each cell."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from anydepth.evaluate.measurement import ModelSweep
from anydepth.evaluate.shared_depths import SIGNIFICANT, Comparison, SharedDepth


@dataclass(frozen=True)
class Figure:
    """What a cell shows of one model: a difference to the first model or, without anything to subtract, a BLEU."""

    value: float
    is_difference: bool = False
    is_best: bool = False
    is_significant: bool = False
    counts: bool = True  # in means and wins

    @property
    def text(self) -> str:
        return f"{self.value:+.2f}" if self.is_difference else f"{self.value:.2f}"


Figures = dict[str, Figure]


@dataclass(frozen=True)
class ComparisonGrid:
    """Figures by label, for each cell and for the means. A label is missing where its model has no such depth.

    Means and wins are over the depths that the first model shares with another; a mean difference is over those that
    the two share.
    """

    labels: tuple[str, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cells: dict[tuple[int, int], Figures]
    row_means: dict[int, Figures]
    column_means: dict[int, Figures]
    overall: Figures

    @property
    def first(self) -> str:
        return self.labels[0]

    @property
    def has_uncounted(self) -> bool:
        return any(not figure.counts for figures in self.cells.values() for figure in figures.values())


def lay_out(comparison: Comparison, models: Sequence[ModelSweep]) -> ComparisonGrid:
    rows = sorted({n for model in models for n in model.rows})
    columns = sorted({m for model in models for m in model.columns})
    places = [(n, m) for n in rows for m in columns]
    by_depth = {row.depth: row for row in comparison.shared}
    shared = {place: by_depth[depth] for place in places if (depth := _depth(models[0], place)) in by_depth}
    return ComparisonGrid(
        labels=comparison.labels,
        rows=tuple(rows),
        columns=tuple(columns),
        cells={place: _shared_cell(shared[place]) if place in shared else _apart(models, place) for place in places},
        row_means={n: _means(comparison, (row for (at, _), row in shared.items() if at == n)) for n in rows},
        column_means={m: _means(comparison, (row for (_, at), row in shared.items() if at == m)) for m in columns},
        overall=_means(comparison, shared.values()),
    )


def _depth(model: ModelSweep, place: tuple[int, int]) -> str | None:
    found = model.cell(*place)
    return None if found is None else found.depth


def _shared_cell(row: SharedDepth) -> Figures:
    first, *_ = row.bleu
    return {first: Figure(row.bleu[first], is_best=row.winner == first)} | {
        label: Figure(
            difference,
            is_difference=True,
            is_best=row.winner == label,
            is_significant=row.p_values[label] < SIGNIFICANT,
        )
        for label, difference in row.differences.items()
    }


def _apart(models: Sequence[ModelSweep], place: tuple[int, int]) -> Figures:
    """Where the first model meets no other there is nothing to compare, but what there is can be shown."""
    found = {model.label: model.cell(*place) for model in models}
    return {label: Figure(one.bleu, counts=False) for label, one in found.items() if one is not None}


def _means(comparison: Comparison, shared: Iterable[SharedDepth]) -> Figures:
    rows = list(shared)
    if not rows:
        return {}
    means = {comparison.first: Figure(fmean(row.bleu[comparison.first] for row in rows))}
    for label in comparison.others:
        differences = [row.differences[label] for row in rows if label in row.differences]
        if differences:
            means[label] = Figure(fmean(differences), is_difference=True)
    return means

"""Several models at the depths they share: who is better where, is it more than chance, and the same as a grid."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from anydepth.evaluate.measurement import ModelSweep
from anydepth.evaluate.significance import paired_bootstrap

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class SharedDepth:
    """A depth of the first model and of one other at least; `bleu` holds the models that have it.

    `differences` and `p_values` hold those but the first, against the first.
    """

    depth: str
    bleu: dict[str, float]
    differences: dict[str, float]
    p_values: dict[str, float]
    winner: str | None


@dataclass(frozen=True)
class Comparison:
    labels: tuple[str, ...]
    shared: tuple[SharedDepth, ...]
    samples: int
    seed: int

    @property
    def first(self) -> str:
        return self.labels[0]

    @property
    def others(self) -> tuple[str, ...]:
        return self.labels[1:]

    @property
    def wins(self) -> dict[str, int]:
        return {label: sum(row.winner == label for row in self.shared) for label in self.labels}

    @property
    def ties(self) -> int:
        return sum(row.winner is None for row in self.shared)

    @property
    def verdict(self) -> str:
        """Who is best at how many depths, most first."""
        depths = f"{len(self.shared)} depth{'s' if len(self.shared) > 1 else ''}"
        if self.ties == len(self.shared):
            return f"no model is best at any of {depths}: all are ties"
        (most, count), *others = sorted(self.wins.items(), key=lambda item: -item[1])
        rest = "".join(f", {label} at {fewer}" for label, fewer in others)
        return f"{most} is best at {count} of {depths}{rest}" + (f"; ties: {self.ties}" if self.ties else "")

    @property
    def mean_bleu(self) -> dict[str, float]:
        """Of each model over those of these depths that it has."""
        values = {label: [row.bleu[label] for row in self.shared if label in row.bleu] for label in self.labels}
        return {label: fmean(found) for label, found in values.items() if found}

    @property
    def mean_differences(self) -> dict[str, float]:
        """To the first model, over the depths that both have."""
        values = {
            label: [row.differences[label] for row in self.shared if label in row.differences] for label in self.others
        }
        return {label: fmean(found) for label, found in values.items() if found}

    def to_json(self) -> dict[str, Any]:
        return {
            "test": "paired bootstrap over sentences, two-sided, against the first model",
            "samples": self.samples,
            "seed": self.seed,
            "models": list(self.labels),
            "depths": [asdict(row) for row in self.shared],
            "wins": self.wins,
            "ties": self.ties,
            "mean_bleu": self.mean_bleu,
            "mean_differences": self.mean_differences,
        }


@dataclass(frozen=True)
class GridValue:
    """What a cell shows of one model: a difference to the first model or, without anything to subtract, a BLEU."""

    value: float
    is_difference: bool = False
    is_best: bool = False
    is_significant: bool = False
    counts: bool = True  # in means and wins

    @property
    def text(self) -> str:
        return f"{self.value:+.2f}" if self.is_difference else f"{self.value:.2f}"


GridCell = dict[str, GridValue]


@dataclass(frozen=True)
class ComparisonGrid:
    """Values by label, for each cell and for the means. A label is missing where its model has no such depth.

    Means and wins are over the depths that the first model shares with another; a mean difference is over those that
    the two share.
    """

    labels: tuple[str, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cells: dict[tuple[int, int], GridCell]
    row_means: dict[int, GridCell]
    column_means: dict[int, GridCell]
    overall: GridCell

    @property
    def first(self) -> str:
        return self.labels[0]

    @property
    def has_uncounted(self) -> bool:
        return any(not value.counts for cell in self.cells.values() for value in cell.values())


def compare(
    models: Sequence[ModelSweep], references: Sequence[str], *, samples: int = 1000, seed: int = 12345
) -> Comparison:
    """Compare every model with the first, at each depth that the two have."""
    by_depth = [{one.depth: one for one in model.measurements} for model in models]
    shared = []
    for depth in by_depth[0]:
        at_depth = {m.label: depths[depth] for m, depths in zip(models, by_depth, strict=True) if depth in depths}
        if len(at_depth) < 2:
            continue
        outputs = {label: one.outputs for label, one in at_depth.items()}
        bleu = {label: one.bleu for label, one in at_depth.items()}
        shared.append(_shared_depth(depth, bleu, _p_values(outputs, references, samples, seed)))
    return Comparison(tuple(model.label for model in models), tuple(shared), samples, seed)


def _shared_depth(depth: str, bleu: dict[str, float], p_values: dict[str, float]) -> SharedDepth:
    first, *others = bleu
    top = max(bleu.values())
    winners = [label for label, value in bleu.items() if value == top]
    return SharedDepth(
        depth=depth,
        bleu=bleu,
        differences={label: bleu[label] - bleu[first] for label in others},
        p_values=p_values,
        winner=winners[0] if len(winners) == 1 else None,
    )


def _p_values(
    outputs: dict[str, tuple[str, ...]], references: Sequence[str], samples: int, seed: int
) -> dict[str, float]:
    _, *others = outputs
    found = paired_bootstrap([[lines] for lines in outputs.values()], references, samples=samples, seed=seed)
    return {label: one.p_value for label, one in zip(others, found, strict=True)}


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


def _shared_cell(row: SharedDepth) -> GridCell:
    first, *_ = row.bleu
    return {first: GridValue(row.bleu[first], is_best=row.winner == first)} | {
        label: GridValue(
            difference,
            is_difference=True,
            is_best=row.winner == label,
            is_significant=row.p_values[label] < SIGNIFICANT,
        )
        for label, difference in row.differences.items()
    }


def _apart(models: Sequence[ModelSweep], place: tuple[int, int]) -> GridCell:
    """Where the first model meets no other there is nothing to compare, but what there is can be shown."""
    found = {model.label: model.cell(*place) for model in models}
    return {label: GridValue(one.bleu, counts=False) for label, one in found.items() if one is not None}


def _means(comparison: Comparison, shared: Iterable[SharedDepth]) -> GridCell:
    rows = list(shared)
    if not rows:
        return {}
    means = {comparison.first: GridValue(fmean(row.bleu[comparison.first] for row in rows))}
    for label in comparison.others:
        differences = [row.differences[label] for row in rows if label in row.differences]
        if differences:
            means[label] = GridValue(fmean(differences), is_difference=True)
    return means

"""Several models at the depths they share: who is better where, and is it more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from anydepth.evaluate.experiment import counted, with_figures
from anydepth.evaluate.significance import paired_bootstrap

if TYPE_CHECKING:
    from anydepth.evaluate.sweep import ModelSweep

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class SharedDepth:
    """A depth of the first model and of one other at least; `bleu` holds the models that have it, the first first.

    `p_values` hold those but the first, against the first.
    """

    depth: str
    bleu: dict[str, float]
    p_values: dict[str, float]

    @property
    def differences(self) -> dict[str, float]:
        (_, first), *others = self.bleu.items()
        return {label: value - first for label, value in others}

    @property
    def winner(self) -> str | None:
        top = max(self.bleu.values())
        winners = [label for label, value in self.bleu.items() if value == top]
        return winners[0] if len(winners) == 1 else None


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
        depths = counted(len(self.shared), "depth")
        if self.ties == len(self.shared):
            return f"no model is best at any of {depths}: all are ties"
        (most, count), *others = sorted(self.wins.items(), key=lambda item: -item[1])
        rest = "".join(f", {label} at {fewer}" for label, fewer in others)
        return f"{most} is best at {count} of {depths}{rest}" + (f"; ties: {self.ties}" if self.ties else "")

    @property
    def mean_bleu(self) -> dict[str, float]:
        """Of each model over those of these depths that it has."""
        return _means([row.bleu for row in self.shared], self.labels)

    @property
    def mean_differences(self) -> dict[str, float]:
        """To the first model, over the depths that both have."""
        return _means([row.differences for row in self.shared], self.others)

    def to_json(self) -> dict[str, Any]:
        return {
            "test": "paired bootstrap over sentences, two-sided, against the first model",
            "samples": self.samples,
            "seed": self.seed,
            "models": list(self.labels),
            "depths": [with_figures(row, "differences", "winner") for row in self.shared],
            "wins": self.wins,
            "ties": self.ties,
            "mean_bleu": self.mean_bleu,
            "mean_differences": self.mean_differences,
        }


def compare(
    models: "Sequence[ModelSweep]", references: Sequence[str], *, samples: int = 1000, seed: int = 12345
) -> Comparison:
    """Compare every model with the first, at each depth that the two have."""
    shared = []
    for depth in (one.depth for one in models[0].depths):
        there = {model.label: one for model in models for one in model.depths if one.depth == depth}
        if len(there) > 1:
            outputs = [[one.outputs] for one in there.values()]
            found = paired_bootstrap(outputs, references, samples=samples, seed=seed)
            p_values = {label: one.p_value for label, one in zip(list(there)[1:], found, strict=True)}
            shared.append(SharedDepth(depth, {label: one.bleu for label, one in there.items()}, p_values))
    return Comparison(tuple(model.label for model in models), tuple(shared), samples, seed)


def _means(rows: Sequence[dict[str, float]], labels: Sequence[str]) -> dict[str, float]:
    values = {label: [row[label] for row in rows if label in row] for label in labels}
    return {label: fmean(found) for label, found in values.items() if found}

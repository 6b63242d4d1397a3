"""Which thresholds to measure, and which to take where the user gives none. The validation part decides both."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.evaluate.tradeoff import Outcome

POINTS = 12
PAPER_THRESHOLD = 0.5  # of Dabre, Rubino and Fujita 2020, Section 4.2
BLEU_TO_GIVE_UP = 0.2  # for speed, against the deepest depth
LOWEST, HIGHEST, STEPS = 1e-3, 1e4, 281


def label_thresholds(scores_nk: NDArray[np.floating[Any]], points: int = POINTS) -> list[float]:
    """Each sends an equal share more of the sentences to the deepest depth, from none on; the paper's is among them."""
    highest_n = scores_nk.max(axis=1)
    quantiles = np.quantile(highest_n, np.arange(1, points - 1) / (points - 1))
    return sorted({0.0, PAPER_THRESHOLD, *(_three_figures(value) for value in quantiles.tolist())})


def value_thresholds(mean_seconds: Callable[[float], float], points: int = POINTS) -> list[float]:
    """Such that the mean time falls evenly from that at 0, the best quality whatever the time, to the least."""
    grid = [0.0, *map(_three_figures, np.geomspace(LOWEST, HIGHEST, STEPS).tolist())]
    seconds = np.array([mean_seconds(threshold) for threshold in grid])
    targets = np.linspace(seconds[0], seconds.min(), points)
    # The first of those that are as near: a threshold need not be larger than it takes.
    return sorted({grid[int(np.argmin(np.abs(seconds - target)))] for target in targets})


def default_threshold(kind: str, outcomes: Sequence[Outcome], deepest_bleu: float) -> float:
    """The fastest that loses next to nothing against the deepest, or else the best; for labels, that of the paper."""
    if kind == "labels":
        return PAPER_THRESHOLD
    enough = [one for one in outcomes if one.bleu >= deepest_bleu - BLEU_TO_GIVE_UP]
    if enough:
        return min(enough, key=lambda one: (one.seconds, -one.bleu)).threshold
    return max(outcomes, key=lambda one: (one.bleu, -one.seconds)).threshold


def _three_figures(value: float) -> float:
    """Rounded: people read thresholds and type them."""
    return float(f"{value:.3g}") if math.isfinite(value) else value

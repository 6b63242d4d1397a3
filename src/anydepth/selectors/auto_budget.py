"""A time budget for the learnt selector: of its measured trade-offs the best whose expected time is within it."""

from collections.abc import Callable, Sequence

import numpy as np

from anydepth.selectors.budget import BudgetSelector, in_ms
from anydepth.selectors.learnt import LearntSelector


class AutoWithinBudget:
    """Where no trade-off fits, one depth does for all, or the budget is refused: `fixed` decides that."""

    def __init__(self, selector: LearntSelector, fixed: BudgetSelector, say: Callable[[str], None]) -> None:
        self.selector, self.fixed, self._say = selector, fixed, say
        self._by_quality = sorted(selector.points, key=lambda point: (-point.bleu, point.cost))
        self._said: float | None = None

    def choose(self, sources: Sequence[Sequence[int]]) -> list[str]:
        scores_nk = self.selector.scores(sources)
        lengths_n = np.array([len(source) for source in sources])
        for point in self._by_quality:
            picked_n = self.selector.pick(scores_nk, lengths_n, point.threshold)
            names = [self.selector.depths[k] for k in picked_n]
            expected = self._expected(names, lengths_n.tolist())
            if expected is not None and expected <= self.fixed.budget:
                self._tell(point.threshold, expected)
                self.fixed.has_begun = True
                return names
        if self._said is not None or not self.fixed.has_begun:
            self._say("no trade-off of the selector is within the budget: one depth for all instead")
            self._said = None
        return self.fixed.choose(sources)

    def _expected(self, names: list[str], lengths: list[int]) -> float | None:
        """Mean seconds per sentence, those of one depth in batches of their own; None if a depth was never timed."""
        groups: dict[str, list[int]] = {}
        for name, length in zip(names, lengths, strict=True):
            groups.setdefault(name, []).append(length)
        if not groups.keys() <= self.fixed.costs.keys():
            return None
        return sum(len(group) * self.fixed.costs[name].seconds(group) for name, group in groups.items()) / len(lengths)

    def _tell(self, threshold: float, expected: float) -> None:
        if threshold != self._said:
            within = f"within {in_ms(self.fixed.budget)} ms"
            self._say(f"depth auto, threshold {threshold:.3g}: expects {in_ms(expected)} ms per sentence {within}")
        self._said = threshold

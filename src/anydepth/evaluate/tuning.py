"""From what a selector foresees to what counts: BLEU, on sentences that it has not seen."""

from collections.abc import Sequence
from itertools import product
from statistics import fmean

import numpy as np

from anydepth.evaluate.thresholds import value_thresholds
from anydepth.evaluate.tradeoff import TradeOff
from anydepth.selectors.learned import LearnedSelector, Scores

SLOPES = (0.25, 0.5, 1.0, 2.0, 4.0)
LENGTH_POWERS = (0.0, 0.5, 1.0)


def tuned(selector: LearnedSelector, sources: Sequence[Sequence[int]], tradeoff: TradeOff) -> LearnedSelector:
    """With the mean quality of each depth, how far a sentence deviates, and how its length counts.

    A network that foresees chrF or likelihood knows which sentences gain from depth, not how much BLEU that is. The
    means are those of BLEU on these sentences; the scale of the deviations and the power of the length are the ones
    that end up furthest above the random mixtures, on average over the trade-off.
    """
    scores_nk = selector.scores(sources)
    lengths = [len(source) for source in sources]
    mean_k = np.average(scores_nk, axis=0, weights=lengths)
    deviation_nk = scores_nk - scores_nk[:, [selector.deepest]] - (mean_k - mean_k[selector.deepest])

    def above(slope: float, length_power: float) -> float:
        scaled = selector.with_length_power(length_power)
        return _above(scaled, tradeoff.bleu_k + slope * deviation_nk, lengths, tradeoff)

    slope, length_power = max(product(SLOPES, LENGTH_POWERS), key=lambda both: above(*both))
    return selector.rescaled(mean_k, tradeoff.bleu_k, slope).with_length_power(length_power)


def _above(selector: LearnedSelector, scores_nk: Scores, lengths: Sequence[int], tradeoff: TradeOff) -> float:
    """Mean difference in BLEU to random mixtures that take as long."""
    rows = np.arange(len(lengths))

    def seconds(threshold: float) -> float:
        return float(tradeoff.seconds_nk[rows, selector.pick(scores_nk, lengths, threshold)].mean())

    outcomes = [
        tradeoff.outcome(selector.pick(scores_nk, lengths, threshold), threshold)
        for threshold in value_thresholds(seconds)
    ]
    differences = [one.difference for one in outcomes if one.difference is not None and not one.at_one_depth]
    return fmean(differences) if differences else float("-inf")

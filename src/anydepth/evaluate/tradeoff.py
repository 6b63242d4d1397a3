"""Time against quality, on a table of every depth: fixed depths, random mixtures of them, and a choice per sentence.

A choice per sentence is worth something only above the line of the random mixtures, which come for free. Thresholds
and the scale of a selector are set here too, on the validation part.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.data import Tokenizer
from anydepth.evaluate.every_depth import Chosen, EveryDepth
from anydepth.evaluate.significance import sentence_error
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar
from anydepth.selectors import Selector
from anydepth.selectors.calibration import LengthCost, typical_seconds
from anydepth.selectors.learned import LearnedSelector, Scores

POINTS = 12
PAPER_THRESHOLD = 0.5  # of Dabre, Rubino and Fujita 2020, Section 4.2
BLEU_TO_GIVE_UP = 0.2  # for speed, against the deepest depth
LOWEST, HIGHEST, STEPS = 1e-3, 1e4, 281
SLOPES = (0.25, 0.5, 1.0, 2.0, 4.0)
LENGTH_POWERS = (0.0, 0.5, 1.0)
WARM_UP_SENTENCES = 4
PASSES = 3

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class ChoiceOutcome:
    """What a choice of depths gives. `seconds` are per sentence, with those that choosing takes.

    `mixture` is the BLEU of the random mixture that takes no longer, `hindsight` that of the one that turned out to be
    best here; None if nothing fixed is as fast.
    """

    threshold: float
    seconds: float
    bleu: float
    chrf: float
    mixture: float | None
    share_k: tuple[float, ...]
    is_slowest: bool  # slower than every fixed depth, so that the mixture is the best of those
    hindsight: float | None = None
    sentence_error: float | None = None  # of the difference: what other test sentences would change

    @property
    def difference(self) -> float | None:
        return None if self.mixture is None else self.bleu - self.mixture

    @property
    def at_one_depth(self) -> bool:
        """Then it is a fixed depth, and says nothing of the choice."""
        return max(self.share_k) == 1


class Tradeoff:
    """A table with the seconds that each sentence takes at each depth.

    Mixtures are set up by what is known of other sentences, `plan`, as a selector is. Without it, with hindsight.
    """

    def __init__(self, table: EveryDepth, seconds_nk: Seconds, plan: "Tradeoff | None" = None) -> None:
        if seconds_nk.shape != (len(table), len(table.depths)):
            raise ValueError(f"costs of shape {seconds_nk.shape} do not fit {len(table)} x {len(table.depths)}")
        self.table, self.seconds_nk, self.plan = table, seconds_nk, plan or self
        self.seconds_k: Seconds = seconds_nk.mean(0)
        self._sums = _in_one_row(table)
        single = np.eye(len(table.depths))
        self.bleu_k = np.array([self._sums.mixed_bleu(weights_k) for weights_k in single])
        self.chrf_k: Seconds = table.chrf_nk.mean(0, dtype=np.float64)

    def mixture_bleu(self, seconds: float, hindsight: bool = False) -> float | None:
        """BLEU of the best random mixture that takes `seconds` per sentence or less; None below the fastest depth.

        A mixture draws a depth for each sentence without looking at it. Of those that take exactly `seconds`, all
        pairs of depths on the Pareto front are tried, with the BLEU of their mixed statistics; of the faster ones, the
        fixed depths. A third depth, or one off the front, would be of no use if BLEU were linear in its statistics, and
        is of almost none as it is. Which is best, the plan says.
        """
        weights_k = self._mixture(seconds, hindsight)
        return None if weights_k is None else self._sums.mixed_bleu(weights_k)

    def _mixture(self, seconds: float, hindsight: bool = False) -> Seconds | None:
        """The weights of its depths."""
        plan = self if hindsight else self.plan
        faster = [k for k in plan._front if self.seconds_k[k] <= seconds]
        slower = [k for k in plan._front if self.seconds_k[k] > seconds]
        mixtures = [self._pair(a, b, seconds) for a, b in product(faster, slower)]
        mixtures += [self._pair(k, k, seconds) for k in faster]
        return max(mixtures, key=plan._sums.mixed_bleu, default=None)

    @cached_property
    def _front(self) -> list[int]:
        """Fast to slow: each is better than all that are as fast."""
        by_time = sorted(range(len(self.seconds_k)), key=lambda k: (self.seconds_k[k], -self.bleu_k[k]))
        best_so_far = np.maximum.accumulate(self.bleu_k[by_time])
        return [k for k, before in zip(by_time, [-np.inf, *best_so_far], strict=False) if self.bleu_k[k] > before]

    def _pair(self, faster: int, slower: int, seconds: float) -> Seconds:
        """The weights of two depths that take `seconds` together."""
        apart = self.seconds_k[slower] - self.seconds_k[faster]
        of_slower = (seconds - self.seconds_k[faster]) / apart if apart else 0.0
        weights_k = np.zeros(len(self.seconds_k))
        weights_k[slower] += of_slower
        weights_k[faster] += 1 - of_slower
        return weights_k

    def mixture_line(self, points: int = 60) -> list[tuple[float, float]]:
        """Seconds and BLEU, from the fastest depth to the slowest; every depth's time is among them."""
        even = np.linspace(self.seconds_k.min(), self.seconds_k.max(), points)
        places = np.unique(np.concatenate([even, self.seconds_k]))
        return [(at, bleu) for at in places.tolist() if (bleu := self.mixture_bleu(at)) is not None]

    def outcome(
        self, chosen_n: Chosen, threshold: float = 0.0, overhead: float = 0.0, *, with_error: bool = False
    ) -> ChoiceOutcome:
        """Of a choice; `overhead` is what making it takes, in seconds per sentence. The error takes a bootstrap."""
        chosen = np.asarray(chosen_n)
        seconds = float(self.seconds_nk[np.arange(len(chosen)), chosen].mean()) + overhead
        counts_k = np.bincount(chosen, minlength=len(self.seconds_k))
        return ChoiceOutcome(
            threshold=threshold,
            seconds=seconds,
            bleu=self.table.bleu(chosen),
            chrf=self.table.chrf(chosen),
            mixture=self.mixture_bleu(seconds),
            hindsight=self.mixture_bleu(seconds, hindsight=True),
            share_k=tuple((counts_k / len(chosen)).tolist()),
            is_slowest=seconds > float(self.seconds_k.max()),
            sentence_error=self._sentence_error(chosen, seconds) if with_error else None,
        )

    def _sentence_error(self, chosen_n: NDArray[np.integer[Any]], seconds: float) -> float | None:
        """Of the difference between a choice and the mixture that takes as long."""
        weights_k = self._mixture(seconds)
        if weights_k is None:
            return None
        own_ns = self.table.bleu_nks[np.arange(len(chosen_n)), chosen_n].astype(np.float64)
        return sentence_error(own_ns, np.tensordot(self.table.bleu_nks, weights_k, axes=(1, 0)))

    def oracle(self) -> ChoiceOutcome:
        """The best chrF for each sentence, the fastest of those that tie: what no selector can beat."""
        return self.outcome(self.table.best())


def seconds_at(costs_k: Sequence[LengthCost], lengths_n: Sequence[int] | NDArray[np.integer[Any]]) -> Seconds:
    """For sentences of these lengths, at each depth."""
    lengths = np.asarray(lengths_n, dtype=np.float64)[:, None]
    seconds_nk: Seconds = np.array([one.base for one in costs_k]) + lengths * [one.per_token for one in costs_k]
    return seconds_nk


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


def default_threshold(kind: str, outcomes: Sequence[ChoiceOutcome], deepest_bleu: float) -> float:
    """The fastest that loses next to nothing against the deepest, or else the best; for labels, that of the paper."""
    if kind == "labels":
        return PAPER_THRESHOLD
    enough = [one for one in outcomes if one.bleu >= deepest_bleu - BLEU_TO_GIVE_UP]
    if enough:
        return min(enough, key=lambda one: (one.seconds, -one.bleu)).threshold
    return max(outcomes, key=lambda one: (one.bleu, -one.seconds)).threshold


def tune_selector(selector: LearnedSelector, sources: Sequence[Sequence[int]], tradeoff: Tradeoff) -> LearnedSelector:
    """The selector with its scores on the scale of BLEU, by sentences that it has not seen.

    A network that predicts chrF or likelihood knows which sentences gain from depth, not how much BLEU that is. The
    means are those of BLEU on these sentences; the scale of the deviations and the power of the length are the ones
    that end up furthest above the random mixtures, on average over the trade-off.
    """
    scores_nk = selector.scores(sources)
    lengths = [len(source) for source in sources]
    mean_k = np.average(scores_nk, axis=0, weights=lengths)
    deviation_nk = scores_nk - scores_nk[:, [selector.deepest]] - (mean_k - mean_k[selector.deepest])

    def above(slope: float, length_power: float) -> float:
        scaled = selector.with_length_power(length_power)
        return _mean_difference(scaled, tradeoff.bleu_k + slope * deviation_nk, lengths, tradeoff)

    slope, length_power = max(product(SLOPES, LENGTH_POWERS), key=lambda both: above(*both))
    return selector.rescaled(mean_k, tradeoff.bleu_k, slope).with_length_power(length_power)


@dataclass(frozen=True)
class ChoiceTiming:
    """Mean seconds per sentence at batch 1: each at its chosen depth, all at the deepest, all at the shallowest, and
    of choosing alone.
    """

    sentences: int
    auto: float
    deepest: float
    shallowest: float
    choosing: float

    @property
    def ratio(self) -> float:
        """Of the time that the deepest takes."""
        return self.auto / self.deepest

    @property
    def overhead(self) -> float:
        """Of choosing, over translating at the shallowest depth."""
        return self.choosing / self.shallowest


def seconds_to_choose(selector: Selector, sources: Sequence[Sequence[int]]) -> float:
    """Per sentence, each alone. The sources are token ids that end in EOS."""
    for source in sources[:WARM_UP_SENTENCES]:
        selector.choose([source])
    passes = [[_seconds(lambda: selector.choose([source])) for source in sources] for _ in range(PASSES)]  # noqa: B023
    return fmean(typical_seconds(passes))


def time_choices(
    translator: Translator, selector: Selector, texts: Sequence[str], shallowest: str, *, beam: int
) -> ChoiceTiming:
    """Sentence by sentence in turn, so that a slow minute of the machine falls on all ways alike."""
    ways: dict[str, Selector | str | None] = {"auto": selector, "deepest": None, "shallowest": shallowest}
    for text in texts[:WARM_UP_SENTENCES]:
        for depth in ways.values():
            translator.translate([text], depth=depth, beam=beam)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with progress_bar("timing chosen depths, one by one", len(texts)) as advance:
        for text in texts:
            for name, depth in ways.items():
                seconds[name].append(_seconds(lambda: translator.translate([text], depth=depth, beam=beam)))  # noqa: B023
            advance(1)
    means = {name: fmean(times) for name, times in seconds.items()}
    return ChoiceTiming(len(texts), choosing=seconds_to_choose(selector, token_ids(translator, texts)), **means)


def token_ids(translator: Translator, texts: Sequence[str]) -> list[list[int]]:
    """As the encoder reads them."""
    return [[*ids, Tokenizer.EOS] for ids in translator.subwords(texts)]


def _in_one_row(table: EveryDepth) -> EveryDepth:
    """The sums over all sentences as a table of one: mixtures of it are mixtures of the corpus, and fast."""
    sums_nks = table.bleu_nks.sum(0, keepdims=True, dtype=np.int64)
    one = replace(table, sources=("",), references=("",), outputs=(("",),) * len(table.depths))
    return replace(one, chrf_nk=table.chrf_nk[:1], bleu_nks=sums_nks)


def _three_figures(value: float) -> float:
    """Rounded: people read thresholds and type them."""
    return float(f"{value:.3g}") if math.isfinite(value) else value


def _mean_difference(selector: LearnedSelector, scores_nk: Scores, lengths: Sequence[int], tradeoff: Tradeoff) -> float:
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


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began

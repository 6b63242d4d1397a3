"""Time against quality, on a table of every depth: fixed depths, random mixtures of them, and a choice per sentence.

A choice per sentence is worth something only above the line of the random mixtures: those can be had for nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.evaluate.every_depth import Chosen, EveryDepth
from anydepth.selectors.cost import LengthCost

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
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

    @property
    def difference(self) -> float | None:
        return None if self.mixture is None else self.bleu - self.mixture

    @property
    def at_one_depth(self) -> bool:
        """Then it is a fixed depth, and says nothing of the choice."""
        return max(self.share_k) == 1


class TradeOff:
    """A table with the seconds that each sentence takes at each depth.

    Mixtures are set up by what is known of other sentences, `plan`, as a selector is. Without it, with hindsight.
    """

    def __init__(self, table: EveryDepth, seconds_nk: Seconds, plan: "TradeOff | None" = None) -> None:
        if seconds_nk.shape != (len(table), len(table.depths)):
            raise ValueError(f"costs of shape {seconds_nk.shape} do not fit {len(table)} x {len(table.depths)}")
        self.table, self.seconds_nk, self.plan = table, seconds_nk, plan or self
        self.seconds_k: Seconds = seconds_nk.mean(0)
        self._sums = _in_one_row(table)
        single = np.eye(len(table.depths))
        self.bleu_k = np.array([self._sums.bleu_of_mixture(weights_k) for weights_k in single])
        self.chrf_k: Seconds = table.chrf_nk.mean(0, dtype=np.float64)

    def mixture_bleu(self, seconds: float, hindsight: bool = False) -> float | None:
        """BLEU of the best random mixture that takes `seconds` per sentence or less; None below the fastest depth.

        A mixture draws a depth for each sentence without looking at it. Of those that take exactly `seconds`, all
        pairs of depths on the Pareto front are tried, with the BLEU of their mixed statistics; of the faster ones, the
        fixed depths. A third depth, or one off the front, would be of no use if BLEU were linear in its statistics, and
        is of almost none as it is. Which is best, the plan says.
        """
        plan = self if hindsight else self.plan
        faster = [k for k in plan._front if self.seconds_k[k] <= seconds]
        slower = [k for k in plan._front if self.seconds_k[k] > seconds]
        mixtures = [self._pair(a, b, seconds) for a, b in product(faster, slower)]
        mixtures += [self._pair(k, k, seconds) for k in faster]
        if not mixtures:
            return None
        return self._sums.bleu_of_mixture(max(mixtures, key=plan._sums.bleu_of_mixture))

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

    def outcome(self, chosen_n: Chosen, threshold: float = 0.0, overhead: float = 0.0) -> Outcome:
        """Of a choice; `overhead` is what making it takes, in seconds per sentence."""
        chosen = np.asarray(chosen_n)
        seconds = float(self.seconds_nk[np.arange(len(chosen)), chosen].mean()) + overhead
        counts_k = np.bincount(chosen, minlength=len(self.seconds_k))
        return Outcome(
            threshold=threshold,
            seconds=seconds,
            bleu=self.table.bleu(chosen),
            chrf=self.table.chrf(chosen),
            mixture=self.mixture_bleu(seconds),
            hindsight=self.mixture_bleu(seconds, hindsight=True),
            share_k=tuple((counts_k / len(chosen)).tolist()),
            is_slowest=seconds > float(self.seconds_k.max()),
        )

    def oracle(self) -> Outcome:
        """The best chrF for each sentence, the fastest of those that tie: what no selector can beat."""
        return self.outcome(self.table.best())


def seconds_at(costs_k: Sequence[LengthCost], lengths_n: Sequence[int] | NDArray[np.integer[Any]]) -> Seconds:
    """For sentences of these lengths, at each depth."""
    lengths = np.asarray(lengths_n, dtype=np.float64)[:, None]
    seconds_nk: Seconds = np.array([one.base for one in costs_k]) + lengths * [one.per_token for one in costs_k]
    return seconds_nk


def _in_one_row(table: EveryDepth) -> EveryDepth:
    """The sums over all sentences as a table of one: mixtures of it are mixtures of the corpus, and fast."""
    sums_nks = table.bleu_nks.sum(0, keepdims=True, dtype=np.int64)
    one = replace(table, sources=("",), references=("",), outputs=(("",),) * len(table.depths))
    return replace(one, chrf_nk=table.chrf_nk[:1], bleu_nks=sums_nks)

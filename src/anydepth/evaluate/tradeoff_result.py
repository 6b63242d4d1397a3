"""What `select` found: the trade-off of each kind of selector over thresholds and seeds, and whether it pays."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from anydepth.evaluate.experiment import Conditions, with_figures
from anydepth.evaluate.tradeoff import PAPER_THRESHOLD, ChoiceOutcome, ChoiceTiming, Tradeoff


@dataclass(frozen=True)
class CurvePoint:
    """One threshold: means over the seeds, and their standard errors where there are several.

    It `counts` if it can be judged: not with all sentences at one depth, nor where no mixture is as fast. It is `above`
    the mixture by more than one standard error; `above_hindsight` says so of the one that turned out to be best.
    """

    threshold: float
    seconds: float
    bleu: float
    bleu_standard_error: float | None
    chrf: float
    mixture_bleu: float | None
    difference: float | None  # to the mixture, each seed at its own time
    standard_error: float | None
    counts: bool
    above: bool
    above_hindsight: bool | None
    note: str
    shares: tuple[float, ...]
    seeds: tuple[ChoiceOutcome, ...]

    @classmethod
    def over(cls, seeds: tuple[ChoiceOutcome, ...]) -> "CurvePoint":
        bleu = [one.bleu for one in seeds]
        mixture = _if_all(one.mixture for one in seeds)
        difference = fmean(bleu) - fmean(mixture) if mixture else None
        error = _over_both(
            _standard_error(_if_all(one.difference for one in seeds)), [one.sentence_error for one in seeds]
        )
        at_one_depth, slowest = all(one.at_one_depth for one in seeds), any(one.is_slowest for one in seeds)
        counts = difference is not None and not at_one_depth
        above = counts and not slowest and difference is not None and difference > (error or 0.0)
        hindsight = _if_all(None if one.hindsight is None else one.bleu - one.hindsight for one in seeds)
        note = "slower than any fixed depth" if slowest else ""
        if difference is None:
            note = "faster than any fixed depth: no mixture to compare with"
        return cls(
            threshold=seeds[0].threshold,
            seconds=fmean(one.seconds for one in seeds),
            bleu=fmean(bleu),
            bleu_standard_error=_standard_error(bleu),
            chrf=fmean(one.chrf for one in seeds),
            mixture_bleu=fmean(mixture) if mixture else None,
            difference=difference,
            standard_error=error,
            counts=counts,
            above=above,
            above_hindsight=above and fmean(hindsight) > (error or 0.0) if hindsight else None,
            note="all sentences at one depth: no choice" if at_one_depth else note,
            shares=tuple(map(fmean, zip(*(one.share_k for one in seeds), strict=True))),
            seeds=seeds,
        )


@dataclass(frozen=True)
class SelectorCurve:
    """All points of one kind of selector, slow to fast. `overhead` is the time to choose, seconds per sentence."""

    kind: str
    points: tuple[CurvePoint, ...]
    overhead: float

    @classmethod
    def from_seeds(cls, kind: str, seeds: Sequence[Sequence[ChoiceOutcome]], overhead: float) -> "SelectorCurve":
        """From the outcomes of each seed, all at the same thresholds. Those that choose alike count once."""
        points = [CurvePoint.over(outcomes) for outcomes in zip(*seeds, strict=True)]
        points.sort(key=lambda point: (point.threshold != PAPER_THRESHOLD, point.threshold))
        different: dict[object, CurvePoint] = {}
        for point in points:
            different.setdefault(tuple((one.seconds, one.bleu, one.share_k) for one in point.seeds), point)
        return cls(kind, tuple(sorted(different.values(), key=lambda point: -point.seconds)), overhead)

    @property
    def seeds(self) -> int:
        return len(self.points[0].seeds)

    @property
    def counting(self) -> list[CurvePoint]:
        return [point for point in self.points if point.counts]

    @property
    def above(self) -> list[CurvePoint]:
        return [point for point in self.points if point.above]

    @property
    def surely_above(self) -> int:
        """How many points are above, also with hindsight where that is known."""
        return sum(point.above_hindsight is not False for point in self.above)

    @property
    def mean_difference(self) -> float:
        """To the mixture, over the points that count; without any, it is worse than all."""
        found = [point.difference for point in self.counting if point.difference is not None]
        return fmean(found) if found else -math.inf

    def count(self, by: str = "", hindsight: str = "with hindsight") -> str:
        """How many points are above; in brackets, those that are above the best mixture with hindsight as well."""
        known = bool(self.above) and all(point.above_hindsight is not None for point in self.above)
        brackets = f" ({self.surely_above} {hindsight})" if known else ""
        return f"{len(self.above)} of {len(self.counting)} points{by}{brackets}"

    @property
    def verdict(self) -> str:
        if not self.counting:
            return "not to be judged: at every threshold all sentences are at one depth or no mixture is as fast"
        of_sentences = any(one.sentence_error is not None for point in self.counting for one in point.seeds)
        of_seeds = f"{self.seeds} seeds" if self.seeds > 1 else ""
        over = " and ".join(filter(None, ["sentences" if of_sentences else "", of_seeds]))
        by = f" by more than one standard error over {over}" if over else ""
        by += "" if of_seeds else "," * bool(over) + " with a single seed"
        left_out = len(self.points) - len(self.counting)
        return (
            f"above the random mixture at {self.count(by, 'of them above the best with hindsight, too')}"
            f"{f'; {left_out} more cannot be judged' if left_out else ''}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "verdict": self.verdict,
            "seconds_to_choose": self.overhead,
            "points": [asdict(point) for point in self.points],
        }


def overall_verdict(saved: SelectorCurve, others: Sequence[SelectorCurve] = ()) -> str:
    """Whether choosing is worth it, in a sentence or two: by the selector that is saved, and what the others did."""
    found = f"by {saved.kind}, which was saved, above the random mixture at {saved.count()}"
    if not saved.surely_above:
        verdict = f"Choosing is not worth it here, a fixed depth or a random mixture of depths is as good: {found}"
    else:
        whole = len(saved.above) == len(saved.counting)
        surely = "" if saved.seeds > 1 else ", though a single seed cannot say how surely"
        verdict = f"Choosing is worth it{'' if whole else ' in part'}: {found}{surely}"
    return "; ".join([verdict, *(f"by {curve.kind} at {curve.count()}" for curve in others)]) + "."


@dataclass(frozen=True)
class FixedDepth:
    """One depth for all sentences."""

    name: str
    encoder_layers: int
    decoder_layers: int
    seconds: float
    bleu: float
    chrf: float


@dataclass(frozen=True)
class TradeoffResult:
    """`chosen` is the saved selector's outcome on the test part at the threshold it was saved with."""

    label: str
    conditions: Conditions
    sizes: dict[str, int]  # sentences in each part
    fixed: tuple[FixedDepth, ...]
    deepest: str
    mixture: tuple[tuple[float, float], ...]
    oracle: ChoiceOutcome
    curves: tuple[SelectorCurve, ...]
    saved_kind: str
    threshold: float
    chosen: ChoiceOutcome
    timing: ChoiceTiming
    signatures: dict[str, str]
    fine_tuned_on: str = ""

    @property
    def saved(self) -> SelectorCurve:
        return next(curve for curve in self.curves if curve.kind == self.saved_kind)

    @property
    def deepest_depth(self) -> FixedDepth:
        return next(one for one in self.fixed if one.name == self.deepest)

    @property
    def verdict(self) -> str:
        return overall_verdict(self.saved, [curve for curve in self.curves if curve.kind != self.saved_kind])

    def percentages(self, outcome: ChoiceOutcome) -> dict[tuple[int, int], float]:
        """Of the sentences that are at n and m layers."""
        found: dict[tuple[int, int], float] = {}
        for one, share in zip(self.fixed, outcome.share_k, strict=True):
            place = one.encoder_layers, one.decoder_layers
            found[place] = found.get(place, 0.0) + 100 * share
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "conditions": asdict(self.conditions),
            "sentences": self.sizes,
            "fine_tuned_on": self.fine_tuned_on,
            "verdict": self.verdict,
            "saved": {"kind": self.saved_kind, "threshold": self.threshold, **asdict(self.chosen)},
            "timing": with_figures(self.timing, "ratio", "overhead"),
            "deepest": self.deepest,
            "depths": [asdict(one) for one in self.fixed],
            "mixture": [{"seconds": seconds, "bleu": bleu} for seconds, bleu in self.mixture],
            "oracle": asdict(self.oracle),
            "curves": [curve.to_json() for curve in self.curves],
            "signatures": self.signatures,
        }


def fixed_depths(tradeoff: Tradeoff, layers: Sequence[tuple[int, int]]) -> tuple[FixedDepth, ...]:
    """With the layers of each depth, in the order of the table."""
    figures = np.stack([tradeoff.seconds_k, tradeoff.bleu_k, tradeoff.chrf_k], axis=1).tolist()
    named = zip(tradeoff.table.depths, layers, figures, strict=True)
    return tuple(FixedDepth(name, *sizes, *three) for name, sizes, three in named)


def _if_all(values: Iterable[float | None]) -> list[float]:
    """The values, or nothing if one is missing."""
    found = list(values)
    return [] if None in found else [value for value in found if value is not None]


def _over_both(of_seeds: float | None, of_sentences: Iterable[float | None]) -> float | None:
    """The standard error over the seeds and over the sentences, which all seeds share; None if neither is known."""
    known = _if_all(of_sentences)
    errors = [one for one in (of_seeds, fmean(known) if known else None) if one is not None]
    return math.hypot(*errors) if errors else None


def _standard_error(values: Sequence[float]) -> float | None:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None

"""What `select` found: the trade-off of each kind of selector over thresholds and seeds, and whether it pays."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from anydepth.evaluate.experiment import Conditions
from anydepth.evaluate.tradeoff import PAPER_THRESHOLD, ChoiceOutcome, ChoiceTiming, TradeOff


@dataclass(frozen=True)
class CurvePoint:
    """One threshold, with an outcome for each seed."""

    outcomes: tuple[ChoiceOutcome, ...]

    @property
    def threshold(self) -> float:
        return self.outcomes[0].threshold

    @property
    def seconds(self) -> float:
        return fmean(one.seconds for one in self.outcomes)

    @property
    def bleu(self) -> float:
        return fmean(one.bleu for one in self.outcomes)

    @property
    def chrf(self) -> float:
        return fmean(one.chrf for one in self.outcomes)

    @property
    def share_k(self) -> tuple[float, ...]:
        return tuple(map(fmean, zip(*(one.share_k for one in self.outcomes), strict=True)))

    @property
    def bleu_error(self) -> float | None:
        return _standard_error([one.bleu for one in self.outcomes])

    @property
    def mixture(self) -> float | None:
        found = [one.mixture for one in self.outcomes if one.mixture is not None]
        return fmean(found) if len(found) == len(self.outcomes) else None

    @property
    def difference(self) -> float | None:
        """To the mixture, each seed at its own time."""
        return None if self.mixture is None else self.bleu - self.mixture

    @property
    def error(self) -> float | None:
        """The standard error of the difference, over the seeds and over the test sentences, which all seeds share; None
        if neither is known."""
        found = [one.difference for one in self.outcomes if one.difference is not None]
        if len(found) < len(self.outcomes):
            return None
        of_sentences = [one.sentence_error for one in self.outcomes if one.sentence_error is not None]
        known = [_standard_error(found), fmean(of_sentences) if of_sentences else None]
        return math.hypot(*(one for one in known if one is not None)) if any(one is not None for one in known) else None

    @property
    def is_above_hindsight(self) -> bool:
        """Also above the mixture that turned out to be best."""
        found = [one.bleu - one.hindsight for one in self.outcomes if one.hindsight is not None]
        return self.is_above and len(found) == len(self.outcomes) and fmean(found) > (self.error or 0.0)

    @property
    def counts(self) -> bool:
        """Whether it can be judged: not with all sentences at one depth, nor where no mixture is as fast."""
        return self.difference is not None and not all(one.at_one_depth for one in self.outcomes)

    @property
    def is_above(self) -> bool:
        """By more than one standard error."""
        slowest = any(one.is_slowest for one in self.outcomes)  # a mixture would have that time left over
        return self.counts and not slowest and self.difference is not None and self.difference > (self.error or 0.0)

    @property
    def note(self) -> str:
        if all(one.at_one_depth for one in self.outcomes):
            return "all sentences at one depth: no choice"
        if self.difference is None:
            return "faster than any fixed depth: no mixture to compare with"
        if any(one.is_slowest for one in self.outcomes):
            return "slower than any fixed depth"
        return ""

    def to_json(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold,
            "seconds": self.seconds,
            "bleu": self.bleu,
            "bleu_standard_error": self.bleu_error,
            "chrf": self.chrf,
            "mixture_bleu": self.mixture,
            "difference": self.difference,
            "standard_error": self.error,
            "above": self.is_above,
            "counts": self.counts,
            "note": self.note,
            "shares": list(self.share_k),
            "seeds": [asdict(one) for one in self.outcomes],
        }


@dataclass(frozen=True)
class SelectorCurve:
    """All points of one kind of selector, slow to fast. `overhead` is the time to choose, seconds per sentence."""

    kind: str
    points: tuple[CurvePoint, ...]
    overhead: float

    @classmethod
    def from_seeds(cls, kind: str, seeds: Sequence[Sequence[ChoiceOutcome]], overhead: float) -> "SelectorCurve":
        """From the outcomes of each seed, all at the same thresholds. Those that choose alike count once."""
        points = [CurvePoint(outcomes) for outcomes in zip(*seeds, strict=True)]
        points.sort(key=lambda point: (point.threshold != PAPER_THRESHOLD, point.threshold))
        different: dict[object, CurvePoint] = {}
        for point in points:
            different.setdefault(tuple((one.seconds, one.bleu, one.share_k) for one in point.outcomes), point)
        return cls(kind, tuple(sorted(different.values(), key=lambda point: -point.seconds)), overhead)

    @property
    def seeds(self) -> int:
        return len(self.points[0].outcomes)

    @property
    def counting(self) -> list[CurvePoint]:
        return [point for point in self.points if point.counts]

    @property
    def above(self) -> list[CurvePoint]:
        return [point for point in self.points if point.is_above]

    @property
    def mean_difference(self) -> float:
        """To the mixture, over the points that count; without any, it is worse than all."""
        found = [point.difference for point in self.counting if point.difference is not None]
        return fmean(found) if found else -math.inf

    @property
    def verdict(self) -> str:
        if not self.counting:
            return "not to be judged: at every threshold all sentences are at one depth or no mixture is as fast"
        of_seeds = [f"{self.seeds} seeds"] if self.seeds > 1 else []
        with_error = any(one.sentence_error is not None for point in self.counting for one in point.outcomes)
        over = " and ".join([*(["sentences"] if with_error else []), *of_seeds])
        by = ", ".join(
            [
                *([f"by more than one standard error over {over}"] if over else []),
                *([] if of_seeds else ["with a single seed"]),
            ]
        )
        verdict = f"above the random mixture at {len(self.above)} of {len(self.counting)} points {by}"
        if self.above and all(one.hindsight is not None for point in self.above for one in point.outcomes):
            surely = sum(point.is_above_hindsight for point in self.above)
            verdict += f" ({surely} of them above the best with hindsight, too)"
        left_out = len(self.points) - len(self.counting)
        return verdict + (f"; {left_out} more cannot be judged" if left_out else "")

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "verdict": self.verdict,
            "seconds_to_choose": self.overhead,
            "points": [point.to_json() for point in self.points],
        }


def overall_verdict(saved: SelectorCurve, others: Sequence[SelectorCurve] = ()) -> str:
    """Whether choosing is worth it, in a sentence or two: by the selector that is saved, and what the others did."""
    found = f"by {saved.kind}, which was saved, above the random mixture at {_count(saved)}"
    if not _surely_above(saved):
        verdict = f"Choosing is not worth it here, a fixed depth or a random mixture of depths is as good: {found}"
    else:
        whole = len(saved.above) == len(saved.counting)
        surely = "" if saved.seeds > 1 else ", though a single seed cannot say how surely"
        verdict = f"Choosing is worth it{'' if whole else ' in part'}: {found}{surely}"
    return "; ".join([verdict, *(f"by {curve.kind} at {_count(curve)}" for curve in others)]) + "."


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
    def rows(self) -> list[int]:
        return sorted({one.encoder_layers for one in self.fixed})

    @property
    def columns(self) -> list[int]:
        return sorted({one.decoder_layers for one in self.fixed})

    @property
    def saved(self) -> SelectorCurve:
        return next(curve for curve in self.curves if curve.kind == self.saved_kind)

    @property
    def deepest_depth(self) -> FixedDepth:
        return next(one for one in self.fixed if one.name == self.deepest)

    @property
    def verdict(self) -> str:
        return overall_verdict(self.saved, [curve for curve in self.curves if curve.kind != self.saved_kind])

    def share_at(self, outcome: ChoiceOutcome, n: int, m: int) -> float | None:
        """Of the sentences; None where there is no such depth."""
        there = zip(self.fixed, outcome.share_k, strict=True)
        shares = [share for one, share in there if (one.encoder_layers, one.decoder_layers) == (n, m)]
        return sum(shares) if shares else None

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "conditions": asdict(self.conditions),
            "sentences": self.sizes,
            "fine_tuned_on": self.fine_tuned_on,
            "verdict": self.verdict,
            "saved": {"kind": self.saved_kind, "threshold": self.threshold, **asdict(self.chosen)},
            "timing": {**asdict(self.timing), "ratio": self.timing.ratio, "overhead": self.timing.overhead},
            "deepest": self.deepest,
            "depths": [asdict(one) for one in self.fixed],
            "mixture": [{"seconds": seconds, "bleu": bleu} for seconds, bleu in self.mixture],
            "oracle": asdict(self.oracle),
            "curves": [curve.to_json() for curve in self.curves],
            "signatures": self.signatures,
        }


def fixed_depths(tradeoff: TradeOff, layers: Sequence[tuple[int, int]]) -> tuple[FixedDepth, ...]:
    """With the layers of each depth, in the order of the table."""
    figures = np.stack([tradeoff.seconds_k, tradeoff.bleu_k, tradeoff.chrf_k], axis=1).tolist()
    named = zip(tradeoff.table.depths, layers, figures, strict=True)
    return tuple(FixedDepth(name, *sizes, *three) for name, sizes, three in named)


def _surely_above(curve: SelectorCurve) -> int:
    """How many points are above, also with hindsight where that is known."""
    return sum(point.is_above_hindsight if _has_hindsight(point) else True for point in curve.above)


def _has_hindsight(point: CurvePoint) -> bool:
    return all(one.hindsight is not None for one in point.outcomes)


def _count(curve: SelectorCurve) -> str:
    """How many points are above; in brackets, those that are above the best mixture with hindsight as well."""
    known = curve.above and all(map(_has_hindsight, curve.above))
    return f"{len(curve.above)} of {len(curve.counting)} points" + (
        f" ({_surely_above(curve)} with hindsight)" if known else ""
    )


def _standard_error(values: Sequence[float]) -> float | None:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None

"""All that a run of `select` found out, for the report."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from anydepth.evaluate.experiment import Conditions
from anydepth.evaluate.tradeoff import Outcome, TradeOff
from anydepth.evaluate.tradeoff_curve import Curve, overall_verdict
from anydepth.evaluate.tradeoff_timing import Timing


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
    oracle: Outcome
    curves: tuple[Curve, ...]
    saved_kind: str
    threshold: float
    chosen: Outcome
    timing: Timing
    signatures: dict[str, str]
    fine_tuned_on: str = ""

    @property
    def rows(self) -> list[int]:
        return sorted({one.encoder_layers for one in self.fixed})

    @property
    def columns(self) -> list[int]:
        return sorted({one.decoder_layers for one in self.fixed})

    @property
    def saved(self) -> Curve:
        return next(curve for curve in self.curves if curve.kind == self.saved_kind)

    @property
    def deepest_depth(self) -> FixedDepth:
        return next(one for one in self.fixed if one.name == self.deepest)

    @property
    def verdict(self) -> str:
        return overall_verdict(self.saved, [curve for curve in self.curves if curve.kind != self.saved_kind])

    def share_at(self, outcome: Outcome, n: int, m: int) -> float | None:
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

"""What a sweep found out about one model: a measurement per depth, their means, and the Pareto front."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from anydepth.evaluate.metrics import Quality


@dataclass(frozen=True)
class Measurement:
    """One depth of one model on the whole test set. `seconds` is the median of `seconds_of_passes`."""

    depth: str
    encoder_layers: int
    decoder_layers: int
    quality: Quality
    seconds: float
    seconds_of_passes: tuple[float, ...]
    output_tokens: int
    parameters: int
    bytes: int
    outputs: tuple[str, ...]

    @property
    def bleu(self) -> float:
        return self.quality.bleu

    @property
    def spread(self) -> float:
        """How far the passes are apart, as a share of the median."""
        return (max(self.seconds_of_passes) - min(self.seconds_of_passes)) / self.seconds

    @property
    def seconds_per_sentence(self) -> float:
        return self.seconds / len(self.outputs)

    @property
    def sentences_per_second(self) -> float:
        return len(self.outputs) / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds

    def to_json(self) -> dict[str, Any]:
        quality = asdict(self.quality)
        del quality["bleu_signature"], quality["chrf_signature"]
        return {
            "depth": self.depth,
            "encoder_layers": self.encoder_layers,
            "decoder_layers": self.decoder_layers,
            **quality,
            "seconds": self.seconds,
            "seconds_of_passes": list(self.seconds_of_passes),
            "spread": self.spread,
            "seconds_per_sentence": self.seconds_per_sentence,
            "sentences_per_second": self.sentences_per_second,
            "tokens_per_second": self.tokens_per_second,
            "output_tokens": self.output_tokens,
            "parameters": self.parameters,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class Means:
    bleu: float
    chrf: float
    seconds: float

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> "Means":
        return cls(
            bleu=fmean(one.quality.bleu for one in measurements),
            chrf=fmean(one.quality.chrf for one in measurements),
            seconds=fmean(one.seconds for one in measurements),
        )


@dataclass(frozen=True)
class ModelSweep:
    """All measured depths of the model called `label`, in the order of its menu. The menu may have holes."""

    label: str
    measurements: tuple[Measurement, ...]

    @property
    def rows(self) -> list[int]:
        """The encoder depths n."""
        return sorted({one.encoder_layers for one in self.measurements})

    @property
    def columns(self) -> list[int]:
        """The decoder depths m."""
        return sorted({one.decoder_layers for one in self.measurements})

    def cell(self, n: int, m: int) -> Measurement | None:
        """The depth n-m; the best of them where a menu has several sub-networks of that size."""
        there = (one for one in self.measurements if (one.encoder_layers, one.decoder_layers) == (n, m))
        return max(there, key=lambda one: one.bleu, default=None)

    @property
    def means(self) -> Means:
        return Means.of(self.measurements)

    @property
    def means_of_rows(self) -> dict[int, Means]:
        row = {n: [one for one in self.measurements if one.encoder_layers == n] for n in self.rows}
        return {n: Means.of(measurements) for n, measurements in row.items()}

    @property
    def means_of_columns(self) -> dict[int, Means]:
        column = {m: [one for one in self.measurements if one.decoder_layers == m] for m in self.columns}
        return {m: Means.of(measurements) for m, measurements in column.items()}

    @property
    def best(self) -> Measurement:
        return max(self.measurements, key=lambda one: (one.bleu, -one.seconds))

    @property
    def fastest(self) -> Measurement:
        return min(self.measurements, key=lambda one: (one.seconds, -one.bleu))

    @property
    def front(self) -> list[Measurement]:
        """The Pareto front, fast to slow: no other entry is as good in both and better in one."""
        everyone = self.measurements
        undominated = (one for one in everyone if not any(_dominates(other, one) for other in everyone))
        return sorted(undominated, key=lambda one: (one.seconds, one.bleu))

    @property
    def front_depths(self) -> list[str]:
        return [one.depth for one in self.front]

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "depths": [one.to_json() for one in self.measurements],
            "pareto_front": self.front_depths,
            "means": asdict(self.means),
            "means_of_encoder_depths": {str(n): asdict(means) for n, means in self.means_of_rows.items()},
            "means_of_decoder_depths": {str(m): asdict(means) for m, means in self.means_of_columns.items()},
        }


def _dominates(one: Measurement, other: Measurement) -> bool:
    at_least_equal = one.seconds <= other.seconds and one.bleu >= other.bleu
    return at_least_equal and (one.seconds < other.seconds or one.bleu > other.bleu)

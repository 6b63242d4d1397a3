"""What a sentence costs, from its length: the figures that a time budget is held against.

A length is the number of source sub-words with the end of sentence, as the encoder reads them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anydepth.errors import UserError

FEWEST_DEPTHS = 6

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Cost(Protocol):
    def seconds(self, source_lengths: Sequence[int]) -> float:
        """Mean seconds per sentence when these are translated in one call."""
        ...


@dataclass(frozen=True)
class LengthCost:
    """Seconds of a sentence as a straight line over its length."""

    base: Seconds
    per_token: Seconds

    def seconds(self, source_lengths: Sequence[int]) -> float:
        return self.at(sum(source_lengths) / len(source_lengths)) if source_lengths else 0.0

    def at(self, mean_length: float) -> float:
        return self.base + self.per_token * mean_length

    @classmethod
    def fit(cls, lengths: Sequence[int], seconds: Sequence[float]) -> "LengthCost":
        """Least squares with neither part below 0. The mean over these sentences is kept, for that is what a budget
        promises: the line goes through the point of the means, and only its slope is free.
        """
        if not lengths or len(lengths) != len(seconds):
            raise UserError("a cost needs as many times as sentences, and at least one")
        x, y = np.asarray(lengths, dtype=float), np.asarray(seconds, dtype=float)
        spread = float(((x - x.mean()) ** 2).sum())
        slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else 0.0
        # The error is a parabola in the slope, so that the nearest slope allowed is the best one allowed.
        slope = min(max(slope, 0.0), float(y.mean() / x.mean()))
        return cls(max(0.0, float(y.mean()) - slope * float(x.mean())), slope)


def by_layers(
    costs: Mapping[str, LengthCost], layers: Mapping[str, tuple[int, int]], mean_length: float
) -> dict[str, LengthCost]:
    """The same costs as a fixed part and a part for each encoder and each decoder layer, where there are many depths.

    Time is additive in layers; what is measured is that plus the noise of a busy machine, which this evens out. Errors
    count relative to the time at the mean length, so that the fast depths are as exact as the slow ones. With few
    depths there is nothing to even out, and they stay as they are.
    """
    if len(costs) < FEWEST_DEPTHS:
        return dict(costs)
    parts_k3 = np.array([[1.0, *layers[name]] for name in costs])
    mean_k = np.array([cost.at(mean_length) for cost in costs.values()])
    slope_k = np.array([cost.per_token for cost in costs.values()])
    mean_k, slope_k = (_fitted(parts_k3, value_k, 1 / np.maximum(mean_k, 1e-9)) for value_k in (mean_k, slope_k))
    slope_k = np.minimum(slope_k, mean_k / mean_length)
    lines = zip(costs, (mean_k - slope_k * mean_length).tolist(), slope_k.tolist(), strict=True)
    return {name: LengthCost(max(0.0, base), slope) for name, base, slope in lines}


def _fitted(
    parts_k3: NDArray[np.float64], value_k: NDArray[np.float64], weight_k: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weighted least squares without negative parts."""
    used = list(range(parts_k3.shape[1]))
    while True:
        part_of = np.linalg.lstsq(parts_k3[:, used] * weight_k[:, None], value_k * weight_k, rcond=None)[0]
        if len(used) == 1 or part_of.min() >= 0:
            return np.maximum(parts_k3[:, used] @ part_of, 0.0)
        del used[int(part_of.argmin())]


@dataclass(frozen=True)
class BatchCost:
    """From times at batch 1 and in batches of `measured` sentences, those in batches of at most `batch_size`.

    Part of the time of a batch is there however many sentences share it, so that a sentence's time falls with the
    inverse of their number. Larger batches than measured count as if they were no faster.
    """

    single: LengthCost
    batched: LengthCost
    measured: float
    batch_size: int

    def seconds(self, source_lengths: Sequence[int]) -> float:
        if not source_lengths:
            return 0.0
        alone = self._likeness_to_single(sentences_per_batch(len(source_lengths), self.batch_size))
        return alone * self.single.seconds(source_lengths) + (1 - alone) * self.batched.seconds(source_lengths)

    def _likeness_to_single(self, size: float) -> float:
        if self.measured <= 1:
            return 1.0
        return max(0.0, (1 / size - 1 / self.measured) / (1 - 1 / self.measured))


def sentences_per_batch(sentences: int, batch_size: int) -> float:
    """The mean over the batches of a call, the last of which may be smaller."""
    return sentences / math.ceil(sentences / batch_size)


def typical_seconds(passes: Sequence[Sequence[float]]) -> list[float]:
    """One time per sentence from several passes over all of them: the median, scaled so that the mean over the
    sentences is that of the median pass.

    Medians alone would leave out every interruption, although a user waits for the usual number of them.
    """
    medians = np.median(np.asarray(passes, dtype=float), axis=0)
    mean = float(np.median([np.mean(times) for times in passes]))
    return [float(value) for value in medians * (mean / medians.mean())]

"""The learnt selector: a depth for each sentence, by a small network that reads it before it is translated."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anydepth.depth.subnetwork import parse_depth
from anydepth.selectors.config import Kind, SelectorConfig
from anydepth.selectors.cost import LengthCost
from anydepth.selectors.labelled import join_level
from anydepth.selectors.network import DepthPredictor
from anydepth.selectors.reading import Reader
from anydepth.word_depths.scores import WordScores

BATCH = 64
DEFAULT_THRESHOLDS: dict[Kind, float] = {"labels": 0.5, "values": 1.0, "likelihood": 1.0}

Scores = NDArray[np.floating[Any]]
Lengths = Sequence[int] | NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Point:
    """What a threshold gave on held-out sentences. The cost is the mean time, the deepest depth's being 1."""

    threshold: float
    cost: float
    bleu: float
    chrf: float


class LearntSelector:
    """Implements `Selector`. Its depths are ordered fastest first.

    kind "labels": the threshold is the probability that the likeliest depth must reach; otherwise it is the deepest.
    kinds "values" and "likelihood": the threshold is what time is worth, so many points of quality for all of the time
    that the deepest depth takes. At 4, a depth that saves a quarter of the time is taken if it is expected to lose
    less than 1 point. At 0 time is worth nothing; the larger, the faster. The points of a sentence count by its length
    to the power of `length_power`: 1 as words count, 0 as sentences do.
    """

    def __init__(
        self,
        network: DepthPredictor,
        read: Reader,
        depths: Sequence[str],
        relative_cost_k: Sequence[LengthCost],
        mean_length: float,
        threshold: float | None = None,
        points: Sequence[Point] = (),
        length_power: float = 1.0,
    ) -> None:
        self.network, self.read = network.eval(), read
        self._words = WordScores(network) if network.is_of_words else None
        self.depths = tuple(depths)
        self.relative_cost_k = tuple(relative_cost_k)
        self.mean_length = mean_length  # of the sentences it was trained on
        self.threshold = DEFAULT_THRESHOLDS[self.kind] if threshold is None else threshold
        self.points, self.length_power = tuple(points), length_power
        self.deepest = deepest_of(depths)
        self._base_k = np.array([cost.base for cost in relative_cost_k])
        self._per_token_k = np.array([cost.per_token for cost in relative_cost_k])

    @property
    def config(self) -> SelectorConfig:
        return self.network.config

    @property
    def kind(self) -> Kind:
        return self.config.kind

    def with_threshold(self, threshold: float) -> "LearntSelector":
        """The same network, more daring or more careful."""
        other = copy.copy(self)
        other.threshold = threshold
        return other

    def with_points(self, points: Sequence[Point]) -> "LearntSelector":
        other = copy.copy(self)
        other.points = tuple(points)
        return other

    def with_length_power(self, length_power: float) -> "LearntSelector":
        other = copy.copy(self)
        other.length_power = length_power
        return other

    def rescaled(self, mean_k: Scores, quality_k: Scores, slope: float) -> "LearntSelector":
        """Expect `quality_k` of the depths on average, and of a sentence more or less of it by what the network says.

        `mean_k` is what it says on average. A difference to the deepest counts `slope` times.
        """
        other = copy.copy(self)
        other.network = copy.deepcopy(self.network)
        k, network = self.deepest, other.network
        differences = torch.from_numpy(np.asarray(mean_k - mean_k[k])).to(network.offset_k)
        network.scale_k.mul_(slope)
        network.offset_k.sub_(differences).mul_(slope)
        network.offset_k.add_(torch.from_numpy(np.asarray(quality_k - quality_k[k])).to(network.offset_k))
        network.scale_k[k], network.offset_k[k] = 0.0, float(quality_k[k])
        other._words = WordScores(network) if network.is_of_words else None
        return other

    def choose(self, sources: Sequence[Sequence[int]]) -> list[str]:
        lengths = [len(source) for source in sources]
        return [self.depths[k] for k in self.pick(self.scores(sources), lengths, self.threshold)]

    def scores(self, sources: Sequence[Sequence[int]]) -> Scores:
        """What the network says, [n, k]: the probability that a depth is a best one, or the quality to expect of it."""
        if self._words is not None and sources:
            return self._joined(np.stack([self._words(source, self.read.figures(source)) for source in sources]))
        if len(sources) == 1:
            return self._scores(sources)
        scores_nk = np.zeros((len(sources), len(self.depths)), np.float32)
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            scores_nk[batch] = self._scores([sources[i] for i in batch])
        return scores_nk

    @torch.inference_mode()
    def _scores(self, sources: Sequence[Sequence[int]]) -> Scores:
        return self._joined(self.network(self.read(sources)).cpu().numpy())

    def _joined(self, output_nk: NDArray[np.float32]) -> Scores:
        """From what the network gives to what it means."""
        if self.kind == "labels":
            probability_nk: Scores = (1 + np.tanh(output_nk / 2)) / 2  # the sigmoid, which never overflows
            return probability_nk
        return join_level(output_nk, self.deepest)

    def pick(self, scores_nk: Scores, lengths_n: Lengths, threshold: float) -> NDArray[np.intp]:
        """The places of the depths to take, [n]; of equals, the fastest."""
        if self.kind == "labels":
            best_n: NDArray[np.intp] = np.argmax(scores_nk, axis=1)
            return np.where(scores_nk.max(axis=1) >= threshold, best_n, self.deepest)
        length_n1 = np.asarray(lengths_n, dtype=np.float64)[:, None]
        time_nk = self._base_k + self._per_token_k * length_n1
        weight_n1 = (length_n1 / self.mean_length) ** self.length_power
        chosen_n: NDArray[np.intp] = np.argmax(scores_nk * weight_n1 - threshold * time_nk, axis=1)
        return chosen_n


def deepest_of(depths: Sequence[str]) -> int:
    """The place of the depth with the most layers."""
    return max(range(len(depths)), key=lambda k: sum(parse_depth(depths[k])))

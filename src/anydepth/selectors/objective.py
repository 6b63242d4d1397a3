"""How a selector of depths is trained: on the best depths of each sentence, or on the chrF of each depth."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from anydepth.objectives.base import Loss, Objective
from anydepth.selectors.data import SelectorBatch, SelectorData, best_depths, label_shares, variances
from anydepth.selectors.learned import split_level
from anydepth.selectors.network import DepthPredictor, SelectorConfig

# How good the deepest depth is does not change the choice among depths; it is learned too, so that users can be told
# what chrF to expect.
LEVEL_WEIGHT = 0.1
SMALLEST_VARIANCE = 0.01  # in squared points of chrF: below it there is nothing to learn


class SelectionObjective(Objective):
    """A loss of what the network gives for each sentence and depth."""

    def forward(self, model: DepthPredictor, batch: SelectorBatch, step: int) -> Loss:
        return self.compute_loss(model(batch.inputs), batch.quality_bk, batch.weight_b)

    @abstractmethod
    def compute_loss(self, output_bk: Tensor, quality_bk: Tensor, weight_b: Tensor) -> Loss:
        """The mean over the sentences, each counting its weight."""


class DepthLabels(SelectionObjective):
    """Which depths have the sentence's best chrF (Dabre, Rubino and Fujita 2020, Equations 3 and 4)."""

    delta_k: Tensor

    def __init__(self, share_k: Tensor, alpha: float, beta: float, mix: float) -> None:
        super().__init__()
        self.beta, self.mix = beta, mix
        self.register_buffer("delta_k", (1 - share_k) ** alpha, persistent=False)

    def compute_loss(self, output_bk: Tensor, quality_bk: Tensor, weight_b: Tensor) -> Loss:
        """The network gives logits."""
        labels_bk = best_depths(quality_bk)
        bce = _mean(self.cross_entropy(output_bk, labels_bk).mean(1), weight_b)
        f_beta = _mean(self.f_beta(output_bk, labels_bk), weight_b)
        total = self.mix * bce + (1 - self.mix) * (1 - f_beta)
        return Loss(total, {"bce": bce.detach(), "f_beta": f_beta.detach()})

    def cross_entropy(self, logits_bk: Tensor, labels_bk: Tensor) -> Tensor:
        """Eq. 3 of each sentence and depth; softplus(-z) is -log sigmoid(z) and never overflows."""
        return self.delta_k * labels_bk * F.softplus(-logits_bk) + (1 - labels_bk) * F.softplus(logits_bk)

    def f_beta(self, logits_bk: Tensor, labels_bk: Tensor) -> Tensor:
        """F of each sentence. With P and R put in, Eq. 4 is a single fraction, and never 0 / 0: each has a label."""
        probability_bk = torch.sigmoid(logits_bk)
        both_b = (probability_bk * labels_bk).sum(1)
        square = self.beta**2
        return (1 + square) * both_b / (square * labels_bk.sum(1) + probability_bk.sum(1))


class DepthValues(SelectionObjective):
    """The chrF of each depth, as that of the deepest and the differences to it, sentences weighted by length.

    Errors are squared because the mean counts: most differences are 0, so a more tolerant loss would learn the median,
    and find all depths alike. In units of the variance: 1 is what the mean of all sentences gives.
    """

    def __init__(self, deepest: int, variance_k: Tensor, level_weight: float = LEVEL_WEIGHT) -> None:
        super().__init__()
        self.deepest, self.level_weight = deepest, level_weight
        self.level_variance = max(SMALLEST_VARIANCE, float(variance_k[deepest]))
        rest = float(variance_k.sum() - variance_k[deepest])
        self.difference_variance = max(SMALLEST_VARIANCE, rest)

    def compute_loss(self, output_bk: Tensor, quality_bk: Tensor, weight_b: Tensor) -> Loss:
        """The network gives what `split_level` makes of chrF."""
        error_bk = (output_bk - split_level(quality_bk, self.deepest)) ** 2
        level_b = error_bk[:, self.deepest]
        level = _mean(level_b, weight_b) / self.level_variance
        difference = _mean(error_bk.sum(1) - level_b, weight_b) / self.difference_variance
        total = difference + self.level_weight * level
        parts = {"difference": difference.detach(), "level": level.detach()}
        return Loss(total, parts)


def make_objective(config: SelectorConfig, data: SelectorData) -> SelectionObjective:
    """The loss that `config` asks for, with the statistics of the training data."""
    if config.kind == "labels":
        return DepthLabels(label_shares(data), config.alpha, config.beta, config.mix)
    return DepthValues(data.deepest, variances(data)[1])


def comparison_objective(config: SelectorConfig, data: SelectorData) -> SelectionObjective:
    """The loss that configurations are compared by.

    The paper compares each by its own alpha, beta and lambda, but a smaller loss may then only be a milder one. Of
    values, only the differences count: they alone decide.
    """
    if config.kind == "labels":
        return DepthLabels(label_shares(data), alpha=0.0, beta=1.0, mix=0.5)
    return DepthValues(data.deepest, variances(data)[1], level_weight=0.0)


def _mean(value_b: Tensor, weight_b: Tensor) -> Tensor:
    return (value_b * weight_b).sum() / weight_b.sum()

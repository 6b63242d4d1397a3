"""Sentences with how good each depth is for them: what a selector learns from, in batches for the trainer.

The quality is chrF or, in points of the same size, the likelihood of the reference.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.data import plan_epoch
from anydepth.data.batches import WHOLE, Indices, Share
from anydepth.selectors.config import Kind
from anydepth.selectors.network import DepthPredictor
from anydepth.selectors.reading import Inputs

MOST_CERTAIN = 0.99  # share of a label above which, or below 1 minus which, its offset does not grow further


@dataclass(frozen=True)
class Labelled:
    """`sources` are token ids that end in EOS; `deepest` is the place of the deepest depth among the k."""

    sources: Sequence[Sequence[int]]
    quality_nk: NDArray[np.float32]
    deepest: int

    @property
    def lengths_n(self) -> NDArray[np.int64]:
        return np.array([len(source) for source in self.sources], dtype=np.int64)

    def weights_n(self, kind: Kind) -> NDArray[np.int64]:
        """What each sentence counts: as in the paper all the same, or by length, as in the quality of a corpus."""
        return np.ones(len(self.sources), dtype=np.int64) if kind == "labels" else self.lengths_n

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.quality_nk).tobytes())
        for source in self.sources:
            digest.update(np.asarray(source, dtype=np.int32).tobytes() + b";")
        return digest.hexdigest()


@dataclass(frozen=True)
class LabelledBatch:
    inputs: Inputs
    quality_bk: Tensor
    weight_b: Tensor
    terms: int  # the sum of the weights

    @property
    def source_terms(self) -> int:
        return self.terms

    def to(self, device: torch.device | str) -> "LabelledBatch":
        """The inputs are where the model that made them is."""
        return LabelledBatch(self.inputs, self.quality_bk.to(device), self.weight_b.to(device), self.terms)


class LabelledStream:
    """The batch at a position (epoch, index), as text.BatchStream has it."""

    together = 1

    def __init__(
        self,
        data: Labelled,
        kind: Kind,
        read: Callable[[Sequence[Sequence[int]]], Inputs],
        batch_tokens: int,
        seed: int,
    ) -> None:
        self._data, self._read, self._batch_tokens, self._seed = data, read, batch_tokens, seed
        self._lengths_n, self._weights_n = data.lengths_n, data.weights_n(kind)
        self._epoch = -1
        self._plan: list[Indices] = []

    def batches_in(self, epoch: int) -> int:
        return len(self._plan_of(epoch))

    def at(self, epoch: int, index: int, share: Share = WHOLE) -> LabelledBatch:
        rows = share.rows(self._plan_of(epoch)[index])
        with torch.no_grad():
            inputs = self._read([self._data.sources[row] for row in rows])
        weights = self._weights_n[rows]
        quality_bk = torch.from_numpy(self._data.quality_nk[rows])
        return LabelledBatch(inputs, quality_bk, torch.from_numpy(weights).float(), int(weights.sum()))

    def all(self) -> Iterator[LabelledBatch]:
        """Every sentence once."""
        return (self.at(0, index) for index in range(self.batches_in(0)))

    def _plan_of(self, epoch: int) -> list[Indices]:
        if epoch != self._epoch:
            sub_words = (self._lengths_n - 1).astype(np.int32)  # without EOS, which the plan adds
            self._plan = plan_epoch(sub_words, sub_words, self._batch_tokens, self._seed, epoch)
            self._epoch = epoch
        return self._plan


def best_depths(quality_bk: Tensor) -> Tensor:
    """The paper's labels: 1 at every depth that has the sentence's best chrF."""
    return (quality_bk == quality_bk.amax(1, keepdim=True)).to(quality_bk.dtype)


def split_level(quality_bk: Tensor, deepest: int) -> Tensor:
    """The difference of each depth to the deepest; in the column of the deepest, how good that one is."""
    level_b1 = quality_bk[:, deepest : deepest + 1]
    split_bk = quality_bk - level_b1
    split_bk[:, deepest] = level_b1[:, 0]
    return split_bk


def join_level(split_nk: NDArray[np.float32], deepest: int) -> NDArray[np.float32]:
    """The quality of each depth: undoes `split_level`."""
    level_n1 = split_nk[:, deepest : deepest + 1]
    quality_nk = split_nk + level_n1
    quality_nk[:, deepest] = level_n1[:, 0]
    return quality_nk


def share_of_labels(data: Labelled) -> Tensor:
    """Of each depth the share of the sentences that it is a best one for."""
    return best_depths(torch.from_numpy(data.quality_nk)).mean(0)


def variances(data: Labelled) -> tuple[Tensor, Tensor]:
    """Means and variances of what `split_level` gives, [k] each, weighted as the loss is."""
    split_nk = split_level(torch.from_numpy(data.quality_nk), data.deepest).double()
    weight_n = torch.from_numpy(data.weights_n("values")).double()
    weight_n = weight_n / weight_n.sum()
    mean_k = weight_n @ split_nk
    return mean_k.float(), (weight_n @ (split_nk - mean_k) ** 2).float()


@torch.no_grad()
def standardise(network: DepthPredictor, data: Labelled, figures_nf: Tensor) -> None:
    """Set the constants of a new network, so that it begins with the mean of the training data."""
    network.figures_scale_f.copy_(1 / figures_nf.std(0, correction=0).clamp(min=1e-3))
    network.figures_shift_f.copy_(-figures_nf.mean(0) * network.figures_scale_f)
    if network.config.kind == "labels":
        network.offset_k.copy_(torch.logit(share_of_labels(data), eps=1 - MOST_CERTAIN))
        return
    mean_k, variance_k = variances(data)
    network.offset_k.copy_(mean_k)
    others = torch.arange(len(mean_k)) != data.deepest
    # One scale for all differences: a chrF point is one, whichever depth it is lost at.
    network.scale_k.fill_(_root_mean(variance_k[others]))
    network.scale_k[data.deepest] = _root_mean(variance_k[[data.deepest]])


def _root_mean(variance_k: Tensor) -> float:
    return max(0.1, float(variance_k.mean().sqrt())) if len(variance_k) else 1.0

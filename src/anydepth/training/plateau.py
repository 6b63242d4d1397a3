"""The unigram plateau: has a run learned more than how often each subword occurs?

A model whose lower layers get no gradient, or whose updates are too large, learns the frequencies of its outputs and
nothing else. Its loss is finite and stays near the entropy of their distribution, so it does not count as diverged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from anydepth.config.data import Task
from anydepth.data import Tokenizer
from anydepth.data.shards import PairStore
from anydepth.training.run_log import read_log

NEAR = 0.95  # of the entropy: above it, next to nothing was learned from the context
LEAST_UPDATES = 100  # before that nothing can be said
SAMPLE = 50_000  # sentences, spread over the corpus


@dataclass(frozen=True)
class Plateau:
    """A training loss per term that is no better than the entropy of what is predicted, both in nats."""

    nll: float
    entropy: float
    advice: str

    def __str__(self) -> str:
        return (
            f"this run sits on the unigram plateau: its loss of {self.nll:.2f} nats is what the frequencies of the "
            f"outputs alone give (entropy {self.entropy:.2f}), so it learned nothing from its inputs; {self.advice}"
        )


def unigram_entropy(stores: Sequence[PairStore], task: Task) -> float:
    """The entropy of the training targets, subwords or labels, in nats: the mean over language pairs."""
    return fmean(_entropy(store, ends=task == "translation") for store in stores)


def _entropy(store: PairStore, *, ends: bool) -> float:
    """`ends`: every target ends in EOS, which is predicted as well."""
    chosen = np.unique(np.linspace(0, len(store) - 1, min(SAMPLE, len(store))).astype(np.int64))
    counts = np.bincount(np.concatenate([store.pair(int(index))[1] for index in chosen]), minlength=Tokenizer.EOS + 1)
    counts[Tokenizer.EOS] += len(chosen) if ends else 0
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def is_on_plateau(nll: float, entropy: float, step: int) -> bool:
    return step >= LEAST_UPDATES and nll > NEAR * entropy


def find_plateau(run: Path, entropy: float, advice: str) -> Plateau | None:
    """Where a run has ended, by the last record of its log."""
    records = [record for record in read_log(run) if record["kind"] == "train" and "nll" in record]
    if not records or not is_on_plateau(records[-1]["nll"], entropy, records[-1]["step"]):
        return None
    return Plateau(records[-1]["nll"], entropy, advice)


def plateau_advice(norm: str, remedy: str) -> str:
    """What to change; norms after the branches, or none, are the usual reason in a deep model."""
    return remedy if norm == "layer" else f"{remedy}, or with model.norm=layer"

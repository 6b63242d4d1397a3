"""Ways of classifying against the clock: texts in, labels out, tokenizing and looking up depths included."""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from anydepth.evaluate.classification_result import Setting
from anydepth.infer.classifier import Classification, Classifier

SAMPLE_SEED = 1
WARM_UP_TEXTS = 16


@dataclass
class Way:
    """A model run in one way. `seconds` has, by batch size, the time that each round took per text."""

    classifier: Classifier
    setting: Setting
    seconds: dict[int, list[float]] = field(default_factory=dict)

    def classify(
        self, texts: Sequence[str], batch_size: int, progress: Callable[[int], None] = lambda count: None
    ) -> list[Classification]:
        setting = self.setting
        return self.classifier.classify(
            texts,
            depth=setting.depth,
            scale=setting.scale,
            lambda_=setting.lambda_,
            batch_size=batch_size,
            progress=progress,
        )

    @property
    def median_seconds(self) -> dict[int, float]:
        return {size: median(rounds) for size, rounds in self.seconds.items()}


def sample(texts: Iterable[str], count: int) -> list[str]:
    """The first of all texts in an order that is always the same. Short ones then come first, so that texts of a batch
    are alike in length, as they are in files."""
    mixed = list(texts)
    random.Random(SAMPLE_SEED).shuffle(mixed)
    return sorted(mixed[:count], key=len)


def time_ways(
    ways: Sequence[Way],
    texts: Sequence[str],
    batch_sizes: Sequence[int],
    repeats: int,
    progress: Callable[[int], None],
) -> None:
    """Fill in the seconds. A round goes through all ways, so that a slow minute of the machine falls on all alike."""
    for way in ways:
        for size in batch_sizes:
            _seconds(way, texts[:: max(len(texts) // WARM_UP_TEXTS, 1)], size)
    for _ in range(repeats):
        for size in batch_sizes:
            for way in ways:
                way.seconds.setdefault(size, []).append(_seconds(way, texts, size) / len(texts))
                progress(len(texts))


def _seconds(way: Way, texts: Sequence[str], size: int) -> float:
    """With a call for each batch: it cannot be foreseen which texts come next."""
    start = time.perf_counter()
    for first in range(0, len(texts), size):
        way.classify(texts[first : first + size], size)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start

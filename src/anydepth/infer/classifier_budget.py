"""A time budget for a classifier: every depth is timed on this machine with made-up texts, and the best is taken."""

import logging
import random
import time
from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from anydepth.depth import DepthMenu
from anydepth.selectors.budget import BudgetSelector
from anydepth.selectors.calibration import LengthCost

if TYPE_CHECKING:
    from anydepth.infer.classifier import Classifier

log = logging.getLogger(__name__)

SHORT, LONG = 16, 128  # subwords of the texts that are timed
ROUNDS = 5
PATIENCE = 2.0  # seconds: slow models are timed in fewer rounds
SEED = 1


def time_depths(classifier: "Classifier", batch_size: int) -> dict[str, LengthCost]:
    """Seconds per text at each depth in batches of this size, as a line over the length of a text.

    Where each word has its own depth, the texts are of words of the table, each as often as any other. Frequent words
    tend to be less deep than that, so real texts are rather faster.
    """
    names = classifier.depths
    texts = {length: _texts(classifier, length, batch_size) for length in (SHORT, LONG)}
    for name in names:
        _seconds(classifier, texts[SHORT], name)  # the first run of each is slow
    once = sum(_seconds(classifier, texts[length], names[-1]) for length in texts) * len(names)
    rounds = max(1, min(ROUNDS, int(PATIENCE / max(once, 1e-6))))
    lengths = [len(classifier.read([texts[length][0]])[0]) for length in texts]
    return {
        name: LengthCost.fit(
            lengths, [median(_seconds(classifier, texts[length], name) for _ in range(rounds)) for length in texts]
        )
        for name in names
    }


class DepthRatings(NamedTuple):
    """How good each depth is, by what, and measured on which test set."""

    quality: dict[str, float]
    metric: str
    measured_on: str = ""


def rate_depths(costs: Mapping[str, LengthCost], menu: DepthMenu) -> DepthRatings:
    """By the accuracy of the depths. Unless it is known of all of them, more layers count as better."""
    measured = {entry.name: entry.quality["accuracy"] for entry in menu if "accuracy" in entry.quality}
    if measured.keys() >= costs.keys():
        on = str(menu.measured_on.get("test_set", ""))
        return DepthRatings({name: measured[name] for name in costs}, "accuracy", on)
    return DepthRatings({name: float(name.partition("-")[0]) for name in costs}, "layers")


def make_budget(seconds: float, costs: Mapping[str, LengthCost], menu: DepthMenu) -> BudgetSelector:
    """Of the depths within this time per text, it takes the best."""
    quality, metric, on = rate_depths(costs, menu)
    if metric == "layers":
        log.info("not all depths of this model have been evaluated: of those within the budget the deepest is taken")
    return BudgetSelector(costs, quality, seconds, measured_on=on, metric=metric, unit="text")


def _texts(classifier: "Classifier", length: int, count: int) -> list[str]:
    """Of about this many subwords each, always the same."""
    rng, table = random.Random(SEED), classifier.token_depths
    words = list(table.table.values) if table is not None and table.table.values else []
    tokenizer = classifier.tokenizer
    if not words:
        ids = [i for i in range(tokenizer.vocabulary_size) if i not in tokenizer.specials and i != tokenizer.UNK]
        words = [tokenizer.decode([i]) for i in rng.sample(ids, min(len(ids), 1000))]
    longest = max(1, min(length, classifier.longest_source))
    ids_of = tokenizer.encode_many([" ".join(rng.choices(words, k=longest)) for _ in range(count)])
    return [tokenizer.decode(ids[:longest]) for ids in ids_of]


def _seconds(classifier: "Classifier", texts: list[str], depth: str) -> float:
    """Per text."""
    began = time.perf_counter()
    classifier.classify(texts, depth=depth, batch_size=len(texts))
    return (time.perf_counter() - began) / len(texts)

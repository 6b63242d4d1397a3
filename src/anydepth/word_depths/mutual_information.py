"""Depths from mutual information: an informative word needs few layers (Liu et al. 2021, Eq. 2 and 3).

Shapes: w words.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from anydepth.data.words import split_words
from anydepth.errors import UserError
from anydepth.word_depths.table import DIGITS, WordDepths, mean_values

SMOOTHING = 0.1
SAME = 1e-12  # rounding errors of a logarithm
MANY_LABELS = 100
ALIKE = 20  # words that are about as frequent as each other

Floats = NDArray[np.float64]


@dataclass
class WordCounts:
    """`present`: in how many texts of a label a word is. `occurrences`: how often a word is in all texts together."""

    texts: Counter[str] = field(default_factory=Counter)  # of each label
    present: dict[str, Counter[str]] = field(default_factory=dict)  # label -> word -> texts
    occurrences: Counter[str] = field(default_factory=Counter)


def count_words(pairs: Iterable[tuple[str, str]], advance: Callable[[int], None] = lambda count: None) -> WordCounts:
    """Count in one pass over (text, label). Memory grows with the vocabulary alone. `advance` is called for each."""
    counts = WordCounts()
    for text, label in pairs:
        words = split_words(text)
        counts.texts[label] += 1
        counts.occurrences.update(words)
        counts.present.setdefault(label, Counter()).update(set(words))
        advance(1)
    return counts


def mutual_information(counts: WordCounts, floor: float | None = None) -> dict[str, float]:
    """The information that the presence of a word gives about the label, in nats, summed over the labels.

    For each label, texts are counted four ways: with or without the word, of the label or not. 0.1 is added to each
    of the four. Divided by their sum these are the joint probabilities, and their row and column sums the marginal
    ones, so that no information is below 0. What is below the floor, by default the level of chance, is
    raised to it.
    """
    numbers = {word: number for number, word in enumerate(counts.occurrences)}
    present = {label: _scattered(words, numbers) for label, words in counts.present.items()}
    with_word_w = sum(present.values(), np.zeros(len(numbers)))
    all_texts = counts.texts.total()
    information_w = np.zeros(len(numbers))
    for label, both_w in present.items():
        of_label = counts.texts[label]
        information_w += _information(
            both_w, with_word_w - both_w, of_label - both_w, all_texts - of_label - with_word_w + both_w
        )
    information_w = np.maximum(information_w, chance_level(counts) if floor is None else floor)
    return dict(zip(numbers, information_w.tolist(), strict=True))


def chance_level(counts: WordCounts) -> float:
    """The information that a word which tells nothing is expected to show, in nats: labels / (2 texts).

    Of a 2 x 2 table of n texts, 2 n times the information is the G statistic. If word and label are independent, G has
    a chi-squared distribution with one degree of freedom, whose mean is 1, so the information has the mean 1 / (2 n).
    Eq. 2 sums one such table for each label. (One table of word by label would have labels - 1 degrees of freedom.)
    Differences below this level are noise: without the floor, the word that happens to be spread most exactly as the
    labels are, one word in thousands, would decide the width of all bins.
    """
    return len(counts.texts) / (2 * counts.texts.total())


def mi_depths(pairs: Iterable[tuple[str, str]], layers: int) -> WordDepths:
    """Depths from labelled texts, (text, label): those of training alone."""
    return make_depths(count_words(pairs), layers)


def make_depths(counts: WordCounts, layers: int) -> WordDepths:
    """`layers` bins of equal width over the range of -log information; the most informative words are in the first.

    The last bin ends at the level of chance wherever there are words that tell no more than that. A value is `layers`
    times the place in that range, plus a half, so that rounding with halves down gives the bin.
    """
    _check(counts)
    information = mutual_information(counts)
    log_w = -np.log(np.fromiter(information.values(), np.float64, len(information)))
    low, high = float(log_w.min()), float(log_w.max())
    # If all words are equally informative, there is no reason to stop any of them early.
    places_w = (log_w - low) / (high - low) if high - low > SAME else np.ones_like(log_w)
    # Rounded up: to the nearest, a value just above the border of two bins would fall back.
    values_w = np.ceil(layers * places_w * 10**DIGITS) / 10**DIGITS + 0.5
    facts = {
        "texts": counts.texts.total(),
        "labels": dict(counts.texts.most_common()),
        "occurrences": counts.occurrences.total(),
        "smoothing": SMOOTHING,
        "chance level": chance_level(counts),
        "lowest -log MI": round(low, DIGITS),
        "highest -log MI": round(high, DIGITS),
    }
    rows: list[tuple[float, ...]] = [(value,) for value in values_w.tolist()]
    rare = [row for word, row in zip(information, rows, strict=True) if counts.occurrences[word] == 1]
    return WordDepths("mi", layers, dict(zip(information, rows, strict=True)), facts=facts, rare=mean_values(rare))


def shuffle_depths(depths: WordDepths, counts: WordCounts) -> WordDepths:
    """Each depth exchanged for that of a word about as frequent. A control: all that is left is how frequent words
    are."""
    words = [word for word, _ in counts.occurrences.most_common()]
    values: dict[str, tuple[float, ...]] = {}
    for start in range(0, len(words), ALIKE):
        block = words[start : start + ALIKE]
        others = random.Random(start).sample(block, len(block))
        values.update((word, depths.values[other]) for word, other in zip(block, others, strict=True))
    return replace(depths, values=values, facts={**depths.facts, "shuffled": True})


def _check(counts: WordCounts) -> None:
    texts, labels = counts.texts.total(), len(counts.texts)
    if labels < 2:
        found = f"only the label {next(iter(counts.texts))!r}" if labels else "no label"
        raise UserError(f"the texts have {found}: mutual information needs at least two")
    if not counts.occurrences:
        raise UserError(f"the {texts:,} texts have no words in them: give texts to learn from")
    if labels > MANY_LABELS and 2 * labels > texts:
        raise UserError(f"{texts:,} texts have {labels:,} labels: check which column is the label and which the text")


def _scattered(present: Counter[str], numbers: dict[str, int]) -> Floats:
    """The counts of one label in the order of all words."""
    counts_w = np.zeros(len(numbers))
    places = np.fromiter((numbers[word] for word in present), np.int64, len(present))
    counts_w[places] = np.fromiter(present.values(), np.float64, len(present))
    return counts_w


def _information(word_label_w: Floats, word_other_w: Floats, rest_label_w: Floats, rest_other_w: Floats) -> Floats:
    """Eq. 2 for one label: texts with the word or the rest, of the label or of others."""
    joint = np.stack([word_label_w, word_other_w, rest_label_w, rest_other_w]).reshape(2, 2, -1) + SMOOTHING
    joint /= joint.sum((0, 1))
    independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    information_w: Floats = (joint * np.log(joint / independent)).sum((0, 1))
    return information_w

"""Depths from mutual information: an informative word needs few layers (Liu et al. 2021, Eq. 2 and 3).

Shapes: w words.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anydepth.data.words import split_words
from anydepth.errors import UserError
from anydepth.word_depths.table import DIGITS, WordDepths

SMOOTHING = 0.1
# What is left of 0 after rounding errors. The information of the words of a large corpus is far above it.
NOTHING = 1e-12
MANY_LABELS = 100

Floats = NDArray[np.float64]


@dataclass
class WordCounts:
    """`present`: in how many texts of a label a word is. `occurrences`: how often a word is in all texts together."""

    texts: Counter[str] = field(default_factory=Counter)  # of each label
    present: dict[str, Counter[str]] = field(default_factory=dict)  # label -> word -> texts
    occurrences: Counter[str] = field(default_factory=Counter)


def count_words(pairs: Iterable[tuple[str, str]]) -> WordCounts:
    """Count in one pass over (text, label). Memory grows with the vocabulary alone."""
    counts = WordCounts()
    for text, label in pairs:
        words = split_words(text)
        counts.texts[label] += 1
        counts.occurrences.update(words)
        counts.present.setdefault(label, Counter()).update(set(words))
    return counts


def mutual_information(counts: WordCounts) -> dict[str, float]:
    """The information that the presence of a word gives about the label, in nats, summed over the labels.

    For each label, texts are counted four ways: with or without the word, of the label or not. 0.1 is added to each
    of the four. Divided by their sum these are the joint probabilities, and their row and column sums the marginal
    ones, so that no information is below 0. A word that is spread exactly as the labels are has none; it gets the
    smallest information that any other word has, as 0 has no logarithm.
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
    above = information_w[information_w > NOTHING]
    least = float(above.min()) if len(above) else NOTHING
    return dict(zip(numbers, np.maximum(information_w, least).tolist(), strict=True))


def mi_depths(pairs: Iterable[tuple[str, str]], layers: int) -> WordDepths:
    """Depths from labelled texts, (text, label): those of training alone."""
    return make_depths(count_words(pairs), layers)


def make_depths(counts: WordCounts, layers: int) -> WordDepths:
    """`layers` bins of equal width over the range of -log information; the most informative words are in the first.

    A value is `layers` times the place in that range, plus a half, so that rounding with halves down gives the bin.
    """
    _check(counts)
    information = mutual_information(counts)
    log_w = -np.log(np.fromiter(information.values(), np.float64, len(information)))
    low, high = float(log_w.min()), float(log_w.max())
    # If all words are equally informative, there is no reason to stop any of them early.
    places_w = (log_w - low) / (high - low) if high - low > NOTHING else np.ones_like(log_w)
    # Rounded up: to the nearest, a value just above the border of two bins would fall back.
    values_w = np.ceil(layers * places_w * 10**DIGITS) / 10**DIGITS + 0.5
    facts = {
        "texts": counts.texts.total(),
        "labels": dict(counts.texts.most_common()),
        "occurrences": counts.occurrences.total(),
        "smoothing": SMOOTHING,
        "lowest -log MI": round(low, DIGITS),
        "highest -log MI": round(high, DIGITS),
    }
    rows: list[tuple[float, ...]] = [(value,) for value in values_w.tolist()]
    return WordDepths("mi", layers, dict(zip(information, rows, strict=True)), facts=facts)


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

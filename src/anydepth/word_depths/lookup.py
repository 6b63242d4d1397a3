"""The value of each token's word, for a whole batch at once with arrays.

A word that is one subword has its value under the number of the subword; one of several is looked up by their numbers.
Only subwords and words that were not met before are spelt.

Shapes: b batch, s length, n tokens that are no specials, v vocabulary.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anydepth.data.tokenizer import Tokenizer
from anydepth.data.words import UNKNOWN, split_words, word_spans

Computed = TypeVar("Computed")
KEPT = 8  # settings whose values are in memory at a time

Ids = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
WordValue = Callable[[str, Sequence[int]], float]  # of a word that is written with these subwords


class SubwordIndex:
    """What each subword of a vocabulary contributes to words.

    The text of a subword may contain several words, such as `'s`, or only spaces. `joins_left`: its first word goes on
    one that a subword before it has begun; `joins_right`: its last word goes on in a subword after it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        size = tokenizer.vocabulary_size
        self._tokenizer = tokenizer
        self.special_v = np.zeros(size, bool)
        self.special_v[list(tokenizer.specials)] = True
        self.met_v = self.special_v.copy()
        self.plain_v = self.special_v.copy()  # its text does not depend on the subwords around it
        self.words_v = np.zeros(size, np.int64)
        self.joins_left_v, self.joins_right_v = np.zeros(size, bool), np.zeros(size, bool)
        self.first: dict[int, str] = {}  # its first and its last word, as they are written
        self.last: dict[int, str] = {}

    def can_read(self, ids_bs: Ids) -> Bools:
        """For each row whether it can be read subword by subword: no character is in several of them."""
        new_bs = ~self.met_v[ids_bs]
        for token in np.unique(ids_bs[new_bs]).tolist():
            self._meet(token)
        return np.array(self.plain_v[ids_bs].all(1), bool)

    def _meet(self, token: int) -> None:
        text, again = self._tokenizer.surfaces([token, token])
        spans = word_spans(text)
        self.words_v[token] = len(spans)
        if spans:
            (start, first_end), (last_start, end) = spans[0], spans[-1]
            self.first[token], self.last[token] = text[start:first_end], text[last_start:end]
            self.joins_left_v[token] = start == 0 and _is_part(self.first[token])
            self.joins_right_v[token] = end == len(text) and _is_part(self.last[token])
        # Bytes of a character alone are replaced by a sign; in some vocabularies a space depends on what is before.
        is_unknown = token == Tokenizer.UNK and text == UNKNOWN
        self.plain_v[token] = is_unknown or (text == again and bool(text) and UNKNOWN.strip() not in text)
        self.met_v[token] = True


class WordValues:
    """The values of the words of texts, by one setting."""

    def __init__(self, index: SubwordIndex, value: WordValue) -> None:
        self._index, self._value = index, value
        self._first_v = np.full(len(index.met_v), np.nan)  # of the first and the last word of a subword, if whole
        self._last_v = np.full(len(index.met_v), np.nan)
        self._of_several: dict[tuple[int, ...], float] = {}

    def at(self, ids_bs: Ids) -> Floats:
        """[b, s]: the value of the word that each token belongs to, that of its first character which is no space.

        Spaces alone go with the next word, at the end of a text with the last. Not a number where there is no word. The
        rows are such as `can_read` accepts.
        """
        index = self._index
        values_bs = np.full(ids_bs.shape, np.nan)
        rows_n, places_n = np.nonzero(~index.special_v[ids_bs])
        ids_n = ids_bs[rows_n, places_n]
        self._fill(ids_n)
        words_n = index.words_v[ids_n]
        joined_n = np.zeros(len(ids_n), bool)
        joined_n[1:] = index.joins_right_v[ids_n[:-1]] & index.joins_left_v[ids_n[1:]] & (rows_n[1:] == rows_n[:-1])
        values_n, last_n = self._first_v[ids_n], self._last_v[ids_n]
        for start, end in _groups(joined_n, words_n):
            value = self._joined_value(tuple(ids_n[start:end].tolist()))
            values_n[start + (words_n[start] > 1) : end] = value
            last_n[start : end - (words_n[end - 1] > 1)] = value
        _give_to_spaces(values_n, last_n, words_n == 0, rows_n)
        values_bs[rows_n, places_n] = values_n
        return values_bs

    def _fill(self, ids_n: Ids) -> None:
        """The words of subwords that come for the first time."""
        index = self._index
        for token in np.unique(ids_n[np.isnan(self._first_v[ids_n]) & (index.words_v[ids_n] > 0)]).tolist():
            is_one = index.words_v[token] == 1
            self._first_v[token] = self._value(split_words(index.first[token])[0], [token])
            last = split_words(index.last[token])[0]
            self._last_v[token] = self._first_v[token] if is_one else self._value(last, [])

    def _joined_value(self, tokens: tuple[int, ...]) -> float:
        """Of a word in several subwords. Of the first it is the last word, of the others the first."""
        if tokens not in self._of_several:
            index, (start, *others) = self._index, tokens
            written = index.last[start] + "".join(index.first[token] for token in others)
            own = tokens if index.words_v[start] == 1 else others
            self._of_several[tokens] = self._value(split_words(written)[0], own)
        return self._of_several[tokens]


@dataclass
class Lookups:
    """What was worked out for a tokenizer and a table, kept for all settings of them."""

    _index: SubwordIndex | None = None
    _values: dict[Hashable, WordValues] = field(default_factory=dict)
    _means: dict[Hashable, dict[int, float]] = field(default_factory=dict)

    def index(self, tokenizer: Tokenizer) -> SubwordIndex:
        if self._index is None:
            self._index = SubwordIndex(tokenizer)
        return self._index

    def values(self, key: Hashable, value: WordValue, index: SubwordIndex) -> WordValues:
        return _kept(self._values, key, lambda: WordValues(index, value))

    def subword_means(self, key: Hashable, tokenizer: Tokenizer, row: Mapping[str, float]) -> dict[int, float]:
        """For each subword the mean value of the words of a table that are written with it."""
        return _kept(self._means, key, lambda: _subword_means(tokenizer, row))


def _kept(there: dict[Hashable, Computed], key: Hashable, make: Callable[[], Computed]) -> Computed:
    if key not in there:
        if len(there) >= KEPT:
            del there[next(iter(there))]
        there[key] = make()
    return there[key]


def _subword_means(tokenizer: Tokenizer, row: Mapping[str, float]) -> dict[int, float]:
    counts, sums = np.zeros(tokenizer.vocabulary_size), np.zeros(tokenizer.vocabulary_size)
    for ids, value in zip(tokenizer.encode_many(list(row)), row.values(), strict=True):
        used = np.unique(np.array(ids, np.int64))
        counts[used] += 1
        sums[used] += value
    met = np.flatnonzero(counts)
    return dict(zip(met.tolist(), (sums[met] / counts[met]).tolist(), strict=True))


def _is_part(word: str) -> bool:
    """Whether it could be part of a longer word: it has letters or digits."""
    return len(split_words(word + "a")) == 1


def _groups(joined_n: Bools, words_n: Ids) -> list[tuple[int, int]]:
    """Where words in several subwords start and end: a run of joined ones and the one before it. A subword with several
    words ends one and may start the next."""
    joined = np.flatnonzero(joined_n)
    if not len(joined):
        return []
    starts_new = np.ones(len(joined), bool)
    starts_new[1:] = (np.diff(joined) > 1) | (words_n[joined[:-1]] > 1)
    first = np.flatnonzero(starts_new)
    last = np.append(first[1:], len(joined)) - 1
    return list(zip((joined[first] - 1).tolist(), (joined[last] + 1).tolist(), strict=True))


def _give_to_spaces(values_n: Floats, last_n: Floats, spaces_n: Bools, rows_n: Ids) -> None:
    """Fill in the values of subwords that are only spaces: that of the next word of the text, or of its last."""
    if not spaces_n.any():
        return
    words = np.flatnonzero(~spaces_n)
    spaces = np.flatnonzero(spaces_n)
    if not len(words):
        return
    place = np.searchsorted(words, spaces)
    after, before = words[np.minimum(place, len(words) - 1)], words[np.maximum(place - 1, 0)]
    has_after = (after > spaces) & (rows_n[after] == rows_n[spaces])
    has_before = (before < spaces) & (rows_n[before] == rows_n[spaces])
    values_n[spaces] = np.where(has_after, values_n[after], np.where(has_before, last_n[before], np.nan))

"""What a word is, whatever the tokenizer: the unit that has a depth of its own."""

import unicodedata
from collections.abc import Sequence

import regex

# Written without spaces between words, so that a run of them would be a whole sentence: ideographs, their iteration
# marks, and kana.
_ALONE = (
    r"\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Marks and invisible signs are of the word that they stand in; so `हिन्दी` is one word.
_LETTER = rf"[[\p{{L}}\p{{N}}\p{{M}}\p{{Cf}}]--[{_ALONE}]]"
_WORD = regex.compile(rf"[{_ALONE}]|{_LETTER}+|[^\s]", regex.VERSION1)


def split_words(text: str) -> list[str]:
    """The words: runs of letters and digits, and every other character alone; see `fold`.

    Spaces are of no word. An ideograph or kana is a word of its own.
    """
    return [fold(word) for word in _WORD.findall(text)]


def words_of_pieces(surfaces: Sequence[str]) -> tuple[list[str], list[int]]:
    """The words of a text that is given sub-word by sub-word, and for each sub-word the number of its word.

    A sub-word belongs to the word of its first character that is no space. One of spaces alone goes with the word that
    comes next, at the end with the last one; one of nothing, such as a further byte of a character, with the sub-word
    before it. Where there is no word at all the number is -1.
    """
    words, ends = [], []
    for match in _WORD.finditer("".join(surfaces)):
        words.append(fold(match[0]))
        ends.append(match.end())
    numbers: list[int] = []
    number, last, start = 0, len(words) - 1, 0
    for surface in surfaces:
        # Spaces are of no word: the first word that ends after the start has the first character that is none.
        while number < last and ends[number] <= start:
            number += 1
        numbers.append(numbers[-1] if not surface and numbers else number if words else -1)
        start += len(surface)
    return words, numbers


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of `split_words` begin and end in the text."""
    return [match.span() for match in _WORD.finditer(text)]


def fold(word: str) -> str:
    """In lower case, without accents and invisible signs: some tokenizers keep them and others do not."""
    if word.isascii():
        return word.lower()
    parts = unicodedata.normalize("NFKD", word.lower())
    return "".join(c for c in parts if unicodedata.category(c) not in ("Mn", "Cf")) or word

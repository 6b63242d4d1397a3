"""What a word is, whatever the tokenizer, and which text each subword stands for.

A word is the unit that has a depth of its own. The surface of a subword is its text, with a space before it where a new
word starts.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

# Written without spaces between words, so that a run of them would be a whole sentence: ideographs, their iteration
# marks, and kana.
_ALONE = (
    r"\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Marks and invisible signs belong to the word that they stand in; so `हिन्दी` is one word.
_LETTER = rf"[[\p{{L}}\p{{N}}\p{{M}}\p{{Cf}}]--[{_ALONE}]]"

UNKNOWN = " \ufffd"
CONTROL = re.compile(r"<pad>|<s>|</s>|<mask>|<2[^<>]*>")
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@cache
def _word() -> Any:
    import regex  # slow to import, and few who import this split words

    return regex.compile(rf"[{_ALONE}]|{_LETTER}+|[^\s]", regex.VERSION1)


def split_words(text: str) -> list[str]:
    """The words: runs of letters and digits, and every other character alone; see `fold`.

    Spaces belong to no word. An ideograph or kana is a word of its own.
    """
    return [fold(word) for word in _word().findall(text)]


def words_of_pieces(surfaces: Sequence[str]) -> tuple[list[str], list[int]]:
    """The words of a text that is given subword by subword, and for each subword the number of its word.

    A subword belongs to the word of its first character that is no space. One of spaces alone goes with the word that
    comes next, at the end with the last one; one of nothing, such as a further byte of a character, with the subword
    before it. Where there is no word at all the number is -1.
    """
    words, ends = [], []
    for match in _word().finditer("".join(surfaces)):
        words.append(fold(match[0]))
        ends.append(match.end())
    numbers: list[int] = []
    number, last, start = 0, len(words) - 1, 0
    for surface in surfaces:
        # Spaces belong to no word: the first word that ends after the start has the first character that is none.
        while number < last and ends[number] <= start:
            number += 1
        numbers.append(numbers[-1] if not surface and numbers else number if words else -1)
        start += len(surface)
    return words, numbers


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of `split_words` begin and end in the text."""
    return [match.span() for match in _word().finditer(text)]


def fold(word: str) -> str:
    """In lower case, without accents and invisible signs: some tokenizers keep them and others do not."""
    if word.isascii():
        return word.lower()
    parts = unicodedata.normalize("NFKD", word.lower())
    return "".join(c for c in parts if unicodedata.category(c) not in ("Mn", "Cf")) or word


def sentencepiece_surfaces(pieces: Sequence[str]) -> list[str]:
    """Those of sentencepiece: `▁` is a space; a character in several bytes stands where its first byte is."""
    found = _texts([_sentencepiece_bytes(piece) for piece in pieces])
    return [UNKNOWN if piece == "<unk>" else text for piece, text in zip(pieces, found, strict=True)]


def word_piece_surfaces(pieces: Sequence[str], prefix: str) -> list[str]:
    """Those of WordPiece, which marks the pieces that do not start a word."""
    return [
        piece.removeprefix(prefix) if not piece or (prefix and piece.startswith(prefix)) else f" {piece}"
        for piece in pieces
    ]


def suffix_surfaces(pieces: Sequence[str], suffix: str) -> list[str]:
    """Those of a vocabulary that marks the pieces that end a word."""
    starts = [True, *(piece.endswith(suffix) for piece in pieces)]
    return [" " * start + piece.removesuffix(suffix) for start, piece in zip(starts, pieces, strict=False)]


def byte_level_surfaces(pieces: Sequence[str]) -> list[str]:
    """Those of a byte-level vocabulary, which writes every byte as a letter."""
    return _texts([_letters_to_bytes(piece) for piece in pieces])


def _sentencepiece_bytes(piece: str) -> bytes:
    if CONTROL.fullmatch(piece):
        return b""
    if byte := BYTE.fullmatch(piece):
        return bytes.fromhex(byte[1])
    return piece.replace("▁", " ").encode("utf-8", "replace")


def _letters_to_bytes(piece: str) -> bytes:
    """A piece with other letters, such as a word added by hand, is text already."""
    try:
        return bytes(_byte_of_letter()[letter] for letter in piece)
    except KeyError:
        return piece.encode("utf-8", "replace")


@cache
def _byte_of_letter() -> dict[str, int]:
    """Visible letters of Latin-1 stand for their own byte; letters from 256 on for the other bytes, in order."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _texts(parts: Sequence[bytes]) -> list[str]:
    """The text of each part; bytes that end the last character of an earlier part count to that part."""
    held = [bytearray() for _ in parts]
    open_at = 0
    for i, part in enumerate(parts):
        taken = 0
        while taken < len(part) and 0x80 <= part[taken] < 0xC0 and _lacks_bytes(held[open_at]):
            held[open_at].append(part[taken])
            taken += 1
        held[i] += part[taken:]
        if taken < len(part):
            open_at = i
    return [bytes(text).decode("utf-8", "replace") for text in held]


def _lacks_bytes(text: bytearray) -> bool:
    """Whether its last character is not whole."""
    for back, byte in enumerate(reversed(text[-3:]), start=1):
        if byte < 0x80:
            return False
        if byte >= 0xC0:
            return back < 2 + (byte >= 0xE0) + (byte >= 0xF0)
    return False

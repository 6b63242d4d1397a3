"""What each sub-word looks like in the text, with a space before it where a new word starts."""

import re
from collections.abc import Sequence
from functools import cache

UNKNOWN = " \ufffd"
CONTROL = re.compile(r"<pad>|<s>|</s>|<mask>|<2[^<>]*>")
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


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

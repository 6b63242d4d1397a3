"""SentencePiece models taken apart and put together again, so that subwords have our numbers.

A model is a protobuf message: its pieces in the order of their numbers, how it was trained, how it normalizes text. A
model whose target has subwords of its own has that side's model in a field that SentencePiece leaves to others.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from anydepth.errors import UserError

PIECE, TRAINER = 1, 2  # fields of a model
TARGET = 1001  # the field of the target's model; SentencePiece leaves those from 200 on to extensions
NAMES_AND_NUMBERS = (4, *range(40, 44), *range(45, 49))  # in the trainer's part: of special pieces, and the size
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # kinds of values
DAMAGED = "is damaged, or is not a SentencePiece model: copy it again"


class Kind(IntEnum):
    """What SentencePiece does with a piece."""

    NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


class Piece(NamedTuple):
    text: str
    score: float = 0.0
    kind: Kind = Kind.NORMAL


SPECIALS = (  # pad, unk, bos and eos, in the order of our numbers
    Piece("<pad>", 0.0, Kind.CONTROL),
    Piece("<unk>", 0.0, Kind.UNKNOWN),
    Piece("<s>", 0.0, Kind.CONTROL),
    Piece("</s>", 0.0, Kind.CONTROL),
)


def read_pieces(model: bytes, name: str) -> list[Piece]:
    """In the order of their numbers. `name` is that of the file, for messages."""
    try:
        found = [
            _read_piece(value) for field, value, _ in _fields(model) if field == PIECE and isinstance(value, bytes)
        ]
    except (ValueError, IndexError, struct.error) as error:
        raise UserError(f"{name} {DAMAGED}") from error
    if not found:
        raise UserError(f"{name} {DAMAGED}")
    return found


def with_pieces(model: bytes, pieces: Sequence[Piece], target: bytes | None = None) -> bytes:
    """The same model, with other pieces in another order; `target` is the model of the other side."""
    parts = [] if target is None else [_field(TARGET, target)]
    parts += [_field(PIECE, _write_piece(piece)) for piece in pieces]
    for field, value, raw in _fields(model):
        if field == TRAINER and isinstance(value, bytes):
            kept = [part for number, _, part in _fields(value) if number not in NAMES_AND_NUMBERS]
            parts.append(_field(TRAINER, b"".join(kept)))
        elif field not in (PIECE, TARGET):
            parts.append(raw)
    return b"".join(parts)


def target_model(model: bytes) -> bytes | None:
    """The model of the target, if it has its own. It comes first, so that others are not searched."""
    if not model.startswith(_varint(TARGET << 3 | BYTES)):
        return None
    _, value, _ = next(_fields(model))
    return value if isinstance(value, bytes) else None


def _read_piece(data: bytes) -> Piece:
    text, score, kind = "", 0.0, Kind.NORMAL
    for field, value, _ in _fields(data):
        if field == 1 and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif field == 2 and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif field == 3 and isinstance(value, int):
            kind = Kind(value)
    return Piece(text, score, kind)


def _write_piece(piece: Piece) -> bytes:
    score = _varint(2 << 3 | FIXED32) + struct.pack("<f", piece.score)
    return _field(1, piece.text.encode("utf-8")) + score + _varint(3 << 3 | VARINT) + _varint(piece.kind)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Of a message: the number of each field, its value, and both as they are in the file."""
    at = 0
    while at < len(data):
        start = at
        key, at = _read_varint(data, at)
        value: int | bytes
        if key & 7 == VARINT:
            value, at = _read_varint(data, at)
        else:
            if key & 7 == BYTES:
                size, at = _read_varint(data, at)
            elif key & 7 in (FIXED32, FIXED64):
                size = 4 if key & 7 == FIXED32 else 8
            else:
                raise ValueError("no such kind of value")
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError("cut off")
        yield key >> 3, value, data[start:at]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at

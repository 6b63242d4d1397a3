"""The model file, `.anydepth`: a header with the table of all sections, and the sections, in the order of depth.

docs/reference/file-format.md describes it and csrc/file.cpp reads it. engines/native_format.py knows what is in the
sections of weights.
"""

import json
import mmap
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from anydepth.errors import UserError

SUFFIX = ".anydepth"
MAGIC = b"ANYDEPTH"
# Of a model that translates, of one that classifies, with computed positions, with int4 weights.
VERSION, CLASSIFIES, SINUSOIDAL, INT4 = 3, 4, 5, 6
LINE = 64  # bytes that everything is aligned to
PREAMBLE, ENTRY = struct.Struct("<8sIIQQI28x"), struct.Struct("<IIQQI4x")
CHECKED_FROM = 16  # the header's checksum covers it from here on
LARGEST_HEADER = 64 << 20


class Kind(IntEnum):
    TOKENIZER = 1
    EMBEDDINGS = 2
    OUTPUT = 3
    SHORTLIST = 4
    ENCODER_LAYER = 5
    DECODER_LAYER = 6
    WORD_DEPTHS = 7


@dataclass(frozen=True)
class FileSection:
    kind: int
    index: int  # of a layer
    data: bytes


@dataclass(frozen=True)
class SectionEntry:
    """Where a section is."""

    kind: int
    index: int
    offset: int
    size: int
    checksum: int


@dataclass(frozen=True)
class ModelFile:
    """The header of a model file, and the way to its sections."""

    path: Path
    header: dict[str, Any]
    places: tuple[SectionEntry, ...]

    @classmethod
    def open(cls, path: Path) -> "ModelFile":
        """Read the header alone."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(0)
                start = file.read(PREAMBLE.size)
                length, count = _read_preamble(start)
                data = start + file.read(length - len(start))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{path} cannot be used: {error}") from error
        try:
            header, places = _read_header(data, length, count)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged ({error}): copy or export it again") from error
        end = places[-1].offset + places[-1].size if places else length
        if size != end:
            raise UserError(f"{path} has {size:,} bytes of {end:,}: copy it again")
        return cls(path, header, places)

    def read(self, kind: Kind, index: int = 0) -> bytes | None:
        """A section, if there is one."""
        place = next((one for one in self.places if (one.kind, one.index) == (kind, index)), None)
        return None if place is None else self.read_place(place)

    def read_place(self, place: SectionEntry) -> bytes:
        with self.path.open("rb") as file:
            file.seek(place.offset)
            data = file.read(place.size)
        if zlib.crc32(data) != place.checksum:
            raise UserError(f"{self.path} is damaged (a checksum is wrong): copy or export it again")
        return data

    def weights_size(self, encoder: Iterable[int], decoder: Iterable[int]) -> int:
        """Bytes of the sections of weights that these layers need."""
        core = self.header["core"]
        used = {(Kind.EMBEDDINGS, 0), (Kind.OUTPUT, 0)}
        used |= {(Kind.ENCODER_LAYER, core["encoder"][layer]) for layer in encoder}
        used |= {(Kind.DECODER_LAYER, core["decoder"][layer]) for layer in decoder}
        return sum(place.size for place in self.places if (place.kind, place.index) in used)

    def check(self) -> bool:
        """Whether all sections are as they were written."""
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = memoryview(data)
            found = [zlib.crc32(view[one.offset : one.offset + one.size]) == one.checksum for one in self.places]
            view.release()
        return all(found)


def is_model_file(path: Path) -> bool:
    """Whether it is one by its name or by its first bytes."""
    if not path.is_file():
        return False
    if path.suffix == SUFFIX:
        return True
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def build_model_file(header: dict[str, Any], sections: Sequence[FileSection], version: int = VERSION) -> bytes:
    """The whole file."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    length = PREAMBLE.size + ENTRY.size * len(sections) + len(text)
    table, end = [], length
    for one in sections:
        offset = _to_line(end)
        table.append(ENTRY.pack(one.kind, one.index, offset, len(one.data), zlib.crc32(one.data)))
        end = offset + len(one.data)
    without_checksum = PREAMBLE.pack(MAGIC, version, 0, length, end, len(sections))
    head = bytearray(b"".join((without_checksum, *table, text)))
    struct.pack_into("<I", head, 12, zlib.crc32(head[CHECKED_FROM:]))
    parts = [bytes(head)]
    for one in sections:
        parts += [bytes(-len(parts[-1]) % LINE), one.data]  # what is before begins at a multiple of LINE
    return b"".join(parts)


def _to_line(size: int) -> int:
    return -(-size // LINE) * LINE


def _read_preamble(data: bytes) -> tuple[int, int]:
    """The size of the header, and the number of sections."""
    if len(data) < PREAMBLE.size or data[: len(MAGIC)] != MAGIC:
        raise ValueError("it is not a model file of anydepth")
    _, version, _, length, _, count = PREAMBLE.unpack(data)
    if version not in (VERSION, CLASSIFIES, SINUSOIDAL, INT4):
        raise ValueError("it was written by another version of anydepth: export the model again")
    if not PREAMBLE.size + ENTRY.size * count <= length <= LARGEST_HEADER:
        raise ValueError("its header is damaged")
    return length, count


def _read_header(data: bytes, length: int, count: int) -> tuple[dict[str, Any], tuple[SectionEntry, ...]]:
    if len(data) < length or zlib.crc32(data[CHECKED_FROM:]) != struct.unpack_from("<I", data, 12)[0]:
        raise ValueError("the checksum of its header is wrong")
    places = tuple(SectionEntry(*ENTRY.unpack_from(data, PREAMBLE.size + ENTRY.size * i)) for i in range(count))
    end = length
    for place in places:
        if place.offset != _to_line(end):
            raise ValueError("its sections do not follow one another")
        end = place.offset + place.size
    header = json.loads(data[PREAMBLE.size + ENTRY.size * count :])
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    return header, places

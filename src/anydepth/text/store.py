"""Token ids of sentence pairs on disk, read through the page cache rather than into memory.

Each side is a flat file of tokens and a file of offsets: sentence i is tokens[offsets[i]:offsets[i + 1]].
"""

from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.errors import UserError

Ids = NDArray[np.unsignedinteger[Any]]
Lengths = NDArray[np.int32]

SIDES = ("source", "target")
OFFSET_BYTES = 8
TOKEN_TYPES: dict[int, type[np.unsignedinteger[Any]]] = {2: np.uint16, 4: np.uint32}


def _token_path(folder: Path, name: str, side: str) -> Path:
    return folder / f"{name}.{side}.tokens"


def _offset_path(folder: Path, name: str, side: str) -> Path:
    return folder / f"{name}.{side}.offsets"


class StoreWriter:
    """Writes pairs one after the other. Use as a context manager, or close it."""

    def __init__(self, folder: Path, name: str, vocabulary: int) -> None:
        self._typecode = "H" if vocabulary <= 65536 else "I"
        self._tokens = [_token_path(folder, name, side).open("wb") for side in SIDES]
        self._offsets = [_offset_path(folder, name, side).open("wb") for side in SIDES]
        self._ends = [0, 0]
        self.pairs = 0
        for file in self._offsets:
            file.write(array("q", [0]).tobytes())

    def add(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> None:
        for side, ids in enumerate((source_ids, target_ids)):
            self._tokens[side].write(array(self._typecode, ids).tobytes())
            self._ends[side] += len(ids)
            self._offsets[side].write(array("q", [self._ends[side]]).tobytes())
        self.pairs += 1

    def close(self) -> None:
        for file in (*self._tokens, *self._offsets):
            file.close()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PairStore:
    """Reads what a StoreWriter wrote. Lengths do not include EOS."""

    source_lengths: Lengths
    target_lengths: Lengths

    def __init__(self, folder: Path, name: str) -> None:
        self._source, self._source_offsets = _open_side(folder, name, "source")
        self._target, self._target_offsets = _open_side(folder, name, "target")
        self.source_lengths = np.diff(self._source_offsets).astype(np.int32)
        self.target_lengths = np.diff(self._target_offsets).astype(np.int32)
        if len(self.source_lengths) != len(self.target_lengths):
            raise _damaged(folder)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def pair(self, index: int) -> tuple[Ids, Ids]:
        source, target = self._source_offsets, self._target_offsets
        return (
            self._source[source[index] : source[index + 1]],
            self._target[target[index] : target[index + 1]],
        )


def _open_side(folder: Path, name: str, side: str) -> tuple[Ids, NDArray[np.int64]]:
    token_path, offset_path = _token_path(folder, name, side), _offset_path(folder, name, side)
    try:
        token_bytes, offset_bytes = token_path.stat().st_size, offset_path.stat().st_size
    except FileNotFoundError as error:
        raise _damaged(folder) from error
    if offset_bytes == 0 or offset_bytes % OFFSET_BYTES:
        raise _damaged(folder)
    # As plain arrays over the same memory: slices of np.memmap are several times slower.
    offsets = np.asarray(np.memmap(offset_path, np.int64, "r"))
    count = int(offsets[-1])
    if offsets[0] != 0 or bool((np.diff(offsets) < 0).any()):
        raise _damaged(folder)
    if count == 0 and token_bytes == 0:
        return np.empty(0, np.uint16), offsets
    token_type = next((kind for size, kind in TOKEN_TYPES.items() if size * count == token_bytes), None)
    if token_type is None:
        raise _damaged(folder)
    return np.asarray(np.memmap(token_path, token_type, "r")), offsets


def _damaged(folder: Path) -> UserError:
    return UserError(f"the prepared data in {folder} is damaged: delete that folder and run again")

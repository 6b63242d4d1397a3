"""Token ids of sentence pairs on disk, read through the page cache rather than into memory.

Each side is a flat file of tokens and a file of offsets: sentence i is tokens[offsets[i]:offsets[i + 1]].
Large ones are in shards, which follow one another.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, count
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.errors import UserError

Ids = NDArray[np.unsignedinteger[Any]]
Lengths = NDArray[np.int32]
Rows = NDArray[np.int64]

SIDES = ("source", "target")
OFFSET_BYTES = 8
TOKEN_TYPES: dict[int, type[np.unsignedinteger[Any]]] = {2: np.uint16, 4: np.uint32}


def shard_name(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name


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
        for file in self._offsets:
            file.write(array("q", [0]).tobytes())

    def add(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> None:
        self.add_many([source_ids], [target_ids])

    def add_many(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
        for side, rows in enumerate((sources, targets)):
            self._tokens[side].write(array(self._typecode, chain.from_iterable(rows)).tobytes())
            ends = self._ends[side] + np.cumsum([len(row) for row in rows], dtype=np.int64)
            self._offsets[side].write(ends.tobytes())
            self._ends[side] = int(ends[-1])

    def close(self) -> None:
        for file in (*self._tokens, *self._offsets):
            file.close()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Side:
    """The sentences of one side of a shard."""

    def __init__(self, folder: Path, name: str, side: str) -> None:
        self._tokens, self._offsets = _open_side(folder, name, side)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def lengths(self) -> Lengths:
        return np.diff(self._offsets).astype(np.int32)

    def __getitem__(self, index: int) -> Ids:
        return self._tokens[self._offsets[index] : self._offsets[index + 1]]


class PairStore:
    """Reads what StoreWriters wrote. Lengths do not include EOS."""

    source_lengths: Lengths
    target_lengths: Lengths

    def __init__(self, folder: Path, name: str) -> None:
        self._shards = [
            (Side(folder, one, "source"), Side(folder, one, "target")) for one in _shards_there(folder, name)
        ]
        if any(len(source) != len(target) for source, target in self._shards):
            raise _damaged(folder)
        self.source_lengths = np.concatenate([source.lengths for source, _ in self._shards])
        self.target_lengths = np.concatenate([target.lengths for _, target in self._shards])
        self._ends = list(accumulate(len(source) for source, _ in self._shards))

    def __len__(self) -> int:
        return self._ends[-1]

    def epoch(self, number: int) -> "PairStore":
        """The pairs of an epoch, which are the same in all of them."""
        return self

    def pair(self, index: int) -> tuple[Ids, Ids]:
        number = bisect_right(self._ends, index)
        source, target = self._shards[number]
        place = index - (self._ends[number - 1] if number else 0)
        return source[place], target[place]


def _shards_there(folder: Path, name: str) -> Iterator[str]:
    """The first in any case: that it is missing is said elsewhere."""
    yield name
    for number in count(1):
        if not _offset_path(folder, shard_name(name, number), SIDES[0]).exists():
            return
        yield shard_name(name, number)


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

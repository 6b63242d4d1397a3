"""Token ids of sentence pairs on disk: encoded in shards by several processes, read through the page cache.

Each side is a flat file of tokens and a file of offsets: sentence i is tokens[offsets[i]:offsets[i + 1]].
A large corpus is in several shards, the same whatever the number of processes.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import accumulate, chain, count, islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.data.cleaning import CleaningCounts
from anydepth.data.corpus import Pair
from anydepth.data.parts import SIDES, PairCorpus, write_pairs
from anydepth.data.tokenizer import Tokenizer
from anydepth.device import cores
from anydepth.errors import UserError
from anydepth.progress import progress_bar

StoredIds = NDArray[np.unsignedinteger[Any]]
Lengths = NDArray[np.int32]
Rows = NDArray[np.int64]

EncodedPair = tuple[Pair, list[int], list[int]]

TOGETHER = 10_000
SHARD = 250_000  # pairs
MOST_PROCESSES = 8  # each takes 150 MB before it has read a line
BLOCK = 1 << 24  # bytes
NEWLINE = ord("\n")
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


class ShardSide:
    """The sentences of one side of a shard."""

    def __init__(self, folder: Path, name: str, side: str) -> None:
        self._tokens, self._offsets = _open_side(folder, name, side)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def lengths(self) -> Lengths:
        return np.diff(self._offsets).astype(np.int32)

    def __getitem__(self, index: int) -> StoredIds:
        return self._tokens[self._offsets[index] : self._offsets[index + 1]]


class PairStore:
    """Reads what StoreWriters wrote. Lengths do not include EOS."""

    source_lengths: Lengths
    target_lengths: Lengths

    def __init__(self, folder: Path, name: str) -> None:
        self._shards = [
            (ShardSide(folder, one, "source"), ShardSide(folder, one, "target")) for one in _shard_names(folder, name)
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

    def pair(self, index: int) -> tuple[StoredIds, StoredIds]:
        number = bisect_right(self._ends, index)
        source, target = self._shards[number]
        place = index - (self._ends[number - 1] if number else 0)
        return source[place], target[place]


def _shard_names(folder: Path, name: str) -> Iterator[str]:
    """The first in any case: opening it fails if it is missing."""
    yield name
    for number in count(1):
        if not _offset_path(folder, shard_name(name, number), SIDES[0]).exists():
            return
        yield shard_name(name, number)


def _open_side(folder: Path, name: str, side: str) -> tuple[StoredIds, NDArray[np.int64]]:
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


@dataclass(frozen=True)
class PairEncoder:
    """How pairs become numbers: `first` goes before each source, `first_target` before each target; with `labels`,
    targets are their numbers."""

    tokenizer: Tokenizer
    first: list[int]
    max_tokens: int
    labels: Sequence[str] = ()
    first_target: tuple[int, ...] = ()

    def pairs(self, pairs: Iterable[Pair], counts: CleaningCounts) -> Iterator[EncodedPair]:
        """With their subwords. Pairs with too many, or none, are left out and counted."""
        remaining, first, first_target = iter(pairs), self.first, list(self.first_target)
        while chunk := list(islice(remaining, TOGETHER)):
            sources = self.sources([source for source, _ in chunk])
            targets = self.targets([target for _, target in chunk])
            for pair, source_ids, target_ids in zip(chunk, sources, targets, strict=True):
                if not source_ids or not target_ids:
                    counts.empty += 1
                elif max(len(first) + len(source_ids), len(first_target) + len(target_ids)) > self.max_tokens:
                    counts.too_long += 1
                else:
                    yield pair, first + source_ids, first_target + target_ids
                    continue
                counts.kept -= 1

    def sources(self, texts: list[str]) -> list[list[int]]:
        """A labelled text is cut to the allowed length; others are not."""
        found = self.tokenizer.encode_many(texts)
        return [ids[: self.max_tokens - len(self.first)] for ids in found] if self.labels else found

    def targets(self, texts: list[str]) -> list[list[int]]:
        if not self.labels:
            return self.tokenizer.encode_targets(texts)
        numbers = {label: [number] for number, label in enumerate(self.labels)}
        unknown = next((text for text in texts if text not in numbers), None)
        if unknown is not None:
            raise UserError(
                f"the label {unknown!r} of the validation corpus does not occur in the training corpus, which has "
                f"{', '.join(self.labels[:20])}: fix one of them"
            )
        return [numbers[text] for text in texts]


@dataclass(frozen=True)
class Shard:
    """Some lines of the text files of a corpus, and the name that their tokens get."""

    folder: Path
    text: str
    starts: tuple[int, int]  # where its first lines begin, in bytes
    pairs: int
    name: str

    def encode(self, encoding: PairEncoder) -> CleaningCounts:
        counts = CleaningCounts(kept=self.pairs)
        with StoreWriter(self.folder, self.name, encoding.tokenizer.vocabulary_size) as store:
            encoded = encoding.pairs(islice(self._read(), self.pairs), counts)
            while chunk := list(islice(encoded, TOGETHER)):
                store.add_many([source for _, source, _ in chunk], [target for _, _, target in chunk])
        return counts

    def _read(self) -> Iterator[Pair]:
        """Without checks: we wrote these lines."""
        paths = [self.folder / f"{self.text}.{side}" for side in SIDES]
        with open(paths[0], "rb") as sources, open(paths[1], "rb") as targets:
            for file, start in zip((sources, targets), self.starts, strict=True):
                file.seek(start)
            for source, target in zip(sources, targets, strict=True):
                yield source[:-1].decode("utf-8"), target[:-1].decode("utf-8")


def encode_part(part: PairCorpus, encoding: PairEncoder, folder: Path) -> None:
    """Write the tokens to train on, and the text to validate with."""
    shards, kept = list(_shards(part, folder)), dict.fromkeys(part.files, 0)
    with progress_bar(f"encoded {part.items} of the {part.training_corpus}", None) as advance:
        for shard, counts in zip(shards, _encode_shards(shards, encoding), strict=True):
            kept[shard.text] += counts.kept
            part.train_counts.drop(empty=counts.empty, too_long=counts.too_long)
            advance(shard.pairs)
    part.sizes = list(kept.values())
    part.check_training()
    part.valid = [pair for pair, _, _ in encoding.pairs(part.valid, part.valid_counts)]
    part.check_validation()
    write_pairs(folder, f"{part.prefix}valid", part.valid)


def _encode_shards(shards: Sequence[Shard], encoding: PairEncoder) -> Iterator[CleaningCounts]:
    """The counts of each shard. A few are not worth a process."""
    processes = min(len(shards), cores(), MOST_PROCESSES)
    if processes < 2 or sum(shard.pairs for shard in shards) <= SHARD:
        yield from (shard.encode(encoding) for shard in shards)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin_process, (encoding,)) as pool:
        try:
            yield from pool.map(_encode_in_process, shards)
        except BrokenProcessPool as error:
            raise UserError(
                "a tokenizer process was killed, perhaps because memory ran out: "
                "close other programs, then give the same command again"
            ) from error


_encodings: list[PairEncoder] = []  # of a process


def _begin_process(encoding: PairEncoder) -> None:
    """One thread each: there is a process for each core. It ends with the one that began it, even if that is killed."""
    Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    encoding.tokenizer.threads = 1
    _encodings.append(encoding)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_in_process(shard: Shard) -> CleaningCounts:
    return shard.encode(_encodings[0])


def _shards(part: PairCorpus, folder: Path) -> Iterator[Shard]:
    number = 0
    for text in part.files:
        sides = (_line_starts(folder / f"{text}.{side}", SHARD) for side in SIDES)
        for (source, pairs), (target, _) in zip(*sides, strict=True):
            yield Shard(folder, text, (source, target), pairs, shard_name(part.train, number))
            number += 1


def _line_starts(path: Path, every: int) -> Iterator[tuple[int, int]]:
    """Where every so many lines begin, in bytes, and how many lines follow until the next."""
    start = place = lines = 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            ends = place + 1 + np.flatnonzero(np.frombuffer(block, np.uint8) == NEWLINE)
            while lines + len(ends) >= every:
                end = int(ends[every - lines - 1])
                yield start, every
                ends, start, lines = ends[every - lines :], end, 0
            lines += len(ends)
            place += len(block)
    if lines:
        yield start, lines

"""From cleaned text to tokens: in shards, each the work of one process, and the same whatever their number."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

import numpy as np
from rich.progress import Progress

from anydepth.data.cleaning import CleaningCounts
from anydepth.data.corpus import Pair
from anydepth.data.pair_files import write_pairs
from anydepth.data.parts import Part
from anydepth.data.store import SIDES, StoreWriter, shard_name
from anydepth.data.tokenizer import Tokenizer
from anydepth.device import cores
from anydepth.errors import UserError

EncodedPair = tuple[Pair, list[int], list[int]]

TOGETHER = 10_000
SHARD = 250_000  # pairs
MOST_PROCESSES = 8  # each takes 150 MB before it has read a line
BLOCK = 1 << 24  # bytes
NEWLINE = ord("\n")


@dataclass(frozen=True)
class Encoding:
    """How pairs become numbers: with `first` before each source, and with labels, if there are some, for targets."""

    tokenizer: Tokenizer
    first: list[int]
    max_tokens: int
    labels: Sequence[str] = ()

    def pairs(self, pairs: Iterable[Pair], counts: CleaningCounts) -> Iterator[EncodedPair]:
        """With their sub-words. Those with too many, or none, move from `kept` to their place in the counts."""
        remaining, first = iter(pairs), self.first
        while chunk := list(islice(remaining, TOGETHER)):
            sources = self.sources([source for source, _ in chunk])
            targets = self.targets([target for _, target in chunk])
            for pair, source_ids, target_ids in zip(chunk, sources, targets, strict=True):
                if not source_ids or not target_ids:
                    counts.empty += 1
                elif max(len(first) + len(source_ids), len(target_ids)) > self.max_tokens:
                    counts.too_long += 1
                else:
                    yield pair, first + source_ids, target_ids
                    continue
                counts.kept -= 1

    def sources(self, texts: list[str]) -> list[list[int]]:
        """Too long ones as they are; of a text that has a label as much as there is room for."""
        found = self.tokenizer.encode_many(texts)
        return [ids[: self.max_tokens - len(self.first)] for ids in found] if self.labels else found

    def targets(self, texts: list[str]) -> list[list[int]]:
        if not self.labels:
            return self.tokenizer.encode_many(texts)
        numbers = {label: [number] for number, label in enumerate(self.labels)}
        unknown = next((text for text in texts if text not in numbers), None)
        if unknown is not None:
            raise UserError(
                f"the label {unknown!r} of the validation corpus does not occur in the training corpus, which has "
                f"{', '.join(self.labels[:20])}: mend one of them"
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

    def encode(self, encoding: Encoding) -> CleaningCounts:
        counts = CleaningCounts(kept=self.pairs)
        with StoreWriter(self.folder, self.name, encoding.tokenizer.vocabulary_size) as store:
            encoded = encoding.pairs(islice(self._read(), self.pairs), counts)
            while chunk := list(islice(encoded, TOGETHER)):
                store.add_many([source for _, source, _ in chunk], [target for _, _, target in chunk])
        return counts

    def _read(self) -> Iterator[Pair]:
        """We wrote these lines, so there is nothing to check."""
        paths = [self.folder / f"{self.text}.{side}" for side in SIDES]
        with open(paths[0], "rb") as sources, open(paths[1], "rb") as targets:
            for file, start in zip((sources, targets), self.starts, strict=True):
                file.seek(start)
            for source, target in zip(sources, targets, strict=True):
                yield source[:-1].decode("utf-8"), target[:-1].decode("utf-8")


def encode_part(part: Part, encoding: Encoding, folder: Path, bar: Progress) -> None:
    """Write the tokens to train on, and the text to validate with."""
    task = bar.add_task(f"encoded {part.items} of the {part.training_corpus}", total=part.train_counts.kept)
    shards = list(_shards(part, folder))
    kept = dict.fromkeys(part.files, 0)
    for shard, counts in zip(shards, _encoded(shards, encoding), strict=True):
        kept[shard.text] += counts.kept
        part.train_counts.drop(empty=counts.empty, too_long=counts.too_long)
        bar.advance(task, shard.pairs)
    part.sizes = list(kept.values())
    part.check_training()
    part.valid = [pair for pair, _, _ in encoding.pairs(part.valid, part.valid_counts)]
    part.check_validation()
    write_pairs(folder, f"{part.prefix}valid", part.valid)


def _encoded(shards: Sequence[Shard], encoding: Encoding) -> Iterator[CleaningCounts]:
    """What became of the pairs of each. A few are not worth a process."""
    processes = min(len(shards), cores(), MOST_PROCESSES)
    if processes < 2 or sum(shard.pairs for shard in shards) <= SHARD:
        yield from (shard.encode(encoding) for shard in shards)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin_process, (encoding,)) as pool:
        try:
            yield from pool.map(_encode_in_process, shards)
        except BrokenProcessPool as error:
            raise UserError(
                "a process that made tokens was killed, perhaps for want of memory: give the same command again"
            ) from error


_encodings: list[Encoding] = []  # of a process


def _begin_process(encoding: Encoding) -> None:
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


def _shards(part: Part, folder: Path) -> Iterator[Shard]:
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

"""A lexical shortlist: the output layer computes only the subwords that a source may lead to.

For each subword of the source these are itself, as names are copied, and the subwords of the target that a word
alignment model (IBM Model 1, Brown et al. 1993) of the training corpus gives it with at least some probability; and for
any source the most frequent ones and those that words are spelt with. It is `shortlist.safetensors` in the model
folder; CTranslate2 has the same as its vmap.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from anydepth.artifact.model import LoadedModel
from anydepth.data.tokenizer import Tokenizer
from anydepth.errors import UserError
from anydepth.tensors import write_tensors

NAME = "shortlist.safetensors"
VMAP = "vmap.txt"  # in a folder of CTranslate2
Ints = NDArray[np.int32]
ROUNDS = 3  # of expectation maximisation
# Pairs of a source and a target subword in one sentence: of more text every second sentence is taken, and so on.
MOST_LINKS, CHUNK = 250_000_000, 4_000_000
HELD_OUT, EVERY = 1000, 20  # pairs, one of so many, to say how much is covered


@dataclass(frozen=True)
class Shortlist:
    """`outputs[offsets[i]:offsets[i + 1]]` are those of source subword i; `always` are those of any."""

    always: Ints
    offsets: Ints
    outputs: Ints

    def candidates(self, source: Sequence[int]) -> set[int]:
        found = {Tokenizer.EOS, *self.always.tolist(), *(token for token in source if token >= Tokenizer.EOS)}
        for token in set(source):
            found.update(self.outputs[self.offsets[token] : self.offsets[token + 1]].tolist())
        return found

    def save(self, folder: Path) -> Path:
        arrays = {"always": self.always, "offsets": self.offsets, "outputs": self.outputs}
        import torch

        write_tensors(folder / NAME, {name: torch.from_numpy(values) for name, values in arrays.items()})
        return folder / NAME

    @classmethod
    def find(cls, loaded: LoadedModel) -> "Shortlist | None":
        """The one in the model's folder, if there is one."""
        path = None if loaded.folder is None else loaded.folder / NAME
        if path is None or not path.is_file():
            return None
        try:
            read = load_file(path)
            made = cls(*(read[name] for name in ("always", "offsets", "outputs")))
        except (SafetensorError, KeyError, OSError) as error:
            raise UserError(f"{path} is damaged ({error}): make it again with `anydepth shortlist`") from error
        made._check(path, loaded.tokenizer.vocabulary_size)
        return made

    @classmethod
    def load(cls, loaded: LoadedModel) -> "Shortlist":
        """The same, or the advice to make one."""
        found = cls.find(loaded)
        if found is None:
            raise UserError("this model has no shortlist: make one with `anydepth shortlist`")
        return found

    def _check(self, path: Path, vocabulary: int) -> None:
        flat = all(
            values.dtype == np.int32 and values.ndim == 1 for values in (self.always, self.offsets, self.outputs)
        )
        ascends = flat and len(self.offsets) == vocabulary + 1 and (np.diff(self.offsets) >= 0).all()
        if not ascends or self.offsets[0] != 0 or self.offsets[-1] != len(self.outputs):
            raise UserError(f"{path} is not for this model: make it again with `anydepth shortlist`")
        known = np.concatenate([self.always, self.outputs])
        if len(known) and not 0 <= known.min() <= known.max() < vocabulary:
            raise UserError(f"{path} has subwords that the model has not: make it again with `anydepth shortlist`")

    def vmap(self, names: Sequence[str]) -> str:
        """As CTranslate2 reads it: a line for each source subword, and one for none, with what is always possible."""
        rows = [("", self.always)]
        rows += [
            (names[i], np.unique([i, *self.outputs[start:end]]))
            for i, (start, end) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True))
            if i > Tokenizer.EOS
        ]
        return "".join(f"{key}\t{' '.join(names[i] for i in ids)}\n" for key, ids in rows)


@dataclass(frozen=True)
class Coverage:
    """Of pairs that were held out: how many target subwords are on their list, and how long lists are."""

    pairs: int
    covered: float
    mean_size: float


def build_shortlist(
    loaded: LoadedModel,
    pairs: Iterable[tuple[str, str]],
    per_token: int = 500,
    always: int = 400,
    threshold: float = 0.001,
) -> tuple[Shortlist, Coverage]:
    """Of a corpus, and how well it covers pairs spread over it, which it was not made of.

    A source subword has at most `per_token` target subwords, those whose expected number of alignments for each
    sentence with the source subword is at least `threshold`; `always` frequent ones are on every list.
    """
    vocabulary = loaded.tokenizer.vocabulary_size
    held_out: list[tuple[list[int], list[int]]] = []
    corpus = _Corpus(vocabulary)
    for source, target in _but_some(_encoded(loaded, pairs), held_out):
        corpus.add(source, target)
    if not corpus.pairs:
        raise UserError("the corpus has no pair of sentences to learn from")
    frequent = _always(loaded.tokenizer, corpus.targets, always)
    keys, shares = corpus.align(frequent)
    kept = shares >= threshold
    made = Shortlist(frequent, *_strongest(keys[kept], shares[kept], vocabulary, per_token))
    return made, _coverage(made, held_out)


def _encoded(loaded: LoadedModel, pairs: Iterable[tuple[str, str]]) -> Iterable[tuple[list[int], list[int]]]:
    tokenizer = loaded.tokenizer
    coming = iter(pairs)
    while some := list(islice(coming, 2048)):
        sources = tokenizer.encode_many([source for source, _ in some])
        targets = tokenizer.encode_targets([target for _, target in some])
        for source, target in zip(sources, targets, strict=True):
            if source and target:
                yield loaded.as_read(source), target


def _but_some(
    encoded: Iterable[tuple[list[int], list[int]]], held_out: list[tuple[list[int], list[int]]]
) -> Iterator[tuple[list[int], list[int]]]:
    for number, pair in enumerate(encoded, 1):
        if number % EVERY == 0 and len(held_out) < HELD_OUT:
            held_out.append(pair)
        else:
            yield pair


class _Corpus:
    """Sentence pairs to learn from: at most MOST_LINKS pairs of their subwords."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.pairs: list[tuple[Ints, Ints]] = []  # distinct subwords of the source; those of the target
        self._links, self._every, self._seen = 0, 1, 0

    def add(self, source: list[int], target: list[int]) -> None:
        self._seen += 1
        if self._seen % self._every:
            return
        self.pairs.append((np.unique(source).astype(np.int32), np.array(target, np.int32)))
        self._links += len(self.pairs[-1][0]) * len(target)
        if self._links > MOST_LINKS:  # go on with half of them, so that all of the corpus counts alike
            self.pairs, self._every = self.pairs[1::2], 2 * self._every
            self._links = sum(len(source) * len(target) for source, target in self.pairs)

    @property
    def targets(self) -> NDArray[np.int64]:
        """How often each target subword occurs."""
        return np.bincount(np.concatenate([target for _, target in self.pairs]), minlength=self.vocabulary)

    def align(self, known: Ints) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """IBM Model 1: of each source and target subword that occur together, source x vocabulary + target, the
        expected number of alignments for each sentence with the source subword. Without `known` targets."""
        wanted = np.ones(self.vocabulary, bool)
        wanted[known] = False
        chunks: list[tuple[Ints, Ints]] = []
        owns: list[NDArray[np.int64]] = []
        for keys, positions in self._chunks(wanted):
            own, inverse = np.unique(keys, return_inverse=True)
            owns.append(own)
            chunks.append((inverse.astype(np.int32), positions))
        distinct: NDArray[np.int64] = np.unique(np.concatenate(owns)) if owns else np.empty(0, np.int64)
        for i, (within, positions) in enumerate(chunks):  # its links by their places in `distinct`
            chunks[i] = (np.searchsorted(distinct, owns.pop(0)).astype(np.int32)[within], positions)
        sources = (distinct // self.vocabulary).astype(np.int32)
        shares = counts = np.ones(len(distinct))
        for _ in range(ROUNDS):
            counts = np.zeros(len(distinct))
            for places, positions in chunks:
                expected = shares[places]
                expected /= np.bincount(positions, expected)[positions]
                counts += np.bincount(places, expected, minlength=len(distinct))
            shares = counts / np.bincount(sources, counts, minlength=self.vocabulary)[sources]
        sentences = np.bincount(np.concatenate([source for source, _ in self.pairs]), minlength=self.vocabulary)
        return distinct, counts / sentences[sources]

    def _chunks(self, wanted: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.int64], Ints]]:
        """Of some pairs their links, source x vocabulary + target, and the number of the target's position."""
        keys: list[NDArray[np.int64]] = []
        positions: list[Ints] = []
        links = first = 0
        for source, target in self.pairs:
            own = target[wanted[target]]
            keys.append((source.astype(np.int64)[:, None] * self.vocabulary + own).ravel())
            positions.append(np.tile(np.arange(first, first + len(own), dtype=np.int32), len(source)))
            links, first = links + len(keys[-1]), first + len(own)
            if links >= CHUNK:
                yield np.concatenate(keys), np.concatenate(positions)
                keys, positions, links, first = [], [], 0, 0
        if links:
            yield np.concatenate(keys), np.concatenate(positions)


def _strongest(keys: NDArray[np.int64], shares: NDArray[np.float64], vocabulary: int, most: int) -> tuple[Ints, Ints]:
    sources, targets = np.divmod(keys, vocabulary)
    order = np.lexsort((targets, -shares, sources))
    sources, targets = sources[order], targets[order]
    first = np.searchsorted(sources, sources)  # where the list of each begins
    kept = np.arange(len(sources)) - first < most
    sources, targets = sources[kept], targets[kept]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=vocabulary))])
    return offsets.astype(np.int32), targets.astype(np.int32)


def _always(tokenizer: Tokenizer, counts: NDArray[np.int64], most: int) -> Ints:
    """The most frequent ones, and the characters and bytes that words of the corpus are spelt with."""
    frequent = np.argsort(-counts, kind="stable")[:most]
    pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
    spelling = [i for i, piece in enumerate(pieces) if len(piece) == 1 or (piece.startswith("<0x") and len(piece) == 6)]
    found = {Tokenizer.EOS, *frequent.tolist(), *(i for i in spelling if counts[i] > 0)}
    return np.array(sorted(i for i in found if i >= Tokenizer.EOS), np.int32)


def _coverage(made: Shortlist, held_out: Sequence[tuple[list[int], list[int]]]) -> Coverage:
    lists = [made.candidates(source) for source, _ in held_out]
    targets = [target for _, target in held_out]
    there = sum(token in found for found, target in zip(lists, targets, strict=True) for token in target)
    total = sum(map(len, targets))
    return Coverage(len(held_out), there / max(1, total), sum(map(len, lists)) / max(1, len(lists)))

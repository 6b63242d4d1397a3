"""Batches of pairs alike in length, of one or several languages, in an order that follows from (seed, epoch) alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.data.shards import Lengths, StoredIds
from anydepth.data.tokenizer import Tokenizer

Indices = NDArray[np.int64]
BatchPosition = tuple[int, int]


class BatchShare(NamedTuple):
    """Which of the equal parts of a batch: each of several processes takes its own."""

    number: int = 0
    of: int = 1

    def rows(self, indices: Indices) -> Indices:
        return indices[self.number :: self.of]


WHOLE = BatchShare()


@dataclass
class Batch:
    source: Tensor  # [b, s] ends in EOS, then PAD
    target_in: Tensor  # [b, t] begins with BOS
    target_out: Tensor  # [b, t] ends in EOS, then PAD
    source_padding: Tensor | None  # [b, s] True at padding; None where nothing is padded
    target_tokens: int  # in target_out, EOS included, PAD not
    indices: Indices  # [b] numbers of the pairs in their store
    place: BatchPosition = (0, 0)  # the epoch, and its number there
    language: int = 0  # the number of its language pair; a batch is of one
    labels: Tensor | None = None  # [b] of texts to classify, which have no targets
    depths: Tensor | None = None  # [b, s] how many layers each token of the source runs, where that is known
    counts: bool = True  # False: no row is left for this process, so it runs one of another process

    @classmethod
    def from_rows(
        cls,
        sources: Sequence[StoredIds | list[int]],
        targets: Sequence[StoredIds | list[int]],
        indices: Indices | None = None,
        place: BatchPosition = (0, 0),
        labelled: bool = False,
    ) -> "Batch":
        """Pad rows of token ids that have neither BOS nor EOS. A target of `labelled` ones is the number of a label."""
        if labelled:
            batch = cls.from_rows(sources, [[] for _ in sources], indices, place)
            labels = torch.tensor([int(label) for (label,) in targets])
            return replace(batch, labels=labels, target_tokens=len(labels))
        source = _padded(sources, last=Tokenizer.EOS)
        padding = source == Tokenizer.PAD
        return cls(
            source=torch.from_numpy(source),
            target_in=torch.from_numpy(_padded(targets, first=Tokenizer.BOS)),
            target_out=torch.from_numpy(_padded(targets, last=Tokenizer.EOS)),
            source_padding=torch.from_numpy(padding) if padding.any() else None,
            target_tokens=sum(len(row) + 1 for row in targets),
            indices=np.arange(len(sources)) if indices is None else indices,
            place=place,
        )

    def __len__(self) -> int:
        return len(self.source)

    @property
    def terms(self) -> int:
        """The number of terms in the mean loss: target tokens, or texts to classify."""
        return self.target_tokens if self.counts else 0

    @property
    def source_terms(self) -> int:
        """The number of terms in a loss over the source's states: its tokens."""
        if not self.counts:
            return 0
        return self.source.numel() - (0 if self.source_padding is None else int(self.source_padding.sum()))

    @property
    def wanted(self) -> Tensor:
        """What is to be predicted, in a row: subwords with PAD where nothing is, or labels."""
        return self.target_out.flatten() if self.labels is None else self.labels

    @property
    def wanted_rows(self) -> Tensor:
        """Where in `wanted` there is something to predict."""
        if self.labels is not None:
            return torch.arange(len(self.labels), device=self.labels.device)
        return (self.target_out.flatten() != Tokenizer.PAD).nonzero()[:, 0]

    def to(self, device: torch.device | str) -> "Batch":
        there: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in there.items():
            if isinstance(value, Tensor):
                there[name] = value.to(device, non_blocking=True)
        return Batch(**there)


def _padded(
    rows: Sequence[StoredIds | list[int]], *, first: int | None = None, last: int | None = None
) -> NDArray[np.int64]:
    """Rows in one array, each with one special token before or after it."""
    padded = np.full((len(rows), max(map(len, rows)) + 1), Tokenizer.PAD, dtype=np.int64)
    start = 0 if first is None else 1
    for row, ids in zip(padded, rows, strict=True):
        row[start : start + len(ids)] = ids
        if first is not None:
            row[0] = first
        if last is not None:
            row[len(ids)] = last
    return padded


def stacked(rows: Sequence[list[int]]) -> Tensor:
    """Rows of token ids in one tensor, shorter ones padded at the end."""
    longest = max(map(len, rows))
    return torch.tensor([row + [Tokenizer.PAD] * (longest - len(row)) for row in rows])


def alike(lengths: Sequence[int | tuple[int, int]], size: int) -> Iterator[list[int]]:
    """The numbers of all rows, `size` at a time, with rows of similar length together."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for start in range(0, len(order), size):
        yield order[start : start + size]


class TokenPairs(Protocol):
    """Pairs of token ids by their number, as a store has them, or an epoch of one."""

    source_lengths: Lengths
    target_lengths: Lengths

    def pair(self, index: int) -> tuple[StoredIds, StoredIds]: ...


class EpochStore(Protocol):
    """What may have other pairs in each epoch."""

    def epoch(self, number: int) -> TokenPairs: ...


def make_batch(store: TokenPairs, indices: Indices, place: BatchPosition = (0, 0), labelled: bool = False) -> Batch:
    sources, targets = zip(*(store.pair(int(index)) for index in indices), strict=True)
    return Batch.from_rows(sources, targets, indices, place, labelled)


def plan_epoch(
    source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int, seed: int, epoch: int
) -> list[Indices]:
    """Every pair once: rows x longest side (EOS included) is at most `batch_tokens`, except for a lone long pair."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(source_lengths))
    source, target = source_lengths[order].astype(np.int64), target_lengths[order].astype(np.int64)
    # By target length; within it by source length, in turns up and down, so that neighbours stay alike where
    # the target length changes. Ties keep their random order, so the batches differ from epoch to epoch.
    up_or_down = np.where(target % 2 == 0, source, -source)
    by_length = np.lexsort((up_or_down, target))
    order = order[by_length]
    sizes = np.maximum(source, target)[by_length] + 1
    batches = _cut(order, sizes, batch_tokens)
    return [batches[place] for place in rng.permutation(len(batches))]


def _cut(order: Indices, sizes: NDArray[np.int64], batch_tokens: int) -> list[Indices]:
    """The longest runs that fit, found with a few array operations per batch and none per pair."""
    batches = []
    row_numbers = np.arange(1, min(batch_tokens, len(order)) + 1)
    start = 0
    while start < len(order):
        window = sizes[start : start + max(1, batch_tokens // int(sizes[start]))]
        padded = np.maximum.accumulate(window) * row_numbers[: len(window)]
        rows = max(1, int(np.searchsorted(padded, batch_tokens, side="right")))
        batches.append(order[start : start + rows])
        start += rows
    return batches


class CorpusSpan(NamedTuple):
    """Consecutive pairs of a store, and how many times an epoch has each."""

    pairs: int
    weight: float = 1.0


def epoch_rows(spans: Sequence[CorpusSpan], seed: int, epoch: int) -> Indices:
    """The rows of a store that an epoch has. Each epoch has another part of a fractional span, so that in time all rows
    are seen equally often."""
    chosen, start = [], 0
    for number, (pairs, weight) in enumerate(spans):
        times, fraction = divmod(weight, 1)
        rows = np.arange(start, start + pairs)
        chosen += [rows] * int(times)
        if fraction:
            begin, end = (round(pairs * fraction * turn) for turn in (epoch, epoch + 1))
            order = np.random.default_rng([seed, number]).permutation(rows)
            chosen.append(np.take(order, np.arange(begin, end), mode="wrap"))
        start += pairs
    return np.concatenate(chosen)


class Batches(Protocol):
    """A stream of batches, as the trainer reads it."""

    together: int

    def batches_in(self, epoch: int) -> int: ...

    def at(self, epoch: int, index: int, share: BatchShare = WHOLE) -> Batch: ...


class BatchStream:
    """The batch at a position (epoch, index); that position is all the state there is.

    Where the store is `labelled`, a target is the number of a label.
    """

    together = 1

    def __init__(
        self,
        store: EpochStore,
        batch_tokens: int,
        seed: int,
        labelled: bool = False,
        spans: Sequence[CorpusSpan] = (),
    ) -> None:
        self._store, self._labelled = store, labelled
        self._spans = spans if any(span.weight != 1 for span in spans) else ()
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._epoch = -1
        self._plan: list[Indices] = []

    def batches_in(self, epoch: int) -> int:
        return len(self._plan_for(epoch))

    def at(self, epoch: int, index: int, share: BatchShare = WHOLE) -> Batch:
        indices = self._plan_for(epoch)[index]
        own = share.rows(indices)
        batch = make_batch(self._pairs, own if len(own) else indices[:1], (epoch, index), self._labelled)
        return batch if len(own) else replace(batch, counts=False)

    def _plan_for(self, epoch: int) -> list[Indices]:
        if epoch != self._epoch:
            self._pairs = self._store.epoch(epoch)
            lengths = self._pairs.source_lengths, self._pairs.target_lengths
            rows = epoch_rows(self._spans, self._seed, epoch) if self._spans else None
            if rows is not None:
                lengths = lengths[0][rows], lengths[1][rows]
            plan = plan_epoch(*lengths, self._batch_tokens, self._seed, epoch)
            self._plan = plan if rows is None else [rows[places] for places in plan]
            self._epoch = epoch
        return self._plan


class PairStream:
    """Batches of several language pairs, each batch of one pair. A position (epoch, index) is all the state there is.

    Whose turn it is at a position can be computed; a pair's own epochs go on from one epoch of the mixture to the next.

    each: the pairs take turns, one batch of each to a round; an epoch lasts until the largest has been read once.
    temperature: an epoch has as many batches as the pairs have together, in random order; a pair's share is its
    size ^ (1 / temperature) (Arivazhagan et al. 2019).
    """

    def __init__(
        self,
        streams: Sequence[BatchStream],
        sizes: Sequence[int],
        sampling: Literal["each", "temperature"],
        temperature: float,
        seed: int,
    ) -> None:
        self._streams, self._seed = streams, seed
        self._batches = [stream.batches_in(0) for stream in streams]
        self._sampled = sampling == "temperature"
        self.together = 1 if self._sampled else len(streams)
        self.turns = turns_by_size(self._batches, sizes, temperature) if self._sampled else self._equal_turns()
        self._epoch, self._order = -1, np.empty((0, 2), np.int64)

    def _equal_turns(self) -> list[int]:
        return [max(self._batches)] * len(self._streams)

    def batches_in(self, epoch: int) -> int:
        return sum(self.turns)

    def at(self, epoch: int, index: int, share: BatchShare = WHOLE) -> Batch:
        language, turn = self._turn_at(epoch, index)
        stream = self._streams[language]
        own_epoch, own_index = divmod(epoch * self.turns[language] + turn, self._batches[language])
        # Augmentation changes lengths, and so the number of batches of later epochs, by a few.
        own_index %= stream.batches_in(own_epoch)
        return replace(stream.at(own_epoch, own_index, share), place=(epoch, index), language=language)

    def _turn_at(self, epoch: int, index: int) -> tuple[int, int]:
        """The language pair whose turn it is, and how many turns it has had in this epoch."""
        if not self._sampled:
            turn, language = divmod(index, len(self._streams))
            return language, turn
        if epoch != self._epoch:
            self._order, self._epoch = _shuffled(self.turns, self._seed, epoch), epoch
        language, turn = self._order[index].tolist()
        return language, turn


def turns_by_size(batches: Sequence[int], sizes: Sequence[int], temperature: float) -> list[int]:
    """How often each pair's turn comes in an epoch; at least once."""
    share = np.asarray(sizes, np.float64) ** (1 / temperature)
    return [max(1, round(float(turns))) for turns in share / share.sum() * sum(batches)]


def _shuffled(turns: Sequence[int], seed: int, epoch: int) -> Indices:
    """All turns in random order as (language, turn), those of a language in their own order."""
    languages = np.random.default_rng([seed, epoch]).permutation(np.repeat(np.arange(len(turns)), turns))
    order = np.stack([languages, languages], axis=1)
    for language, count in enumerate(turns):
        order[languages == language, 1] = np.arange(count)
    return order

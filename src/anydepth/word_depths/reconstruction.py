"""How deep each word goes by how well each layer can tell it from its context (Liu et al. 2021, Eq. 4).

Shapes: w words of a text, n layers, r masked sub-words, b masked texts, s length, v vocabulary.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.data import Tokenizer, alike, mask_and_vocabulary, stacked
from anydepth.data.surfaces import UNKNOWN
from anydepth.data.words import words_of_pieces
from anydepth.model import Transformer
from anydepth.word_depths.table import WordDepths, text_key

Losses = NDArray[np.float32]
LAMBDAS = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)  # a table has a figure for each, and for its own
TEXTS, TOKENS = 256, 8192  # at a time: texts that are sorted by length, and sub-words that run together
MASKED_TOKENS = 2_000_000  # of all texts with a word hidden that are held in memory


@dataclass(frozen=True)
class Occurrences:
    """The words of a text, and the loss of each after each layer, [w, n].

    That is no number for a word none of whose sub-words is its own, such as the second full stop of `...` in one.
    """

    words: list[str]
    losses_wn: Losses

    def depths(self, lambda_: float) -> NDArray[np.int64]:
        """The layer with the least loss, of which later ones pay lambda for each layer more.

        The paper has minus lambda n; then a larger lambda would make words deeper, not shallower as it reports. A word
        of which nothing is known goes deepest.
        """
        layers = self.losses_wn.shape[1]
        found: NDArray[np.int64] = (self.losses_wn + lambda_ * np.arange(1, layers + 1)).argmin(axis=1) + 1
        return np.where(self.told_w, found, layers)

    @property
    def told_w(self) -> NDArray[np.bool_]:
        told: NDArray[np.bool_] = np.atleast_1d(np.isfinite(self.losses_wn).all(axis=1))
        return told


@dataclass(frozen=True)
class MaskedRow:
    """A text with one of its words hidden."""

    text: int
    word: int
    ids: list[int]
    places: list[int]  # of the hidden sub-words
    wanted: list[int]


def reconstruct(
    model: Transformer,
    tokenizer: Tokenizer,
    sources: Iterable[list[int]],
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[Occurrences]:
    """Every word of every text hidden in turn, all its sub-words together; texts are as the encoder reads them.

    The loss of a word is the mean over its sub-words.
    """
    mask, _ = mask_and_vocabulary(tokenizer)
    for chunk in _chunks(sources):
        words_of = [words_of_pieces(tokenizer.surfaces(ids)) for ids in chunk]
        found = [np.full((len(words), model.config.encoder_layers), np.nan, np.float32) for words, _ in words_of]
        rows = [row for i, ids in enumerate(chunk) for row in _masked(i, ids, words_of[i][1], mask, tokenizer.specials)]
        size = max(1, TOKENS // max((len(row.ids) for row in rows), default=1))
        for chosen in alike([len(row.ids) for row in rows], size):
            batch = [rows[i] for i in chosen]
            for row, losses_n in zip(batch, _losses(model, batch), strict=True):
                found[row.text][row.word] = losses_n
        advance(len(chunk))
        yield from (Occurrences(words, losses) for (words, _), losses in zip(words_of, found, strict=True))


def _chunks(sources: Iterable[list[int]]) -> Iterator[list[list[int]]]:
    """Texts of which there are about as many masked copies as memory has room for."""
    chunk: list[list[int]] = []
    for ids in sources:
        chunk.append(ids)
        if len(chunk) == TEXTS or sum(len(one) ** 2 for one in chunk) > MASKED_TOKENS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _masked(
    text: int, ids: list[int], number_of: list[int], mask: int, specials: Collection[int]
) -> Iterator[MaskedRow]:
    places_of: dict[int, list[int]] = {}
    for place, (token, number) in enumerate(zip(ids, number_of, strict=True)):
        if token not in specials and number >= 0:
            places_of.setdefault(number, []).append(place)
    for word, places in places_of.items():
        hidden = [mask if place in places else token for place, token in enumerate(ids)]
        yield MaskedRow(text, word, hidden, places, [ids[place] for place in places])


@torch.inference_mode()
def _losses(model: Transformer, rows: Sequence[MaskedRow]) -> Losses:
    """[b, n]."""
    device = next(model.parameters()).device
    source_bs = stacked([row.ids for row in rows]).to(device)
    longest = source_bs.shape[1]
    padding_bs = source_bs == Tokenizer.PAD
    rows_r = torch.tensor([b * longest + place for b, row in enumerate(rows) for place in row.places], device=device)
    wanted_r = torch.tensor([token for row in rows for token in row.wanted], device=device)
    counts_b = torch.tensor([len(row.places) for row in rows])
    states = model.encode(source_bs, model.full, padding_bs if bool(padding_bs.any()) else None)
    of_layers = [_of_words(_loss(model, state, padding_bs, rows_r, wanted_r), counts_b) for state in states]
    return np.stack(of_layers, axis=1)


def _loss(model: Transformer, state_bsd: Tensor, padding_bs: Tensor, rows_r: Tensor, wanted_r: Tensor) -> Tensor:
    logits_rv = model.output(model.read_out(state_bsd, padding_bs, rows_r)).float()
    found: Tensor = torch.nn.functional.cross_entropy(logits_rv, wanted_r, reduction="none")
    return found.cpu()


def _of_words(loss_r: Tensor, counts_b: Tensor) -> Losses:
    means: Losses = torch.segment_reduce(loss_r, "mean", lengths=counts_b).numpy()
    return means


class Averager:
    """Depths of occurrences, averaged for each word: the table that a served model looks words up in."""

    def __init__(self, layers: int, lambda_: float) -> None:
        """`lambda_` is the one that counts unless another is asked for; the table has it beside some more."""
        self.layers, self.lambda_ = layers, lambda_
        self.lambdas = tuple(sorted({*LAMBDAS, lambda_}))
        self.counts: Counter[str] = Counter()
        self._sums: dict[str, NDArray[np.float64]] = {}

    def add(self, one: Occurrences) -> None:
        depths_lw = np.stack([one.depths(lambda_) for lambda_ in self.lambdas])
        for word, depths_l in compress(zip(one.words, depths_lw.T, strict=True), one.told_w):
            if word == UNKNOWN.strip():  # stands for any word; all that are unseen go deepest
                continue
            self.counts[word] += 1
            self._sums[word] = self._sums.get(word, 0.0) + depths_l

    def table(self, texts: dict[str, tuple[int, ...]], facts: dict[str, object]) -> WordDepths:
        values = {word: tuple((total / self.counts[word]).tolist()) for word, total in self._sums.items()}
        return WordDepths("reconstruction", self.layers, values, self.lambdas, self.lambda_, texts, facts)


def occurrence_depths(found: Iterable[Occurrences], lambda_: float) -> dict[str, tuple[int, ...]]:
    """For each text the depths of its words, as the paper has it."""
    return {text_key(one.words): tuple(one.depths(lambda_).tolist()) for one in found}

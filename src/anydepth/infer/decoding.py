"""A batch of sentences on its way through the decoder, and what a search is asked and gives.

Shapes: b sentences, k beam, r = b x k rows, s source length, v vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from anydepth.data import Tokenizer, stacked
from anydepth.depth import SubNetwork
from anydepth.model import DecoderCache, Transformer
from anydepth.word_depths.table import TokenDepths

SMALL = 2**14  # below so many logits a plain top-k is as fast


@dataclass(frozen=True)
class SearchOptions:
    beam: int = 1
    nbest: int = 1
    length_penalty: float = 0.6
    min_length: int = 1  # tokens before EOS: no output is empty, as in other decoders
    scores: bool = True  # greedy search can do without, and is faster


@dataclass(frozen=True)
class Candidate:
    """An output without BOS and EOS, and its log-probability (EOS included) over the length penalty.

    The score is not a number if it was not asked for. What ran into its limit before EOS came has not ended.
    """

    tokens: tuple[int, ...]
    score: float
    ended: bool = True


def length_penalty(length: int, alpha: float) -> float:
    """GNMT's: ((5 + length) / 6) ^ alpha, the length counting EOS."""
    return float(((5 + length) / 6) ** alpha)


class Encoded(NamedTuple):
    """What the decoder reads: encoder exits, and which of their positions are padding."""

    memory_bsd: Tensor
    padding_bs: Tensor | None


def encode(
    model: Transformer, subs: Sequence[SubNetwork], sources: list[list[int]], token_depths: TokenDepths | None = None
) -> list[Encoded]:
    """The exits of several sub-networks' encoders; layers that they begin with alike run once."""
    device = next(model.parameters()).device
    source_bs = stacked(sources).to(device)
    padding_bs = source_bs == Tokenizer.PAD if any(len(row) < source_bs.shape[1] for row in sources) else None
    plain = [sub.encoder_weights is None and not sub.by_word for sub in subs]
    states = iter(model.encode_each(source_bs, [sub.encoder for sub in compress(subs, plain)], padding_bs))
    depths = None if all(plain) or token_depths is None else token_depths.tensor(source_bs)
    exits = [
        (next(states) if is_plain else model.encode(source_bs, sub, padding_bs, depths=depths))[-1]
        for sub, is_plain in zip(subs, plain, strict=True)
    ]
    return [Encoded(model.memory(state_bsd), padding_bs) for state_bsd in exits]


class Steps(Protocol):
    """A batch on its way: the encoder has run, the decoder goes one position per call. Search knows no more of it."""

    device: torch.device

    def step(self, tokens_r: Tensor) -> Tensor:
        """Logits [r, v] of the next position, which are the caller's to change."""

    def keep_rows(self, rows: Tensor) -> None:
        """Go on with these rows, in this order; they may repeat (beams) or be missing (finished sentences)."""

    def keep_sentences(self, sentences: Tensor) -> None:
        """The same for what the rows of a sentence share."""


class Decoding:
    """`Steps` of a Transformer."""

    def __init__(self, model: Transformer, sub: SubNetwork, encoded: Encoded, limit: int) -> None:
        self.model, self.sub = model, sub
        self.memory, self.padding_bs = encoded
        self.device = self.memory.device
        self.cache = DecoderCache(len(sub.decoder), limit)

    def step(self, tokens_r: Tensor) -> Tensor:
        states = self.model.decode(tokens_r[:, None], self.memory, self.sub, self.padding_bs, self.cache)
        logits_rv: Tensor = self.model.output(self.model.features(states[-1][:, -1]))
        return never(logits_rv)

    def keep_rows(self, rows: Tensor) -> None:
        self.cache.keep_rows(rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        if self.padding_bs is not None:
            self.padding_bs = self.padding_bs[sentences]
        self.cache.keep_sentences(sentences)


def never(logits_rv: Tensor) -> Tensor:
    """Rule out what may never be generated: PAD, UNK and BOS come before EOS."""
    logits_rv[:, : Tokenizer.EOS] = float("-inf")
    return logits_rv


def largest(x_rv: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`x_rv.topk(k)` in less than half the time: the k largest values lie in the k blocks with the largest maxima."""
    rows, v = x_rv.shape
    block = next((size for size in (64, 32, 16) if v % size == 0 and v // size >= 2 * k), None)
    if block is None or rows * v < SMALL:
        return tuple(x_rv.topk(k, dim=-1))  # type: ignore[return-value]
    blocks_rnb = x_rv.view(rows, v // block, block)
    chosen_rk = blocks_rnb.amax(dim=-1).topk(k, dim=-1, sorted=False).indices
    candidates = blocks_rnb.gather(1, chosen_rk[:, :, None].expand(rows, k, block)).view(rows, k * block)
    values, places = candidates.topk(k, dim=-1)
    return values, chosen_rk.gather(1, places // block) * block + places % block

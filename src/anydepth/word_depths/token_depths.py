"""The depth of each token of a text, from the depths of its words."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from anydepth.data import Batch, Tokenizer
from anydepth.data.batches import WHOLE, Batches, Share
from anydepth.data.words import words_of_pieces
from anydepth.errors import UserError
from anydepth.word_depths.table import WordDepths

Special = Literal["deepest", "shallowest"]


@dataclass(frozen=True)
class TokenDepths:
    """Sub-words have the depth of their word. What is no word, such as the end of a text, is as deep as the deepest
    word of the text, or runs one layer. Padding has no depth.
    """

    table: WordDepths
    tokenizer: Tokenizer
    special: Special = "deepest"
    scale: float = 1.0
    lambda_: float | None = None

    def changed(self, scale: float | None = None, lambda_: float | None = None) -> "TokenDepths":
        """The same words deeper or shallower: with these instead of its own, where they are given."""
        changed = replace(
            self,
            scale=self.scale if scale is None else scale,
            lambda_=self.lambda_ if lambda_ is None else lambda_,
        )
        changed.table.depths([], changed.scale, changed.lambda_)  # refuses what cannot be
        return changed

    def words(self, ids: Sequence[int]) -> tuple[list[str], list[int], list[int]]:
        """The words of a text as the encoder reads it, the depth of each, and for each token the number of its word."""
        words, number_of = words_of_pieces(self.tokenizer.surfaces(ids))
        return words, self.table.depths(words, self.scale, self.lambda_), number_of

    def of(self, ids: Sequence[int]) -> list[int]:
        """How many layers each token of a text runs, given as the encoder reads it."""
        _, depths, number_of = self.words(ids)
        specials = self.tokenizer.specials
        found = [
            None if token in specials or number < 0 else depths[number]
            for token, number in zip(ids, number_of, strict=True)
        ]
        deepest = max((depth for depth in found if depth is not None), default=1)
        special = deepest if self.special == "deepest" else 1
        return [special if depth is None else depth for depth in found]

    def tensor(self, source_bs: Tensor) -> Tensor:
        """[b, s], 0 at padding, which is at the end of each row."""
        depths_bs = torch.zeros_like(source_bs, device="cpu")
        lengths = (source_bs != Tokenizer.PAD).sum(1).tolist()
        for row, ids, length in zip(depths_bs, source_bs.tolist(), lengths, strict=True):
            row[:length] = torch.tensor(self.of(ids[:length]))
        return depths_bs

    def on(self, batch: Batch) -> Batch:
        """The batch with the depth of each token of its source."""
        return replace(batch, depths=self.tensor(batch.source))

    def to_bytes(self) -> bytes:
        """All that the depths follow from, but for the tokenizer."""
        rule = {"special": self.special, "scale": self.scale, "lambda": self.lambda_}
        return json.dumps([self.table.to_json(), rule], sort_keys=True).encode()

    def check_layers(self, layers: int) -> None:
        if self.table.layers != layers:
            raise UserError(
                f"the word depths are for {self.table.layers} layers and the encoder has {layers}: make them for that "
                "many with `anydepth word-depths`"
            )


class DepthStream:
    """The batches of another stream with the depth of each token: by one of `choices`, drawn for each batch."""

    def __init__(self, stream: Batches, choices: Sequence[TokenDepths], seed: int) -> None:
        self._stream, self._choices, self._seed, self.together = stream, choices, seed, stream.together

    def batches_in(self, epoch: int) -> int:
        return self._stream.batches_in(epoch)

    def at(self, epoch: int, index: int, share: Share = WHOLE) -> Batch:
        drawn = int(np.random.default_rng([self._seed, epoch, index]).integers(len(self._choices)))
        return self._choices[drawn].on(self._stream.at(epoch, index, share))

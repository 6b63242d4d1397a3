"""Text with some of its sub-words hidden, for a model to predict them (Devlin et al. 2019)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from anydepth.errors import UserError
from anydepth.text.batches import Batch, alike
from anydepth.text.tokenizer import Tokenizer

MASK = "<mask>"

# What becomes of a chosen sub-word: mostly a mask; now and then another one, or it stays, so that the model has to
# look at every position and not only at masks.
SHARE_MASKED, SHARE_OTHER = 0.8, 0.1


class TextStream(Protocol):
    together: int

    def batches_in(self, epoch: int) -> int: ...

    def at(self, epoch: int, index: int) -> Batch: ...


class MaskedStream:
    """The batches of another stream, whose sources are their targets, damaged as (seed, epoch, index) has it."""

    def __init__(self, stream: TextStream, probability: float, mask_id: int, vocabulary: int, seed: int) -> None:
        self._stream, self._seed = stream, seed
        self._probability, self._mask_id, self._vocabulary = probability, mask_id, vocabulary
        self.together = stream.together

    def batches_in(self, epoch: int) -> int:
        return self._stream.batches_in(epoch)

    def at(self, epoch: int, index: int) -> Batch:
        batch = self._stream.at(epoch, index)
        return mask_batch(batch, self._probability, self._mask_id, self._vocabulary, (self._seed, epoch, index))


def masked_batches(
    tokenizer: Tokenizer, texts: Sequence[list[int]], probability: float, seed: int, size: int = 64
) -> Iterator[Batch]:
    """Texts to measure with: always with the same sub-words hidden."""
    for number, chosen in enumerate(alike([len(text) for text in texts], size)):
        rows = [texts[i] for i in chosen]
        yield mask_batch(Batch.from_rows(rows, rows), probability, *mask_and_vocabulary(tokenizer), (seed, number))


def mask_and_vocabulary(tokenizer: Tokenizer) -> tuple[int, int]:
    """The symbol that hides a sub-word, and the size of the vocabulary."""
    mask = tokenizer.id_of(MASK)
    if mask is None:
        raise UserError(f"the tokenizer does not know {MASK}: take the one that a masked model was trained with")
    return mask, tokenizer.vocabulary_size


def mask_batch(batch: Batch, probability: float, mask_id: int, vocabulary: int, seed: Sequence[int]) -> Batch:
    """Sources with damage; in `target_out` the sub-words that were chosen, and PAD everywhere else.

    At least one is chosen. What begins and ends a text never is.
    """
    rng = np.random.default_rng(list(seed))
    text_bs = batch.source.numpy()
    is_word_bs = (text_bs != Tokenizer.PAD) & (text_bs != Tokenizer.BOS) & (text_bs != Tokenizer.EOS)
    chance_bs = np.where(is_word_bs, rng.random(text_bs.shape), 1.0)
    chosen_bs = chance_bs < probability
    if not chosen_bs.any():
        chosen_bs.flat[chance_bs.argmin()] = True
    fate_bs = rng.random(text_bs.shape)
    # Any piece of text with the same chance: not the four before, and not the mask, in whose place the last one stands.
    other_bs = rng.integers(Tokenizer.EOS + 1, vocabulary - 1, text_bs.shape)
    other_bs[other_bs == mask_id] = vocabulary - 1
    damaged_bs = np.where(fate_bs < SHARE_MASKED, mask_id, text_bs)
    damaged_bs = np.where((fate_bs >= SHARE_MASKED) & (fate_bs < SHARE_MASKED + SHARE_OTHER), other_bs, damaged_bs)
    return replace(
        batch,
        source=torch.from_numpy(np.where(chosen_bs, damaged_bs, text_bs)),
        target_out=torch.from_numpy(np.where(chosen_bs, text_bs, Tokenizer.PAD)),
        target_tokens=int(chosen_bs.sum()),
    )

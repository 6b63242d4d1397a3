"""Text with some of its subwords masked, for a model to predict them (Devlin et al. 2019)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from anydepth.data.batching import WHOLE, Batch, Batches, BatchShare, alike
from anydepth.data.tokenizer import MASK, Tokenizer
from anydepth.errors import UserError
from anydepth.rng import keyed_uniform

# What becomes of a chosen subword: mostly a mask; now and then another one, or it stays, so that the model has to
# look at every position and not only at masks.
SHARE_MASKED, SHARE_OTHER = 0.8, 0.1


class MaskedStream:
    """The batches of another stream, whose sources are their targets, masked by (seed, epoch, sentence)."""

    def __init__(self, stream: Batches, probability: float, mask_id: int, vocabulary: int, seed: int) -> None:
        self._stream, self._seed = stream, seed
        self._probability, self._mask_id, self._vocabulary = probability, mask_id, vocabulary
        self.together = stream.together

    def batches_in(self, epoch: int) -> int:
        return self._stream.batches_in(epoch)

    def at(self, epoch: int, index: int, share: BatchShare = WHOLE) -> Batch:
        batch = self._stream.at(epoch, index, share)
        return mask_batch(batch, self._probability, self._mask_id, self._vocabulary, (self._seed, epoch))


def masked_batches(
    tokenizer: Tokenizer, texts: Sequence[list[int]], probability: float, seed: int, size: int = 64
) -> Iterator[Batch]:
    """Texts to measure with: always with the same subwords masked."""
    for chosen in alike([len(text) for text in texts], size):
        rows = [texts[i] for i in chosen]
        batch = Batch.from_rows(rows, rows, np.array(chosen))
        yield mask_batch(batch, probability, *mask_and_vocabulary(tokenizer), (seed,))


def mask_and_vocabulary(tokenizer: Tokenizer) -> tuple[int, int]:
    """The symbol of a masked subword, and the size of the vocabulary."""
    mask = tokenizer.symbol_id(MASK)
    if mask is None:
        raise UserError(f"the tokenizer does not know {MASK}: take the one that a masked model was trained with")
    return mask, tokenizer.vocabulary_size


def mask_batch(batch: Batch, probability: float, mask_id: int, vocabulary: int, seed: Sequence[int]) -> Batch:
    """Masked sources; in `target_out` the subwords that were chosen, and PAD everywhere else.

    Of each text at least one is chosen. What begins and ends it never is.
    """
    text_bs = batch.source.numpy()
    chance_bs, fate_bs, which_bs = (
        keyed_uniform(*seed, batch.indices[:, None], np.arange(text_bs.shape[1])[None], draw) for draw in range(3)
    )
    is_word_bs = (text_bs != Tokenizer.PAD) & (text_bs != Tokenizer.BOS) & (text_bs != Tokenizer.EOS)
    chance_bs = np.where(is_word_bs, chance_bs, 1.0)
    chosen_bs = chance_bs < probability
    chosen_bs |= is_word_bs & (chance_bs == chance_bs.min(axis=1, keepdims=True))
    # Any piece of text with the same chance: not the four before, and not the mask, in whose place the last one stands.
    first = Tokenizer.EOS + 1
    other_bs = first + (which_bs * (vocabulary - 1 - first)).astype(np.int64)
    other_bs[other_bs == mask_id] = vocabulary - 1
    masked_bs = np.where(fate_bs < SHARE_MASKED, mask_id, text_bs)
    masked_bs = np.where((fate_bs >= SHARE_MASKED) & (fate_bs < SHARE_MASKED + SHARE_OTHER), other_bs, masked_bs)
    return replace(
        batch,
        source=torch.from_numpy(np.where(chosen_bs, masked_bs, text_bs)),
        target_out=torch.from_numpy(np.where(chosen_bs, text_bs, Tokenizer.PAD)),
        target_tokens=int(chosen_bs.sum()),
    )

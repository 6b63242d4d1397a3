"""What the selector's network reads of a sentence: sub-words or the states after the model's first encoder layer, and
a few figures.

Shapes: b batch, s source length, d width, f figures.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import sentencepiece
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.model import Transformer

FIGURES = 3


@dataclass(frozen=True)
class Inputs:
    """On the device of the model."""

    source_bs: Tensor  # ends in EOS, then PAD
    padding_bs: Tensor | None  # True at padding; None where nothing is padded
    figures_bf: Tensor
    states_bsd: Tensor | None  # None where the network has embeddings of its own


class Reader:
    """Turns sentences into inputs, with the frozen model where its encoder is to be read."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, encoder: bool) -> None:
        self._positions_pd = model.positions_pd
        self._rarity = rarity_of_pieces(tokenizer)
        self._model = model if encoder else None

    @property
    def device(self) -> torch.device:
        return self._positions_pd.device

    def __call__(self, sources: Sequence[Sequence[int]]) -> Inputs:
        """Token ids that end in EOS."""
        source_bs, padding_bs = self._padded(sources)
        states_bsd = None if self._model is None else self._after_first_layer(self._model, source_bs, padding_bs)
        figures_bf = torch.tensor([self.figures(source) for source in sources], device=source_bs.device)
        return Inputs(source_bs, padding_bs, figures_bf, states_bsd)

    def _after_first_layer(self, model: Transformer, source_bs: Tensor, padding_bs: Tensor | None) -> Tensor:
        """What a decoder would read after one encoder layer."""
        return model.memory(model.encode(source_bs, SubNetwork.prefix(1, 1), padding_bs)[0])

    def figures(self, source: Sequence[int]) -> tuple[float, float, float]:
        """Log length, mean and largest rarity of the sub-words, of which EOS is none. In Python: faster for one."""
        rarity = [self._rarity[piece] for piece in source]
        return math.log(len(rarity)), sum(rarity) / max(1, len(rarity) - 1), max(rarity)

    def _padded(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        if len(sources) == 1:
            return torch.tensor([list(sources[0])], device=self.device), None
        rows = [torch.tensor(list(source)) for source in sources]
        source_bs = pad_sequence(rows, batch_first=True, padding_value=Tokenizer.PAD).to(self.device)
        padding_bs = source_bs == Tokenizer.PAD
        return source_bs, padding_bs if bool(padding_bs.any()) else None


def rarity_of_pieces(tokenizer: Tokenizer) -> list[float]:
    """For each piece minus its log-probability under the unigram model; those that begin or end a sentence have 0.

    Bytes spell what has no piece, and have no probability: they count as rare as the rarest piece.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())
    pieces = range(processor.vocab_size())
    rarity = [-float(processor.get_score(piece)) for piece in pieces]
    rarest = max(rarity)
    spelt = (processor.is_byte(piece) or processor.is_unknown(piece) for piece in pieces)
    return [rarest if is_spelt else value for is_spelt, value in zip(spelt, rarity, strict=True)]

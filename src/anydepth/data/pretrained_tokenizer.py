"""The tokenizer of a checkpoint from elsewhere, in our numbering of the four special sub-words."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

from anydepth.data.masking import MASK
from anydepth.data.surfaces import (
    UNKNOWN,
    byte_level_surfaces,
    sentencepiece_surfaces,
    suffix_surfaces,
    word_piece_surfaces,
)
from anydepth.data.tokenizer import Tokenizer, encodable
from anydepth.errors import UserError

# What pad, unk, bos and eos are called, in the order of our numbers.
NAMES = (("[PAD]", "<pad>"), ("[UNK]", "<unk>"), ("[CLS]", "<s>"), ("[SEP]", "</s>"))
MASK_NAMES = ("[MASK]", MASK)
ADVICE = "take a checkpoint of the BERT family with its tokenizer.json"


class PretrainedTokenizer(Tokenizer):
    """Sub-words of a tokenizer.json, renumbered: pad, unk, bos and eos are 0, 1, 2, 3.

    Special sub-words never come out of text. Their names in a text are split like other words; where the vocabulary
    has no other way to write them, they are unknown.
    """

    opening: ClassVar[tuple[int, ...]] = (Tokenizer.BOS,)
    file_name: ClassVar[str] = "tokenizer.json"

    def __init__(self, model: bytes) -> None:
        from tokenizers import Tokenizer as Splitter

        self._model = model
        self._splitter = Splitter.from_buffer(model)
        # A checkpoint may cut or fill up texts to the length it was trained with.
        self._splitter.no_truncation()
        self._splitter.no_padding()
        self._splitter.encode_special_tokens = True
        vocabulary: dict[str, int] = self._splitter.get_vocab(with_added_tokens=True)
        self.order = renumbered(max(vocabulary.values(), default=-1) + 1, special_ids(vocabulary))
        self._new = [0] * len(self.order)
        for new, old in enumerate(self.order):
            self._new[old] = new
        mask = next((vocabulary[name] for name in MASK_NAMES if name in vocabulary), None)
        self._mask = None if mask is None else self._new[mask]
        self._from_text = [self.UNK if new in self.specials else new for new in self._new]

    @cached_property
    def specials(self) -> frozenset[int]:
        """What is no text. Unknown sub-words are."""
        added = self._splitter.get_added_tokens_decoder()
        specials = {self._new[old] for old, token in added.items() if token.special}
        specials |= {self.PAD, self.BOS, self.EOS} | (set() if self._mask is None else {self._mask})
        return frozenset(specials - {self.UNK})

    @classmethod
    def from_bytes(cls, model: bytes) -> "PretrainedTokenizer":
        try:
            return cls(model)
        except UserError:
            raise
        except Exception as error:  # the library has no other type for a file that it cannot read
            raise UserError("the tokenizer.json is damaged: copy it again") from error

    @property
    def vocabulary_size(self) -> int:
        return len(self.order)

    def id_of(self, symbol: str) -> int | None:
        """The number of the mask; there are no other symbols."""
        return self._mask if symbol == MASK else None

    def encode(self, text: str) -> list[int]:
        """Sub-words of a text of any length, without BOS and EOS."""
        return self._renumber(self._splitter.encode(encodable(text), add_special_tokens=False))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) < 2:
            return [self.encode(text) for text in texts]
        split = self._splitter.encode_batch([encodable(text) for text in texts], add_special_tokens=False)
        return [self._renumber(encoding) for encoding in split]

    def _renumber(self, encoding: Any) -> list[int]:
        return [self._from_text[old] for old in encoding.ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The text on one line, whatever the ids; what is unknown goes by its name."""
        kept = [self.order[i] for i in map(int, ids) if 0 <= i < len(self.order) and i not in self.specials]
        text: str = self._splitter.decode(kept, skip_special_tokens=False)
        return " ".join(text.splitlines())

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The names of sub-words; a number that the vocabulary leaves out has none."""
        return [self._splitter.id_to_token(self.order[int(i)]) or "" for i in ids]

    def surfaces(self, ids: Iterable[int]) -> list[str]:
        """The text of each sub-word, with a space before it where a new word starts; nothing for special ones."""
        numbers = [int(i) for i in ids]
        # Special ones are left out first: their names need not follow the spelling of the others.
        plain = [i for i in numbers if i not in self.specials and i != self.UNK]
        texts = iter(self._spelt(self.pieces(plain)))
        return [UNKNOWN if i == self.UNK else "" if i in self.specials else next(texts) for i in numbers]

    def _spelt(self, pieces: list[str]) -> list[str]:
        from tokenizers.models import BPE, WordPiece

        model = self._splitter.model
        if isinstance(model, WordPiece):
            return word_piece_surfaces(pieces, model.continuing_subword_prefix)
        if isinstance(model, BPE) and model.end_of_word_suffix:
            return suffix_surfaces(pieces, model.end_of_word_suffix)
        if "ByteLevel" in f"{self._splitter.pre_tokenizer!r} {self._splitter.decoder!r}":
            return byte_level_surfaces(pieces)
        return sentencepiece_surfaces(pieces)


def special_ids(vocabulary: dict[str, int]) -> list[int]:
    """Where pad, unk, bos and eos are."""
    found = []
    for names in NAMES:
        name = next((name for name in names if name in vocabulary), None)
        if name is None:
            raise UserError(f"the tokenizer has no {' or '.join(names)}: {ADVICE}")
        found.append(vocabulary[name])
    return found


def renumbered(size: int, first: Sequence[int]) -> list[int]:
    """For each new number the old one: those of `first` change places with what was there; the rest stay."""
    order, place = list(range(size)), list(range(size))
    for new, old in enumerate(first):
        there, moved = place[old], order[new]
        order[new], order[there] = old, moved
        place[old], place[moved] = new, there
    return order

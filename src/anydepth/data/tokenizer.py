"""Text to numbers and back: with a sentencepiece unigram model of our own, or the tokenizer of a checkpoint."""

import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import sentencepiece

from anydepth.data.sentencepiece_file import target_model
from anydepth.data.words import (
    UNKNOWN,
    byte_level_surfaces,
    sentencepiece_surfaces,
    suffix_surfaces,
    word_piece_surfaces,
)
from anydepth.errors import UserError

MASK = "<mask>"  # hides a subword, in masked language modelling
# The number of threads decides how sentencepiece adds up its statistics, and so the last bits of the model.
TRAINING_THREADS = 8
LONGEST_LINE_IN_BYTES = 1 << 16
CHARACTERS = 40_000_000  # of text at most to train with: sentencepiece takes 25 bytes of memory for each
THINNED_TO = 0.9
# With bytes to fall back on, the rarest ten-thousandth of the text need not have pieces of its own.
COVERAGE_WITH_BYTES = 0.9999
# What pad, unk, bos and eos are called, in the order of our numbers.
SPECIAL_NAMES = (("[PAD]", "<pad>"), ("[UNK]", "<unk>"), ("[CLS]", "<s>"), ("[SEP]", "</s>"))
MASK_NAMES = ("[MASK]", MASK)
CHECKPOINT_ADVICE = "take a checkpoint of the BERT family with its tokenizer.json"


@dataclass(frozen=True)
class TokenizerOptions:
    """How to train one, from at most `sample` sentences.

    A share of `coverage` of the characters, and those `required`, have pieces of their own. `symbols` are pieces that
    no text is ever split into and that leave no trace in decoded text.
    """

    vocabulary: int
    sample: int
    byte_fallback: bool = True
    symbols: Sequence[str] = ()
    coverage: float | None = None
    required: str = ""
    split_digits: bool = False


class Tokenizer:
    PAD, UNK, BOS, EOS = range(4)
    opening: ClassVar[tuple[int, ...]] = ()  # what an encoder reads before a text
    file_name: ClassVar[str] = "tokenizer.model"

    threads = -1  # to split many texts with; as many as there are cores

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = self._target = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        if (target := target_model(model)) is not None:
            self._target = sentencepiece.SentencePieceProcessor()
            self._target.LoadFromSerializedProto(target)

    @classmethod
    def from_bytes(cls, model: bytes) -> "Tokenizer":
        """Of either kind: that of a pre-trained encoder is JSON."""
        if model[:1] == b"{":
            return PretrainedTokenizer.from_bytes(model)
        try:
            tokenizer = cls(model)
        except RuntimeError as error:
            raise UserError("the tokenizer model is damaged: copy or make it again") from error
        specials = tokenizer._processor
        found = (specials.pad_id(), specials.unk_id(), specials.bos_id(), specials.eos_id())
        if found != (cls.PAD, cls.UNK, cls.BOS, cls.EOS):
            raise UserError("the tokenizer was not made by anydepth: its pad, unk, bos and eos are not 0, 1, 2, 3")
        return tokenizer

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """From its file, or from a model or run."""
        inside = [path / name for name in ("tokenizer.model", "tokenizer.json")]
        places = (path, *inside, *(path / "model" / place.name for place in inside))
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            raise UserError(f"there is no tokenizer at {path}: give a model, a finished run or a tokenizer.model")
        return cls.from_bytes(found.read_bytes())

    @classmethod
    def train(
        cls,
        sentences: Iterator[str],
        options: TokenizerOptions,
        seed: int,
    ) -> "Tokenizer":
        """Learn the pieces of a sentencepiece model; the same input gives the same bytes."""
        # Sentencepiece could sample too, but differently in every process.
        chosen = sample_sentences(sentences, options.sample, seed, CHARACTERS)
        unusual: dict[str, Any] = {"control_symbols": list(options.symbols)} if options.symbols else {}
        if options.required:
            unusual["required_chars"] = "".join(sorted(set(options.required)))
        if options.split_digits:
            unusual["split_digits"] = True
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(chosen),
                model_writer=model,
                model_type="unigram",
                vocab_size=options.vocabulary,
                character_coverage=options.coverage or (COVERAGE_WITH_BYTES if options.byte_fallback else 1.0),
                byte_fallback=options.byte_fallback,
                normalization_rule_name="nmt_nfkc",
                max_sentence_length=LONGEST_LINE_IN_BYTES,
                pad_id=cls.PAD,
                unk_id=cls.UNK,
                bos_id=cls.BOS,
                eos_id=cls.EOS,
                num_threads=TRAINING_THREADS,
                minloglevel=2,
                **unusual,
            )
        except RuntimeError as error:
            raise _explain(str(error), options.vocabulary) from error
        return cls(model.getvalue())

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer.from_bytes, (self._model,)

    @property
    def vocabulary_size(self) -> int:
        return int(self._processor.vocab_size())

    @cached_property
    def specials(self) -> frozenset[int]:
        """What is no text: padding, the ends of a text, the `symbols` it was trained with."""
        return frozenset(i for i in range(self.vocabulary_size) if self._processor.is_control(i))

    def symbol_id(self, symbol: str) -> int | None:
        """The number of one of the `symbols` it was trained with."""
        found = int(self._processor.piece_to_id(symbol))
        is_one = found > self.EOS and self._processor.is_control(found)
        return found if is_one and self._processor.id_to_piece(found) == symbol else None

    def to_bytes(self) -> bytes:
        return self._model

    def encode(self, text: str) -> list[int]:
        """Subwords of a sentence, without BOS and EOS."""
        return self._known(self._processor, encodable(text), list(self._processor.encode(encodable(text))))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) < 2:  # a list goes through threads, which take longer to start than a sentence to split
            return [self.encode(text) for text in texts]
        return self._encode_with(self._processor, texts)

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for translations, which some imported models split by rules of their own."""
        if self._target is self._processor:
            return self.encode_many(texts)
        return self._encode_with(self._target, texts)

    def _encode_with(self, processor: Any, texts: Sequence[str]) -> list[list[int]]:
        given = [encodable(text) for text in texts]
        found = processor.encode(given, num_threads=self.threads)
        return [self._known(processor, text, ids) for text, ids in zip(given, found, strict=True)]

    def _known(self, processor: Any, text: str, ids: list[int]) -> list[int]:
        """Of two sides with pieces of their own, what the one does not know may be a piece of the other."""
        if self._target is self._processor or self.UNK not in ids:
            return ids
        numbers = [int(processor.piece_to_id(piece)) for piece in processor.encode(text, out_type=str)]
        return [self.UNK if number in self.specials else number for number in numbers]

    def decode(self, ids: Iterable[int]) -> str:
        """The sentence on one line, whatever the ids."""
        size = self.vocabulary_size
        text: str = self._target.decode([int(i) for i in ids if self.EOS < i < size or i == self.UNK])
        return " ".join(text.splitlines())

    def surfaces(self, ids: Iterable[int]) -> list[str]:
        """The text of each subword, with a space before it where a word begins."""
        return sentencepiece_surfaces(self.pieces(ids))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._processor.id_to_piece(int(i)) for i in ids]


class PretrainedTokenizer(Tokenizer):
    """Subwords of a tokenizer.json, renumbered: pad, unk, bos and eos are 0, 1, 2, 3.

    Special subwords never come out of text. Their names in a text are split like other words; where the vocabulary
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
        self.order = renumber(max(vocabulary.values(), default=-1) + 1, special_ids(vocabulary))
        self._new = [0] * len(self.order)
        for new, old in enumerate(self.order):
            self._new[old] = new
        mask = next((vocabulary[name] for name in MASK_NAMES if name in vocabulary), None)
        self._mask = None if mask is None else self._new[mask]
        self._from_text = [self.UNK if new in self.specials else new for new in self._new]

    @cached_property
    def specials(self) -> frozenset[int]:
        """What is no text, unlike unknown subwords."""
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

    def symbol_id(self, symbol: str) -> int | None:
        """The number of the mask; there are no other symbols."""
        return self._mask if symbol == MASK else None

    def encode(self, text: str) -> list[int]:
        """Subwords of a text of any length, without BOS and EOS."""
        return self._renumber(self._splitter.encode(encodable(text), add_special_tokens=False))

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_many(texts)

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
        """The names of subwords; a number that the vocabulary leaves out has none."""
        return [self._splitter.id_to_token(self.order[int(i)]) or "" for i in ids]

    def surfaces(self, ids: Iterable[int]) -> list[str]:
        """The text of each subword, with a space before it where a new word starts; nothing for special ones."""
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
    for names in SPECIAL_NAMES:
        name = next((name for name in names if name in vocabulary), None)
        if name is None:
            raise UserError(f"the tokenizer has no {' or '.join(names)}: {CHECKPOINT_ADVICE}")
        found.append(vocabulary[name])
    return found


def renumber(size: int, first: Sequence[int]) -> list[int]:
    """For each new number the old one: those of `first` change places with what was there; the rest stay."""
    order, place = list(range(size)), list(range(size))
    for new, old in enumerate(first):
        there, moved = place[old], order[new]
        order[new], order[there] = old, moved
        place[old], place[moved] = new, there
    return order


def encodable(text: str) -> str:
    """Text without lone surrogates, which JSON may contain and UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def sample_sentences(sentences: Iterator[str], size: int, seed: int, characters: float = inf) -> list[str]:
    """All of them, or if they are too many a uniform sample of nearly `size`, in one pass."""
    rng, share, total = random.Random(seed), 1.0, 0
    chosen: list[str] = []
    for sentence in sentences:
        if share < 1 and rng.random() >= share:
            continue
        chosen.append(sentence)
        total += len(sentence)
        while len(chosen) > size or total > characters:
            share *= THINNED_TO
            chosen = [one for one in chosen if rng.random() < THINNED_TO]
            total = sum(map(len, chosen))
    return chosen


def _explain(message: str, vocabulary: int) -> UserError:
    if too_high := re.search(r"value <= (\d+)", message):
        advice = f"the corpus is too small for {vocabulary} subwords: set data.vocabulary to at most {too_high[1]}"
    elif too_low := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        advice = (
            f"{vocabulary} subwords are fewer than the corpus has characters: "
            f"set data.vocabulary to more than {too_low[1]}"
        )
    elif "sentences_.empty()" in message:
        advice = "no sentence is left to make a vocabulary from: check data.train"
    else:
        advice = f"sentencepiece cannot make a vocabulary of {vocabulary}: {' '.join(message.split())}"
    return UserError(advice)

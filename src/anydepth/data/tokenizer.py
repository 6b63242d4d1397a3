"""Text to numbers and back, with a sentencepiece unigram model."""

import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import sentencepiece

from anydepth.data.surfaces import sentencepiece_surfaces
from anydepth.errors import UserError

# The number of threads decides how sentencepiece adds up its statistics, and so the last bits of the model.
TRAINING_THREADS = 8
LONGEST_LINE_IN_BYTES = 1 << 16
CHARACTERS = 40_000_000  # of text at most to train with: sentencepiece takes 25 bytes of memory for each
THINNED_TO = 0.9
# With bytes to fall back on, the rarest ten-thousandth of the text need not have pieces of its own.
COVERAGE_WITH_BYTES = 0.9999


class Tokenizer:
    PAD, UNK, BOS, EOS = range(4)
    opening: ClassVar[tuple[int, ...]] = ()  # what an encoder reads before a text
    file_name: ClassVar[str] = "tokenizer.model"

    threads = -1  # to split many texts with; as many as there are cores

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)

    @classmethod
    def from_bytes(cls, model: bytes) -> "Tokenizer":
        """Of either kind: one that came with a pre-trained encoder is JSON."""
        if model[:1] == b"{":
            from anydepth.data.pretrained_tokenizer import PretrainedTokenizer  # a Tokenizer too

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
        """From the file of one, or from the model or run that has one."""
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
        vocabulary: int,
        *,
        sample: int,
        byte_fallback: bool,
        seed: int,
        symbols: Sequence[str] = (),
        coverage: float | None = None,
        required: str = "",
        split_digits: bool = False,
    ) -> "Tokenizer":
        """Learn `vocabulary` pieces from at most `sample` sentences; the same input gives the same bytes.

        A share of `coverage` of the characters, and those `required`, have pieces of their own.
        `symbols` are pieces that no text is ever split into and that leave no trace in decoded text.
        """
        # Sentencepiece could sample too, but differently in every process.
        chosen = sampled(sentences, sample, seed, CHARACTERS)
        options: dict[str, Any] = {"control_symbols": list(symbols)} if symbols else {}
        if required:
            options["required_chars"] = "".join(sorted(set(required)))
        if split_digits:
            options["split_digits"] = True
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(chosen),
                model_writer=model,
                model_type="unigram",
                vocab_size=vocabulary,
                character_coverage=coverage or (COVERAGE_WITH_BYTES if byte_fallback else 1.0),
                byte_fallback=byte_fallback,
                normalization_rule_name="nmt_nfkc",
                max_sentence_length=LONGEST_LINE_IN_BYTES,
                pad_id=cls.PAD,
                unk_id=cls.UNK,
                bos_id=cls.BOS,
                eos_id=cls.EOS,
                num_threads=TRAINING_THREADS,
                minloglevel=2,
                **options,
            )
        except RuntimeError as error:
            raise _explain(str(error), vocabulary) from error
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

    def id_of(self, symbol: str) -> int | None:
        """The number of one of the `symbols` it was trained with."""
        found = int(self._processor.piece_to_id(symbol))
        is_one = found > self.EOS and self._processor.is_control(found)
        return found if is_one and self._processor.id_to_piece(found) == symbol else None

    def to_bytes(self) -> bytes:
        return self._model

    def encode(self, text: str) -> list[int]:
        """Sub-words of a sentence, without BOS and EOS."""
        return list(self._processor.encode(encodable(text)))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) < 2:  # a list goes through threads, which take longer to start than a sentence to split
            return [self.encode(text) for text in texts]
        return list(self._processor.encode([encodable(text) for text in texts], num_threads=self.threads))

    def decode(self, ids: Iterable[int]) -> str:
        """The sentence on one line, whatever the ids."""
        size = self.vocabulary_size
        text: str = self._processor.decode([int(i) for i in ids if self.EOS < i < size or i == self.UNK])
        return " ".join(text.splitlines())

    def surfaces(self, ids: Iterable[int]) -> list[str]:
        """The text of each sub-word, with a space before it where a word begins."""
        return sentencepiece_surfaces(self.pieces(ids))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._processor.id_to_piece(int(i)) for i in ids]


def encodable(text: str) -> str:
    """Text without lone surrogates, which JSON can smuggle in and UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def sampled(sentences: Iterator[str], size: int, seed: int, characters: float = inf) -> list[str]:
    """All of them, or if those are too many a uniform sample that is little smaller than it may be, in one pass."""
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
        advice = f"the corpus is too small for {vocabulary} sub-words: set data.vocabulary to at most {too_high[1]}"
    elif too_low := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        advice = (
            f"{vocabulary} sub-words are fewer than the corpus has characters: "
            f"set data.vocabulary to more than {too_low[1]}"
        )
    elif "sentences_.empty()" in message:
        advice = "no sentence is left to make a vocabulary from: check data.train"
    else:
        advice = f"sentencepiece cannot make a vocabulary of {vocabulary}: {' '.join(message.split())}"
    return UserError(advice)

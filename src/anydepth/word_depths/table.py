"""The table of how deep each word goes, made before any text is classified; and from it the depth of each token.

word-depths.json   format, kind, layers, lambdas, lambda, facts; words: the depth of each on a continuous scale, for
                   each lambda; texts: the depths of the words of texts that were measured one by one; rare (format 2):
                   the mean of the words that occurred once
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anydepth.config.section import Finite, Special, Unseen
from anydepth.data.cleaning import digest
from anydepth.data.tokenizer import Tokenizer
from anydepth.data.words import words_of_pieces
from anydepth.errors import UserError
from anydepth.files import write_atomically
from anydepth.word_depths.lookup import Bools, Ids, Lookups

if TYPE_CHECKING:
    from torch import Tensor

    from anydepth.data import Batch
    from anydepth.data.batching import Batches, BatchShare

FORMAT = 2  # the newest that is read; a table without `rare` is written as format 1
DIGITS = 4  # of the values, in memory as in the file, so that a table means the same before and after it is saved
KEPT_ROWS = 8
ADVICE = "make it again with `anydepth word-depths`"

TableKind = Literal["mi", "reconstruction"]
Floats = NDArray[np.float64]
Depths = NDArray[np.int64]


def text_key(words: Sequence[str]) -> str:
    """A fingerprint of a text as it was read, the same in every process. No word has a space in it."""
    return f"{digest(' '.join(words)):016x}"


@dataclass(frozen=True)
class WordDepths:
    """How deep each word goes, of `layers` layers.

    `values` has the depth of a word on a continuous scale: one number for each penalty in `lambdas`, which ascend, or
    a single one without penalties. `lambda_` is the penalty that counts unless another is asked for. `texts` has
    depths for each occurrence of a word, by `text_key`. `facts` say how the table was made. `rare` is the mean value of
    the words that occurred once in the text it was made from, for each penalty; empty where that is not known.
    """

    kind: str
    layers: int
    values: dict[str, tuple[float, ...]]
    lambdas: tuple[float, ...] = ()
    lambda_: float | None = None
    texts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    rare: tuple[float, ...] = ()
    _rows: dict[float | None, dict[str, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        rounded = np.round(_array(self), DIGITS).tolist()
        object.__setattr__(self, "values", dict(zip(self.values, map(tuple, rounded), strict=True)))
        object.__setattr__(self, "rare", tuple(round(value, DIGITS) for value in self.rare))

    def depths(self, words: Sequence[str], scale: float = 1.0, lambda_: float | None = None) -> list[int]:
        """The depth of each word of a text: `scale` times its value to the nearest whole number, halves down.

        It is at least 1 and at most `layers`. A word that is not in the table is as deep as the deepest. Between two
        penalties of the table a value is interpolated.
        """
        row, unseen = self.row(scale, lambda_), self.unseen_value("deepest", lambda_)
        given = self.given_depths(words, scale)
        return self.rounded([row.get(word, unseen) for word in words], scale) if given is None else given

    def given_depths(self, words: Sequence[str], scale: float) -> list[int] | None:
        """Those of a text that was measured itself, if it was."""
        given = self.texts.get(text_key(words)) if self.texts else None
        return None if given is None or len(given) != len(words) else self.rounded(given, scale)

    def row(self, scale: float = 1.0, lambda_: float | None = None) -> dict[str, float]:
        """The value of each word at a penalty. Refuses a scale or a lambda that is not possible."""
        penalty = self._penalty(scale, lambda_)
        if penalty not in self._rows:
            if len(self._rows) >= KEPT_ROWS:  # a sweep over lambdas must not fill the memory
                del self._rows[next(iter(self._rows))]
            self._rows[penalty] = dict(zip(self.values, self._at(_array(self), penalty).tolist(), strict=True))
        return self._rows[penalty]

    def unseen_value(self, rule: Unseen, lambda_: float | None = None) -> float:
        """That of a word which is not in the table: of the deepest layer and word, or the mean of those seen once."""
        penalty = self._penalty(1.0, lambda_)
        if rule != "deepest" and self.rare:
            return float(self._at(np.array([self.rare]), penalty)[0])
        return max(float(self.layers), max(self.row(1.0, lambda_).values(), default=0.0))

    def rounded(self, values: Sequence[float], scale: float) -> list[int]:
        """Depths from values."""
        scaled = np.ceil(scale * np.asarray(values, dtype=np.float64) - 0.5)
        whole: list[int] = np.clip(scaled, 1, self.layers).astype(np.int64).tolist()
        return whole

    def _at(self, values: Floats, penalty: float | None) -> Floats:
        """A column of [word, lambda], interpolated where the penalty is between two of the table."""
        return values[:, 0] if penalty is None else _interpolated(values, self.lambdas, penalty)

    def _penalty(self, scale: float, lambda_: float | None) -> float | None:
        if not (math.isfinite(scale) and scale > 0):
            raise UserError(f"depths cannot be scaled by {scale}: give a number above 0, such as 0.5 or 2")
        if lambda_ is None:
            return self.lambda_
        if not self.lambdas:
            raise UserError(f"depths of kind {self.kind} have no lambda: leave it out, or scale them instead")
        if self.texts and lambda_ != self.lambda_:
            raise UserError(
                f"depths of single occurrences are for a lambda of {self.lambda_} alone: leave it out, or scale them"
            )
        if not math.isfinite(lambda_):
            raise UserError(f"a lambda of {lambda_} is not a finite number: give one such as {self.lambda_}")
        if not self.lambdas[0] <= lambda_ <= self.lambdas[-1]:
            raise UserError(
                f"a lambda of {lambda_} is outside the range of this table, {self.lambdas[0]:g} to "
                f"{self.lambdas[-1]:g}: give one within, or scale them"
            )
        return lambda_

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT if self.rare else 1,
            "kind": self.kind,
            "layers": self.layers,
            "lambdas": list(self.lambdas),
            "lambda": self.lambda_,
            "facts": self.facts,
            "words": {word: list(values) for word, values in self.values.items()},
            "texts": {key: list(depths) for key, depths in self.texts.items()},
            **({"rare": list(self.rare)} if self.rare else {}),
        }

    @classmethod
    def from_json(cls, content: Any) -> "WordDepths":
        """Raises a ValueError that says in a few words what is wrong."""
        try:
            read = _TableRecord.model_validate(content)
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
        return cls(read.kind, read.layers, read.words, read.lambdas, read.lambda_, read.texts, read.facts, read.rare)

    def save(self, path: Path) -> None:
        write_atomically(path, "".join(_pieces(self.to_json())))

    @classmethod
    def load(cls, path: Path) -> "WordDepths":
        try:
            content = json.loads(path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"there are no word depths at {path}: make them with `anydepth word-depths`") from error
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged or holds no word depths: {ADVICE}") from error
        if not isinstance(content, dict) or not {"format", "words"} <= content.keys():
            raise UserError(f"{path} holds no word depths: give a file that `anydepth word-depths` has written")
        if isinstance(content["format"], int) and content["format"] > FORMAT:
            raise UserError(f"{path} was written by a newer anydepth: upgrade anydepth, or {ADVICE}")
        try:
            return cls.from_json(content)
        except ValueError as error:
            raise UserError(f"{path} is damaged ({' '.join(str(error).split())}): {ADVICE}") from error


class _TableRecord(BaseModel):
    """What the file holds."""

    model_config = ConfigDict(extra="forbid")

    format: int = Field(ge=1)
    kind: TableKind
    layers: int = Field(ge=1, strict=True)
    lambdas: tuple[Finite, ...]
    lambda_: Finite | None = Field(alias="lambda")
    facts: dict[str, Any]
    words: dict[str, tuple[Finite, ...]]
    texts: dict[str, tuple[Annotated[int, Field(ge=1)], ...]]
    rare: tuple[Finite, ...] = ()


def mean_values(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Of several words, for each penalty; nothing of none."""
    return tuple(np.mean(rows, axis=0).tolist()) if rows else ()


def _check(table: WordDepths) -> None:
    if table.kind not in ("mi", "reconstruction"):
        raise ValueError(f"there is no kind {table.kind!r} of word depths")
    if table.layers < 1:
        raise ValueError(f"{table.layers} layers are too few")
    figures = max(len(table.lambdas), 1)
    wrong = next((word for word, values in table.values.items() if len(values) != figures), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} has {len(table.values[wrong])} values, not {figures}")
    if table.rare and len(table.rare) != figures:
        raise ValueError(f"rare has {len(table.rare)} values, not {figures}")
    if not np.isfinite(_array(table)).all():
        raise ValueError("a word has a value that is no finite number")
    if not all(map(math.isfinite, table.lambdas)):
        raise ValueError("a lambda is no finite number")
    if any(not low < high for low, high in zip(table.lambdas, table.lambdas[1:], strict=False)):
        raise ValueError("the lambdas do not ascend")
    if (table.lambda_ is None) != (not table.lambdas):
        raise ValueError("lambda and lambdas do not fit")


def _array(table: WordDepths) -> Floats:
    """[word, lambda]."""
    figures = max(len(table.lambdas), 1)
    return np.array(list(table.values.values()), dtype=np.float64).reshape(len(table.values), figures)


def _interpolated(values: Floats, lambdas: Sequence[float], penalty: float) -> Floats:
    """The values at a penalty that need not be in the table."""
    place = float(np.interp(penalty, lambdas, np.arange(len(lambdas))))
    below, share = int(place), place - int(place)
    above = min(below + 1, len(lambdas) - 1)
    mixed: Floats = (1 - share) * values[:, below] + share * values[:, above]
    return mixed


def _pieces(content: dict[str, Any]) -> Iterator[str]:
    """JSON with a line for each word, which can be looked through and compared."""
    for number, (key, value) in enumerate(content.items()):
        yield f"{',' if number else '{'}\n {json.dumps(key)}: "
        if key in ("words", "texts") and value:
            rows = (f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(row)}" for name, row in value.items())
            yield "{\n" + ",\n".join(rows) + "\n }"
        else:
            yield json.dumps(value, ensure_ascii=False)
    yield "\n}\n"


@dataclass(frozen=True)
class TokenDepths:
    """Subwords have the depth of their word. Padding has no depth.

    `special` is for what is no word, such as the end of a text: as deep as the deepest word of the text, as the mean of
    its words' subwords, or one layer. `unseen` is for words that are not in the table: as deep as the deepest; as the
    mean of the words that the table's text had once (`frequency`); or as the mean of the known words with the same
    subwords, and those by frequency that have none (`subword`).
    """

    table: WordDepths
    tokenizer: Tokenizer
    special: Special = "deepest"
    scale: float = 1.0
    lambda_: float | None = None
    unseen: Unseen = "deepest"
    _lookups: Lookups = field(default_factory=Lookups, repr=False, compare=False)

    def changed(self, scale: float | None = None, lambda_: float | None = None) -> "TokenDepths":
        """With another scale or lambda, where one is given."""
        changed = replace(
            self,
            scale=self.scale if scale is None else scale,
            lambda_=self.lambda_ if lambda_ is None else lambda_,
        )
        changed.table.row(changed.scale, changed.lambda_)  # refuses what is not possible
        return changed

    def words(self, ids: Sequence[int]) -> tuple[list[str], list[int], list[int]]:
        """The words of a text as the encoder reads it, the depth of each, and for each token the number of its word."""
        surfaces = self.tokenizer.surfaces(ids)
        words, number_of = words_of_pieces(surfaces)
        given = self.table.given_depths(words, self.scale)
        if given is not None:
            return words, given, number_of
        row, specials = self.table.row(self.scale, self.lambda_), self.tokenizer.specials
        tokens: dict[int, list[int]] = {}
        for token, number, surface in zip(ids, number_of, surfaces, strict=True):
            if token not in specials and surface.strip():
                tokens.setdefault(number, []).append(token)
        values = [
            row[word] if word in row else self._unseen_value(tokens.get(number, []))
            for number, word in enumerate(words)
        ]
        return words, self.table.rounded(values, self.scale), number_of

    def of(self, ids: Sequence[int]) -> list[int]:
        """How many layers each token of a text runs, given as the encoder reads it."""
        found: list[int] = self._look_up(np.array([ids], np.int64))[0].tolist()
        return found

    def of_many(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """The same of several texts at once, which takes less time."""
        if not sources:
            return []
        ids_bs = np.full((len(sources), max(map(len, sources))), Tokenizer.PAD, np.int64)
        for row_s, source in zip(ids_bs, sources, strict=True):
            row_s[: len(source)] = source
        found: list[list[int]] = self._look_up(ids_bs).tolist()
        return [row[: len(source)] for row, source in zip(found, sources, strict=True)]

    def tensor(self, source_bs: "Tensor") -> "Tensor":
        """[b, s], 0 at padding, which is at the end of each row."""
        import torch

        return torch.from_numpy(self._look_up(source_bs.cpu().numpy()))

    def _look_up(self, ids_bs: Ids) -> Depths:
        index = self._lookups.index(self.tokenizer)
        values_bs = np.full(ids_bs.shape, np.nan)
        read_b = np.zeros(len(ids_bs), bool) if self.table.texts else index.can_read(ids_bs)
        if read_b.any():
            values_bs[read_b] = self._lookups.values(self._key, self._value, index).at(ids_bs[read_b])
        depths_bs = np.zeros(ids_bs.shape, np.int64)
        known_bs = ~np.isnan(values_bs)
        depths_bs[known_bs] = self.table.rounded(values_bs[known_bs], self.scale)
        for row in np.flatnonzero(~read_b):
            depths_bs[row], known_bs[row] = self._one_by_one(ids_bs[row].tolist())
        return self._with_specials(depths_bs, known_bs, ids_bs != Tokenizer.PAD)

    def _with_specials(self, depths_bs: Depths, known_bs: Bools, text_bs: Bools) -> Depths:
        """What is no word follows the rule; a text without words runs one layer."""
        counts_b = np.maximum(known_bs.sum(1), 1)
        special_b = np.ones(len(depths_bs), np.int64)
        if self.special == "deepest":
            special_b = np.maximum(depths_bs.max(1, initial=1), 1)
        elif self.special == "mean":
            special_b = np.maximum(np.ceil(depths_bs.sum(1) / counts_b - 0.5), 1).astype(np.int64)
        filled: Depths = np.where(text_bs & ~known_bs, special_b[:, None], depths_bs)
        return filled

    def _one_by_one(self, ids: list[int]) -> tuple[list[int], list[bool]]:
        """The same for one text without arrays, where its subwords must be spelt together: the depth of each token, 0
        where it is no word, and whether it is one."""
        length = sum(token != Tokenizer.PAD for token in ids)
        _, depths, number_of = self.words(ids[:length])
        specials = self.tokenizer.specials
        known = [
            token not in specials and number >= 0 for token, number in zip(ids[:length], number_of, strict=True)
        ] + [False] * (len(ids) - length)
        numbers = number_of + [-1] * (len(ids) - length)
        return [depths[n] if is_word else 0 for n, is_word in zip(numbers, known, strict=True)], known

    @property
    def _key(self) -> tuple[float | None, Unseen]:
        return self.lambda_, self.unseen

    def _value(self, word: str, tokens: Sequence[int]) -> float:
        """Of a word that is written with these subwords."""
        value = self.table.row(self.scale, self.lambda_).get(word)
        return self._unseen_value(tokens) if value is None else value

    def _unseen_value(self, tokens: Sequence[int]) -> float:
        if self.unseen == "subword":
            row = self.table.row(self.scale, self.lambda_)
            means = self._lookups.subword_means(self.lambda_, self.tokenizer, row)
            known = [means[token] for token in tokens if token in means]
            if known:
                return sum(known) / len(known)
        return self.table.unseen_value(self.unseen, self.lambda_)

    def on(self, batch: "Batch") -> "Batch":
        """The batch with the depth of each token of its source."""
        return replace(batch, depths=self.tensor(batch.source))

    def to_bytes(self) -> bytes:
        """All that decides the depths, except the tokenizer."""
        rule: dict[str, Any] = {"special": self.special, "scale": self.scale, "lambda": self.lambda_}
        if self.unseen != "deepest":
            rule["unseen"] = self.unseen
        return json.dumps([self.table.to_json(), rule], sort_keys=True).encode()

    def check_layers(self, layers: int) -> None:
        if self.table.layers != layers:
            raise UserError(
                f"the word depths are for {self.table.layers} layers and the encoder has {layers}: make them for that "
                "many with `anydepth word-depths`"
            )


class DepthStream:
    """The batches of another stream with the depth of each token: by one of `choices`, sampled for each batch."""

    def __init__(self, stream: "Batches", choices: Sequence[TokenDepths], seed: int) -> None:
        self._stream, self._choices, self._seed, self.together = stream, choices, seed, stream.together

    def batches_in(self, epoch: int) -> int:
        return self._stream.batches_in(epoch)

    def at(self, epoch: int, index: int, share: "BatchShare | None" = None) -> "Batch":
        from anydepth.data.batching import WHOLE

        sampled = int(np.random.default_rng([self._seed, epoch, index]).integers(len(self._choices)))
        return self._choices[sampled].on(self._stream.at(epoch, index, WHOLE if share is None else share))

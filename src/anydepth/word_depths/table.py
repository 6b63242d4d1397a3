"""The table of how deep each word goes, made before any text is classified; and from it the depth of each token.

word-depths.json   format, kind, layers, lambdas, lambda, facts; words: the depth of each on a continuous scale, for
                   each lambda; texts: the depths of the words of texts that were measured one by one
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

from anydepth.data.cleaning import digest
from anydepth.data.tokenizer import Tokenizer
from anydepth.data.words import words_of_pieces
from anydepth.errors import UserError
from anydepth.files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

    from anydepth.data import Batch
    from anydepth.data.batching import Batches, Share

FORMAT = 1
DIGITS = 4  # of the values, in memory as in the file, so that a table means the same before and after it is saved
KEPT_TABLES = 8
ADVICE = "make it again with `anydepth word-depths`"

TableKind = Literal["mi", "reconstruction"]
Floats = NDArray[np.float64]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Special = Literal["deepest", "shallowest"]


def text_key(words: Sequence[str]) -> str:
    """A fingerprint of a text as it was read, the same in every process. No word has a space in it."""
    return f"{digest(' '.join(words)):016x}"


@dataclass(frozen=True)
class WordDepths:
    """How deep each word goes, of `layers` layers.

    `values` has the depth of a word on a continuous scale: one number for each penalty in `lambdas`, which ascend, or
    a single one without penalties. `lambda_` is the penalty that counts unless another is asked for. `texts` has
    depths for each occurrence of a word, by `text_key`. `facts` say how the table was made.
    """

    kind: str
    layers: int
    values: dict[str, tuple[float, ...]]
    lambdas: tuple[float, ...] = ()
    lambda_: float | None = None
    texts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    _tables: dict[tuple[float, float | None], dict[str, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        _check(self)
        rounded = np.round(_array(self), DIGITS).tolist()
        object.__setattr__(self, "values", dict(zip(self.values, map(tuple, rounded), strict=True)))

    def depths(self, words: Sequence[str], scale: float = 1.0, lambda_: float | None = None) -> list[int]:
        """The depth of each word of a text: `scale` times its value to the nearest whole number, halves down.

        It is at least 1 and at most `layers`. A word that is not in the table is as deep as the deepest. Between two
        penalties of the table a value is interpolated.
        """
        penalty = self._penalty(scale, lambda_)
        table = self._tables.get((scale, penalty))
        if table is None:
            table = self._make_table(scale, penalty)
        unseen = table[""]
        found = [table.get(word, unseen) for word in words]
        given = self.texts.get(text_key(words)) if self.texts else None
        if given is not None and len(given) == len(words):
            return _whole(np.array(given, dtype=np.float64), scale, self.layers)
        return found

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

    def _make_table(self, scale: float, penalty: float | None) -> dict[str, int]:
        """A whole number for each word, and under the empty word that of unseen ones."""
        values = _array(self)
        row = values[:, 0] if penalty is None else _interpolated(values, self.lambdas, penalty)
        table = dict(zip(self.values, _whole(row, scale, self.layers), strict=True))
        deepest = max(float(self.layers), float(row.max(initial=0.0)))
        table[""] = _whole(np.array([deepest]), scale, self.layers)[0]
        if len(self._tables) >= KEPT_TABLES:  # a sweep over scales must not fill the memory
            del self._tables[next(iter(self._tables))]
        self._tables[scale, penalty] = table
        return table

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": self.kind,
            "layers": self.layers,
            "lambdas": list(self.lambdas),
            "lambda": self.lambda_,
            "facts": self.facts,
            "words": {word: list(values) for word, values in self.values.items()},
            "texts": {key: list(depths) for key, depths in self.texts.items()},
        }

    @classmethod
    def from_json(cls, content: Any) -> "WordDepths":
        """Raises a ValueError that says in a few words what is wrong."""
        try:
            read = _Record.model_validate(content)
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
        return cls(read.kind, read.layers, read.words, read.lambdas, read.lambda_, read.texts, read.facts)

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


class _Record(BaseModel):
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


def _check(table: WordDepths) -> None:
    if table.kind not in ("mi", "reconstruction"):
        raise ValueError(f"there is no kind {table.kind!r} of word depths")
    if table.layers < 1:
        raise ValueError(f"{table.layers} layers are too few")
    figures = max(len(table.lambdas), 1)
    wrong = next((word for word, values in table.values.items() if len(values) != figures), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} has {len(table.values[wrong])} values, not {figures}")
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


def _whole(values: Floats, scale: float, layers: int) -> list[int]:
    whole: list[int] = np.clip(np.ceil(scale * values - 0.5), 1, layers).astype(np.int64).tolist()
    return whole


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
    """Subwords have the depth of their word. What is no word, such as the end of a text, is as deep as the deepest
    word of the text, or runs one layer. Padding has no depth.
    """

    table: WordDepths
    tokenizer: Tokenizer
    special: Special = "deepest"
    scale: float = 1.0
    lambda_: float | None = None

    def changed(self, scale: float | None = None, lambda_: float | None = None) -> "TokenDepths":
        """With another scale or lambda, where one is given."""
        changed = replace(
            self,
            scale=self.scale if scale is None else scale,
            lambda_=self.lambda_ if lambda_ is None else lambda_,
        )
        changed.table.depths([], changed.scale, changed.lambda_)  # refuses what is not possible
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

    def tensor(self, source_bs: "Tensor") -> "Tensor":
        """[b, s], 0 at padding, which is at the end of each row."""
        import torch

        depths_bs = torch.zeros_like(source_bs, device="cpu")
        lengths = (source_bs != Tokenizer.PAD).sum(1).tolist()
        for row, ids, length in zip(depths_bs, source_bs.tolist(), lengths, strict=True):
            row[:length] = torch.tensor(self.of(ids[:length]))
        return depths_bs

    def on(self, batch: "Batch") -> "Batch":
        """The batch with the depth of each token of its source."""
        return replace(batch, depths=self.tensor(batch.source))

    def to_bytes(self) -> bytes:
        """All that decides the depths, except the tokenizer."""
        rule = {"special": self.special, "scale": self.scale, "lambda": self.lambda_}
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

    def at(self, epoch: int, index: int, share: "Share | None" = None) -> "Batch":
        from anydepth.data.batching import WHOLE

        sampled = int(np.random.default_rng([self._seed, epoch, index]).integers(len(self._choices)))
        return self._choices[sampled].on(self._stream.at(epoch, index, WHOLE if share is None else share))

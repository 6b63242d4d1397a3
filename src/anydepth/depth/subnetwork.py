"""A `SubNetwork` says which layers run. It is an argument, never a property of the model."""

import re
from dataclasses import dataclass
from itertools import pairwise

from anydepth.errors import UserError

Weights = tuple[float, ...] | None
SOFT, WORDS = "-soft", "-words"
NAME = re.compile(rf"(?:[^\s:]+:)?(\d{{1,4}})-(\d{{1,4}})(?:{SOFT}|{WORDS})?")


@dataclass(frozen=True)
class SubNetwork:
    """The layers to run, by index from 0 and in ascending order, and optionally a weight for each of them.

    A layer of weight w adds w times its branches to the residual stream: 1 is the plain layer, 0 leaves it out.
    An encoder-only model has an empty decoder. With `by_word` each word has its own depth, up to the encoder's layers.
    """

    encoder: tuple[int, ...]
    decoder: tuple[int, ...]
    encoder_weights: Weights = None
    decoder_weights: Weights = None
    by_word: bool = False

    def __post_init__(self) -> None:
        for side, layers, weights in (
            ("encoder", self.encoder, self.encoder_weights),
            ("decoder", self.decoder, self.decoder_weights),
        ):
            if not layers and side == "encoder":
                raise UserError(f"depth {self.name}: the encoder needs at least one layer")
            if any(layer < 0 for layer in layers) or any(a >= b for a, b in pairwise(layers)):
                raise UserError(f"{side} layers {layers} must be ascending indices from 0")
            if weights is not None and len(weights) != len(layers):
                raise UserError(f"{side}: {len(layers)} layers but {len(weights)} weights")

    @classmethod
    def prefix(cls, n: int, m: int) -> "SubNetwork":
        """The first n encoder and the first m decoder layers: an exit of a tied-multi model."""
        return cls(tuple(range(n)), tuple(range(m)))

    @classmethod
    def words(cls, n: int, m: int) -> "SubNetwork":
        """All layers of both stacks, with an encoder depth per word."""
        return cls(tuple(range(n)), tuple(range(m)), by_word=True)

    @property
    def is_weighted(self) -> bool:
        return self.encoder_weights is not None or self.decoder_weights is not None

    @property
    def name(self) -> str:
        kind = SOFT if self.is_weighted else WORDS if self.by_word else ""
        return f"{len(self.encoder)}-{len(self.decoder)}{kind}"


def parse_depth(text: str) -> tuple[int, int]:
    """The layers of a depth as users write it, encoder-decoder: "6-2", "6-2-words" and "en-fr:6-2" all give (6, 2)."""
    match = NAME.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{text!r} is not a depth: write encoder-decoder, such as 6-2, or 6-0 for a classifier")
    n, m = int(match[1]), int(match[2])
    if n == 0:
        raise UserError(f"depth {n}-{m}: the encoder needs at least one layer")
    return n, m

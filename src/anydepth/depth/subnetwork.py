"""A `SubNetwork` says which layers run. It is an argument, never a property of the model."""

import re
from dataclasses import dataclass
from itertools import pairwise

from anydepth.errors import UserError

Weights = tuple[float, ...] | None


@dataclass(frozen=True)
class SubNetwork:
    """The layers to run, by index from 0 and in ascending order, and optionally a weight for each of them.

    A layer of weight w adds w times its branches to the residual stream: 1 is the plain layer, 0 leaves it out.
    """

    encoder: tuple[int, ...]
    decoder: tuple[int, ...]
    encoder_weights: Weights = None
    decoder_weights: Weights = None

    def __post_init__(self) -> None:
        for side, layers, weights in (
            ("encoder", self.encoder, self.encoder_weights),
            ("decoder", self.decoder, self.decoder_weights),
        ):
            if not layers:
                raise UserError(f"depth {self.name}: the {side} needs at least one layer")
            if layers[0] < 0 or any(a >= b for a, b in pairwise(layers)):
                raise UserError(f"{side} layers {layers} must be ascending indices from 0")
            if weights is not None and len(weights) != len(layers):
                raise UserError(f"{side}: {len(layers)} layers but {len(weights)} weights")

    @classmethod
    def prefix(cls, n: int, m: int) -> "SubNetwork":
        """The first n encoder and the first m decoder layers: an exit of a tied-multi model."""
        return cls(tuple(range(n)), tuple(range(m)))

    @property
    def name(self) -> str:
        return f"{len(self.encoder)}-{len(self.decoder)}"


def parse_depth(text: str) -> tuple[int, int]:
    """Read a depth as users write it, encoder-decoder: "6-2" gives (6, 2)."""
    match = re.fullmatch(r"\s*(\d{1,4})-(\d{1,4})\s*", text)
    if match is None:
        raise UserError(f"{text!r} is not a depth: write encoder-decoder, for instance 6-2")
    n, m = int(match[1]), int(match[2])
    if n == 0 or m == 0:
        side = "encoder" if n == 0 else "decoder"
        raise UserError(f"depth {n}-{m}: the {side} needs at least one layer")
    return n, m

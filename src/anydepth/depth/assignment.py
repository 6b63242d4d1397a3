"""Which layers make up each depth of a stack: the five strategies of Wang, Xiao and Zhu 2021, and two measures of them.

A stack of D layers serves the depths that divide D (Eq. 4). Layers are indices from 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

from anydepth.depth.menu import DepthMenu
from anydepth.depth.subnetwork import SubNetwork
from anydepth.errors import UserError

Layers = tuple[int, ...]


def divisors(layers: int) -> list[int]:
    return [d for d in range(1, layers + 1) if layers % d == 0]


def prime_warning(layers: int) -> str | None:
    """A warning for a prime number of layers, which has hardly any depths; 2 is fine."""
    if len(divisors(layers)) != 2 or layers == 2:
        return None
    near = range(layers - 2, layers + 3)
    better = max(near, key=lambda number: (len(divisors(number)), -abs(number - layers), -number))
    return (
        f"{layers} is prime, so its only depths are 1 and {layers}: use a number with more divisors, such as {better}"
    )


def _head(total: int, depths: list[int]) -> dict[int, Layers]:
    """The first d layers."""
    return {d: tuple(range(d)) for d in depths}


def _seq(total: int, depths: list[int]) -> dict[int, Layers]:
    """From shallow to deep, each depth continues where the one before stopped; after the last layer comes the first."""
    found, start = {}, 0
    for d in depths:
        found[d] = tuple((start + i) % total for i in range(d))
        start += d
    return found


def _left(total: int, depths: list[int]) -> dict[int, Layers]:
    """The first layer of each chunk of D/d."""
    return {d: spread(total, d) for d in depths}


def _middle_left(total: int, depths: list[int]) -> dict[int, Layers]:
    """The middle layer of each chunk, the left one of two."""
    return {d: tuple(start + _middle(total // d) for start in range(0, total, total // d)) for d in depths}


def _optimal(total: int, depths: list[int]) -> dict[int, Layers]:
    """From deep to shallow, in each chunk the layer nearest its middle that no depth has used yet.

    A depth waits if some chunk has no such layer; when all remaining depths wait, every layer is free again.
    """
    found: dict[int, Layers] = {}
    waiting = depths[::-1]
    free = set(range(total))
    while waiting:
        chosen = next(((d, layers) for d in waiting if (layers := _nearest_free(total, d, free))), None)
        if chosen is None:
            free = set(range(total))
            continue
        depth, layers = chosen
        found[depth] = layers
        free -= set(layers)
        waiting.remove(depth)
    return {d: found[d] for d in depths}


def _nearest_free(total: int, depth: int, free: set[int]) -> Layers | None:
    """In each chunk the free layer nearest its middle, of two the right one; None if a chunk has none."""
    size = total // depth
    layers = []
    for start in range(0, total, size):
        there = [layer for layer in range(start, start + size) if layer in free]
        if not there:
            return None
        middle = start + _middle(size)
        layers.append(min(there, key=lambda layer: (abs(layer - middle), -layer)))
    return tuple(layers)


def _middle(size: int) -> int:
    return (size + 1) // 2 - 1  # ceil(c / 2) - 1, from 0


STRATEGIES: dict[str, Callable[[int, list[int]], dict[int, Layers]]] = {
    "head": _head,
    "seq": _seq,
    "left": _left,
    "middle-left": _middle_left,
    "optimal": _optimal,
}


def spread(total: int, depth: int) -> Layers:
    """`depth` layers spread evenly from the first on, for any depth: how a LayerDrop model is pruned."""
    return tuple(i * total // depth for i in range(depth))


@dataclass(frozen=True)
class Assignment:
    """The layers of every depth of one stack. `chosen` has them in the order a strategy picked them."""

    strategy: str
    total: int
    chosen: dict[int, Layers]

    @property
    def depths(self) -> list[int]:
        return list(self.chosen)

    def layers(self, depth: int) -> Layers:
        """In the order in which they run."""
        return tuple(sorted(self.chosen[depth]))

    @property
    def tasks_per_layer(self) -> list[int]:
        return [sum(layer in layers for layers in self.chosen.values()) for layer in range(self.total)]

    @property
    def task_balance(self) -> float:
        """TB (Eq. 5, with divisor D - 1 as in the paper's Table 3): how unevenly depths use the layers; 0 is even."""
        return stdev(self.tasks_per_layer) if self.total > 1 else 0.0

    @property
    def average_layer_distance(self) -> float:
        """ALD (Eq. 6): the mean step from one layer of a depth to its next. From the last layer to the first is 1."""
        steps = [(after - before) % self.total for layers in self.chosen.values() for before, after in pairwise(layers)]
        return fmean(steps) if steps else 0.0


def assign(strategy: str, total: int, depths: Sequence[int] = ()) -> Assignment:
    """The layers of these depths, or of all that divide `total`."""
    if strategy not in STRATEGIES:
        raise UserError(f"there is no strategy {strategy!r}: choose from {', '.join(STRATEGIES)}")
    if total < 1:
        raise UserError(f"a stack of {total} layers has no depths: give 1 or more")
    able = divisors(total)
    if odd := [depth for depth in depths if depth not in able]:
        raise UserError(f"{odd[0]} does not divide {total} layers: choose from {', '.join(map(str, able))}")
    return Assignment(strategy, total, STRATEGIES[strategy](total, sorted(depths) or able))


def make_menu(encoder: dict[int, Layers], decoder: dict[int, Layers]) -> DepthMenu:
    """Every encoder depth with every decoder depth, shallow to deep."""
    pairs = ((encoder[n], decoder[m]) for n in sorted(encoder) for m in sorted(decoder))
    return DepthMenu.of(SubNetwork(tuple(sorted(n)), tuple(sorted(m))) for n, m in pairs)

"""The one loop that runs layers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anydepth.config.model import Residual
from anydepth.model.dense import Dense

Gates = Sequence[float | Tensor] | None  # what each layer's branches count; tensors where that is being learnt


class States(list[Tensor]):
    """The state after each layer that ran, before the final norm; with `attention` of each, where it was asked for."""

    def __init__(self, states: Iterable[Tensor], attention: Iterable[Tensor] = ()) -> None:
        super().__init__(states)
        self.attention = list(attention)

    def first(self, layers: int) -> "States":
        return States(self[:layers], self.attention[:layers])


class Stack(nn.Module):
    """Layers and the final norm that all their exits share.

    `pattern` says whose weights each layer has: (0, 1, 2) gives each its own, (0, 0, 0) is one layer applied three
    times (recurrent stacking). A layer that occurs at several places is one module, its parameters are there once.
    What the layers of a `residual` other than plain have besides, they have at each place: a learnt weight that starts
    at 0, the same for all branches (ReZero, Bachlechner et al. 2020), or dense connections.
    """

    def __init__(
        self,
        make_layer: Callable[[], nn.Module],
        pattern: tuple[int, ...],
        width: int,
        residual: Residual = "plain",
    ) -> None:
        super().__init__()
        own = [make_layer() for _ in range(max(pattern, default=-1) + 1)]
        self.layers = nn.ModuleList(own[index] for index in pattern)
        self.norm = nn.LayerNorm(width)
        self.scales = nn.Parameter(torch.zeros(len(pattern))) if residual == "rezero" else None
        self.dense = Dense(len(pattern), width) if residual == "dlcl" else None

    @property
    def distinct(self) -> list[nn.Module]:
        """The layers with weights of their own."""
        return list(dict.fromkeys(self.layers))

    def parameters_of(self, chosen: Collection[int]) -> Iterator[nn.Parameter]:
        """The parameters that these layers and their exits use, each once; of ReZero's weights all, they are one."""
        modules = dict.fromkeys([self.norm, *(self.layers[index] for index in chosen)])
        for module in modules:
            yield from module.parameters()
        if self.scales is not None:
            yield self.scales
        if self.dense is not None:
            yield from self.dense.parameters_of(chosen)

    def forward(
        self,
        x: Tensor,
        chosen: tuple[int, ...],
        weights: Gates = None,
        caches: Sequence[Any] | None = None,
        watch: bool = False,
        **inputs: Any,
    ) -> States:
        """Run the chosen layers on x; with `watch`, note how they attend.

        Each *application* of a layer has its own cache, so that a layer may be applied more than once.
        """
        states: list[Tensor] = []
        attention: list[Tensor] = []
        if watch:
            inputs["seen"] = attention
        if self.scales is not None:
            weights = _scaled(self.scales, chosen, weights)
        dense, past = self.dense, dict[int, Tensor]()
        if dense is not None:
            x = dense(past, 0, x)
        for place, index in enumerate(chosen):
            if caches is not None:
                inputs["cache"] = caches[place]
            x = self.layers[index](x, 1.0 if weights is None else weights[place], **inputs)
            if dense is not None:
                x = dense(past, index + 1, x)  # what the next layer reads, and an exit gives
            states.append(x)
        return States(states, attention)

    def run_each(self, x: Tensor, choices: Sequence[tuple[int, ...]], **inputs: Any) -> list[States]:
        """The states of each of several choices of layers. What two of them begin with alike runs once.

        Not so with dense connections, where a layer reads more than the state before it.
        """
        if self.dense is not None:
            return [self(x, chosen, **inputs) for chosen in choices]
        known: dict[tuple[int, ...], Tensor] = {(): x}
        seen: dict[tuple[int, ...], Tensor] = {}
        for chosen in choices:
            begun = max((start for start in known if chosen[: len(start)] == start), key=len)
            states = self(known[begun], chosen[len(begun) :], **inputs)
            new = _beginnings(chosen)[len(begun) :]
            known.update(zip(new, states, strict=True))
            seen.update(zip(new, states.attention, strict=False))  # none, unless they were watched
        found = [_beginnings(chosen) for chosen in choices]
        return [States([known[b] for b in each], [seen[b] for b in each if seen]) for each in found]


def _scaled(scales: Tensor, chosen: tuple[int, ...], weights: Gates) -> Gates:
    each = scales.unbind()
    own = [each[index] for index in chosen]
    return own if weights is None else [scale * weight for scale, weight in zip(own, weights, strict=True)]


def _beginnings(chosen: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [chosen[: place + 1] for place in range(len(chosen))]

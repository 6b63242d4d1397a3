"""The one loop that runs layers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from anydepth.config import ModelConfig
from anydepth.model.dense import Dense
from anydepth.model.packing import Packing

Gates = Sequence[float | Tensor] | None  # what each layer's branches count; tensors where that is being learnt
# How many of the layers each token runs, [b, s]; or what says so once the first of them has run, given its output.
TokenDepths = Tensor | Callable[[Tensor], Tensor] | None


class States(list[Tensor]):
    """The state after each layer that ran, before the final norm; with `attention` of each, where it was asked for,
    and the `depths` of tokens, [b, s] and 0 at padding, where each has its own."""

    def __init__(
        self,
        states: Iterable[Tensor],
        attention: Iterable[Tensor] = (),
        depths: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(states)
        self.attention = list(attention)
        self.depths = depths

    def first(self, layers: int) -> "States":
        return States(self[:layers], self.attention[:layers])


class Seen(list[Tensor]):
    """How layers attended. A type of its own: FSDP hands layers copies of plain lists."""


class Stack(nn.Module):
    """Layers and the final norm that all their exits share; there is none where layers end in a norm.

    `pattern` says whose weights each layer has: (0, 1, 2) gives each its own, (0, 0, 0) is one layer applied three
    times (recurrent stacking). A layer that occurs at several places is one module, its parameters are there once.
    What the layers of a `residual` other than plain have besides, they have at each place: a learnt weight that starts
    at 0, the same for all branches (ReZero, Bachlechner et al. 2020), or dense connections.
    """

    def __init__(
        self,
        make_layer: Callable[[ModelConfig], nn.Module],
        pattern: tuple[int, ...],
        config: ModelConfig,
    ) -> None:
        super().__init__()
        own = [make_layer(config) for _ in range(max(pattern, default=-1) + 1)]
        self.layers = nn.ModuleList(own[index] for index in pattern)
        after = config.norm == "post"
        self.norm = nn.Identity() if after else nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.scales = nn.Parameter(torch.zeros(len(pattern))) if config.residual == "rezero" else None
        self.dense = Dense(len(pattern), config.width) if config.residual == "dlcl" else None
        self.recompute = False  # what is inside a layer, for its gradient, instead of keeping it

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
        depths: TokenDepths = None,
        padding_bs: Tensor | None = None,
        **inputs: Any,
    ) -> States:
        """Run the chosen layers on x; with `watch`, note how they attend.

        Each *application* of a layer has its own cache, so that a layer may be applied more than once. A token whose
        depth is reached keeps its state; once that is so of all, the loop ends.
        """
        states: list[Tensor] = []
        attention = Seen()
        if watch:
            inputs["seen"] = attention
        if self.scales is not None:
            weights = _scaled(self.scales, chosen, weights)
        dense, past = self.dense, dict[int, Tensor]()
        if dense is not None:
            x = dense(past, 0, x)
        packing = Packing(depths, padding_bs, x.device) if isinstance(depths, Tensor) else None
        for place, index in enumerate(chosen):
            if place == 1 and callable(depths) and not isinstance(depths, Tensor):
                packing = Packing(depths(x), padding_bs, x.device)
            if packing is not None:
                if place >= packing.layers:
                    break
                inputs["active"] = packing.at(place)
            if caches is not None:
                inputs["cache"] = caches[place]
            x = self._run(self.layers[index], x, 1.0 if weights is None else weights[place], inputs)
            if dense is not None:
                x = dense(past, index + 1, x)  # what the next layer reads, and an exit gives
            states.append(x)
        return States(states, attention, None if packing is None else packing.depths)

    def _run(self, layer: nn.Module, x: Tensor, weight: float | Tensor, inputs: dict[str, Any]) -> Tensor:
        if self.recompute and torch.is_grad_enabled() and "seen" not in inputs:
            again: Tensor = checkpoint(layer, x, weight, use_reentrant=False, **inputs)
            return again
        output: Tensor = layer(x, weight, **inputs)
        return output

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

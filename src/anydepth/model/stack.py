"""The one loop that runs layers, and the dense connections that a stack may have.

Shapes: b batch, s length.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from anydepth.config import ModelConfig
from anydepth.model.packing import Packing

Gates = Sequence[float | Tensor] | None  # the weight of each layer's branches; tensors while they are being learned


class TextExits(ABC):
    """Decides after each layer which texts of a batch leave: all their tokens then keep their states."""

    @abstractmethod
    def leave(self, state_bsd: Tensor, layers: int) -> NDArray[np.bool_]:
        """For each text, given the state after so many layers. Those that have left before are asked again."""


class TokenExits(ABC):
    """Decides after each decoder layer which rows go on, each of one new position: the others keep their states."""

    @abstractmethod
    def going(self, state_rtd: Tensor, layers: int) -> Tensor | None:
        """The rows that run more, given the states after so many layers; None: all."""


# How many layers each token runs, [b, s]; a function that computes it from the first layer's output; or exits of texts.
EncoderDepths = Tensor | Callable[[Tensor], Tensor] | TextExits | None


class States(list[Tensor]):
    """The state after each layer that ran, before the final norm.

    `attention` has the probabilities of each layer, if they were asked for. `depths` has the depth of each token,
    [b, s], 0 at padding, if tokens have depths of their own.
    """

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


class AttentionMaps(list[Tensor]):
    """Where layers put their attention probabilities. A type of its own, because FSDP copies plain lists."""


class Dense(nn.Module):
    """Dense connections: a dynamic linear combination of layers (DLCL, Wang et al. 2019).

    A layer's input, and an exit, is a weighted sum of all outputs so far, each with its own norm: with y_0 the
    embeddings and y_k the output of layer k, the sum over j <= k of W_kj LN_j(y_j). Row k of W is one parameter and is
    initialised to the mean.
    """

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.rows = nn.ParameterList(torch.full((k + 1,), 1 / (k + 1)) for k in range(layers + 1))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers + 1))

    def forward(self, past: dict[int, Tensor], k: int, y: Tensor) -> Tensor:
        """The sum after layer k, over layers that ran: `past` has their normed outputs; that of y is added to it."""
        past[k] = self.norms[k](y)
        row = self.rows[k] if len(past) > k else self.rows[k][list(past)]
        with torch.autocast(y.device.type, enabled=False):  # the residual stream is never rounded
            total: Tensor = torch.tensordot(row, torch.stack(list(past.values())), dims=1)
        return total

    def used_parameters(self, chosen: Collection[int]) -> Iterator[nn.Parameter]:
        """The parameters that are used when these layers run, given by index from 0."""
        for k in (0, *(index + 1 for index in chosen)):
            yield self.rows[k]
            yield from self.norms[k].parameters()


class Stack(nn.Module):
    """Layers and the final norm that all exits share (none for post-norm layers).

    `pattern` says which weights each layer uses: (0, 1, 2) gives each its own, (0, 0, 0) applies one layer three times
    (recurrent stacking). A layer that occurs several times is one module, and its parameters exist once. With
    `residual` other than plain, each position also has a learned weight that starts at 0, the same for all branches
    (ReZero, Bachlechner et al. 2020), or dense connections.
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
        self.checkpointing = False  # activation checkpointing

    @property
    def distinct(self) -> list[nn.Module]:
        """Each layer once, however often it is applied."""
        return list(dict.fromkeys(self.layers))

    def used_parameters(self, chosen: Collection[int]) -> Iterator[nn.Parameter]:
        """The parameters that these layers and their exits use, each once. ReZero's weights are one parameter."""
        modules = dict.fromkeys([self.norm, *(self.layers[index] for index in chosen)])
        for module in modules:
            yield from module.parameters()
        if self.scales is not None:
            yield self.scales
        if self.dense is not None:
            yield from self.dense.used_parameters(chosen)

    def forward(
        self,
        x: Tensor,
        chosen: tuple[int, ...],
        weights: Gates = None,
        caches: Sequence[Any] | None = None,
        with_attention: bool = False,
        depths: EncoderDepths = None,
        padding_bs: Tensor | None = None,
        token_exits: TokenExits | None = None,
        **inputs: Any,
    ) -> States:
        """Run the chosen layers on x.

        Each *application* of a layer has its own cache, so a layer may be applied more than once. A token that has
        reached its depth keeps its state; the loop ends when all tokens have. In an encoder `depths` says when that is,
        in a decoder `token_exits`.
        """
        states: list[Tensor] = []
        attention = AttentionMaps()
        if with_attention:
            inputs["attention_maps"] = attention
        if self.scales is not None:
            weights = _scaled(self.scales, chosen, weights)
        dense, past = self.dense, dict[int, Tensor]()
        if dense is not None:
            x = dense(past, 0, x)
        exits = depths if isinstance(depths, TextExits) else None
        if exits is not None:
            depths = torch.full(x.shape[:2], len(chosen))
        packing = Packing(depths, padding_bs, x.device) if isinstance(depths, Tensor) else None
        going: Tensor | None = None
        for position, index in enumerate(chosen):
            if position == 1 and callable(depths) and not isinstance(depths, Tensor):
                packing = Packing(depths(x), padding_bs, x.device)
            if packing is not None:
                if position >= packing.layers:
                    break
                inputs["active"] = packing.at(position)
            if caches is not None:
                inputs["cache"] = caches[position]
            x = self._run(self.layers[index], x, 1.0 if weights is None else weights[position], inputs)
            if dense is not None:
                summed = dense(past, index + 1, x)
                x = summed if going is None else x.index_copy(0, going, summed[going])
            states.append(x)
            if token_exits is not None:
                going = token_exits.going(x, position + 1)
                if going is not None:
                    if not len(going):
                        break
                    inputs["rows"] = going
            if exits is not None and packing is not None:
                packing.leave(exits.leave(x, position + 1), position + 1)
        return States(states, attention, None if packing is None else packing.depths)

    def _run(self, layer: nn.Module, x: Tensor, weight: float | Tensor, inputs: dict[str, Any]) -> Tensor:
        if self.checkpointing and torch.is_grad_enabled() and "attention_maps" not in inputs:
            recomputed: Tensor = checkpoint(layer, x, weight, use_reentrant=False, **inputs)
            return recomputed
        output: Tensor = layer(x, weight, **inputs)
        return output

    def run_each(self, x: Tensor, choices: Sequence[tuple[int, ...]], **inputs: Any) -> list[States]:
        """The states of each of several choices of layers. A common prefix of two choices runs once.

        Except with dense connections, where a layer reads more than the state before it.
        """
        if self.dense is not None:
            return [self(x, chosen, **inputs) for chosen in choices]
        known: dict[tuple[int, ...], Tensor] = {(): x}
        attention: dict[tuple[int, ...], Tensor] = {}
        for chosen in choices:
            prefix = max((start for start in known if chosen[: len(start)] == start), key=len)
            states = self(known[prefix], chosen[len(prefix) :], **inputs)
            new = _prefixes(chosen)[len(prefix) :]
            known.update(zip(new, states, strict=True))
            attention.update(zip(new, states.attention, strict=False))  # empty unless asked for
        found = [_prefixes(chosen) for chosen in choices]
        return [States([known[p] for p in each], [attention[p] for p in each if attention]) for each in found]


def _scaled(scales: Tensor, chosen: tuple[int, ...], weights: Gates) -> Gates:
    each = scales.unbind()
    own = [each[index] for index in chosen]
    return own if weights is None else [scale * weight for scale, weight in zip(own, weights, strict=True)]


def _prefixes(chosen: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [chosen[: length + 1] for length in range(len(chosen))]

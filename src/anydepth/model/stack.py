"""The one loop that runs layers."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from anydepth.depth.subnetwork import Weights

Seen = dict[tuple[int, ...], Tensor]  # attention probabilities of the last of these layers after all before it


class Stack(nn.Module):
    """Layers and the final norm that all their exits share.

    `pattern` says whose weights each layer has: (0, 1, 2) gives each its own, (0, 0, 0) is one layer applied three
    times (recurrent stacking). A layer that occurs at several places is one module, its parameters are there once.
    """

    def __init__(self, make_layer: Callable[[], nn.Module], pattern: tuple[int, ...], width: int) -> None:
        super().__init__()
        own = [make_layer() for _ in range(max(pattern) + 1)]
        self.layers = nn.ModuleList(own[index] for index in pattern)
        self.norm = nn.LayerNorm(width)

    @property
    def distinct(self) -> list[nn.Module]:
        """The layers with weights of their own."""
        return list(dict.fromkeys(self.layers))

    def forward(
        self,
        x: Tensor,
        chosen: tuple[int, ...],
        weights: Weights = None,
        caches: Sequence[Any] | None = None,
        **inputs: Any,
    ) -> list[Tensor]:
        """Run the chosen layers on x and return the state after each, before the final norm.

        Each *application* of a layer has its own cache, so that a layer may be applied more than once.
        """
        states = []
        for place, index in enumerate(chosen):
            if caches is not None:
                inputs["cache"] = caches[place]
            x = self.layers[index](x, 1.0 if weights is None else weights[place], **inputs)
            states.append(x)
        return states

    def run_each(
        self, x: Tensor, choices: Sequence[tuple[int, ...]], seen: Seen | None = None, **inputs: Any
    ) -> list[list[Tensor]]:
        """The states of each of several choices of layers. What two of them begin with alike runs once."""
        known: dict[tuple[int, ...], Tensor] = {(): x}
        for chosen in choices:
            begun = max((start for start in known if chosen[: len(start)] == start), key=len)
            new = [chosen[: place + 1] for place in range(len(begun), len(chosen))]
            attention: list[Tensor] = []
            if seen is not None:
                inputs["seen"] = attention
            states = self(known[begun], chosen[len(begun) :], **inputs)
            known.update(zip(new, states, strict=True))
            if seen is not None:
                seen.update(zip(new, attention, strict=True))
        return [[known[chosen[: place + 1]] for place in range(len(chosen))] for chosen in choices]

"""Gradients layer by layer, and what to say when training diverges."""

import math
from dataclasses import dataclass, field

from torch import nn

from anydepth.errors import UserError
from anydepth.model.stack import Stack
from anydepth.train.optim import norm_of


def layer_norms(model: nn.Module) -> dict[str, float]:
    """Gradient norm of every layer before clipping: which part of a deep stack still learns."""
    stacks = [(name, module) for name, module in model.named_modules() if isinstance(module, Stack)]
    layers = {f"{name}.{place}": layer for name, stack in stacks for place, layer in _by_first_place(stack)}
    gradients = {name: [p.grad for p in layer.parameters() if p.grad is not None] for name, layer in layers.items()}
    return {name: float(norm_of(grads)) if grads else 0.0 for name, grads in gradients.items()}


def _by_first_place(stack: Stack) -> list[tuple[int, nn.Module]]:
    """Each layer once, numbered from 1 by the first of the places where it stands."""
    every = list(stack.layers)
    return [(every.index(layer) + 1, layer) for layer in stack.distinct]


@dataclass
class Gradients:
    """The norms of the layers as they were last looked at: the last ones that were finite tell where it began."""

    step: int = 0
    norms: dict[str, float] = field(default_factory=dict)

    def note(self, step: int, norms: dict[str, float]) -> None:
        if norms and all(math.isfinite(norm) for norm in norms.values()):
            self.step, self.norms = step, norms

    def largest(self, now: dict[str, float]) -> tuple[str, str] | None:
        """The layer whose gradient is to blame, and that gradient in words.

        Where some are finite and some are not, the one nearest to the loss that is not: from there on down all are
        broken. Where all are finite, and something else is not, the largest. Where none is, or there are none any more,
        the largest of when they last were finite.
        """
        broken = [name for name, norm in now.items() if not math.isfinite(norm)]
        if broken and len(broken) < len(now):
            return broken[-1], f"not finite, {len(broken)} of {len(now)} layers are so"
        if not broken and any(now.values()):
            name = max(now, key=lambda name: now[name])
            return name, f"{now[name]:.3g}"
        if not self.norms:
            return None
        name = max(self.norms, key=lambda name: self.norms[name])
        return name, f"{self.norms[name]:.3g} at step {self.step:,}, when it was last finite"


def divergence(when: str, blamed: tuple[str, str] | None, remedy: str) -> UserError:
    where = ""
    if blamed is not None:
        stack, number = blamed[0].rsplit(".", 1)
        where = f"; the largest gradient was that of {stack} layer {number} ({blamed[1]})"
    return UserError(
        f"training diverged {when}: a number is no longer finite{where}; what was saved before is whole; {remedy}"
    )

"""The optimisers and the learning rate at each step."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from anydepth.config import TrainConfig
from anydepth.objectives.base import ParameterGroup
from anydepth.train.processes import divided_as, full, is_divided


def inverse_sqrt(step: int, config: TrainConfig) -> float:
    return float((max(1, config.warmup) / step) ** 0.5)


def linear(step: int, config: TrainConfig) -> float:
    """Down to zero at the step after the last, so that the last one still counts."""
    return max(0.0, (config.steps + 1 - step) / max(1, config.steps + 1 - config.warmup))


SCHEDULES: dict[str, Callable[[int, TrainConfig], float]] = {"inverse-sqrt": inverse_sqrt, "linear": linear}


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update number `step`, counted from 1: up in a line to the peak, then down by the schedule."""
    if step <= config.warmup:
        return config.rate * step / config.warmup
    return config.rate * SCHEDULES[config.schedule](step, config)


@dataclass
class Optimised:
    """Parameters with an optimiser of their own, which steps at every `every`-th update, on that update's gradient."""

    named: dict[str, nn.Parameter]
    optimiser: torch.optim.Optimizer
    factor: float = 1.0  # of the learning rate
    every: int = 1

    def is_due(self, step: int) -> bool:
        return step % self.every == 0

    def set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate * self.factor

    def norm(self) -> Tensor:
        """Of the gradient, before clipping."""
        return norm_of(p.grad for p in self.named.values() if p.grad is not None)

    def clip(self, largest: float, norm: Tensor) -> None:
        for alike in _alike(self.named.values()):
            clip_grads_with_norm_(alike, largest, norm)


def norm_of(gradients: Iterable[Tensor]) -> Tensor:
    """Of all of them together, some of which may be divided among processes."""
    norms = [full(get_total_norm(alike)) for alike in _alike(gradients)]
    return norms[0] if len(norms) == 1 else torch.stack(norms).norm()


def _alike(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Those that are divided among processes apart from those that are not: they do not mix."""
    found: dict[bool, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault(is_divided(tensor), []).append(tensor)
    return list(found.values())


def make_optimisers(
    named: dict[str, nn.Parameter], groups: Sequence[ParameterGroup], config: TrainConfig
) -> list[Optimised]:
    """One for all parameters that no group claims, and one for each group."""
    claimed = {name for group in groups for name in group.names}
    rest = {name: parameter for name, parameter in named.items() if name not in claimed}
    found = [Optimised(rest, _make_optimiser(rest, config))]
    for group in groups:
        own = {name: named[name] for name in group.names}
        adam = torch.optim.AdamW(own.values(), lr=0.0, betas=config.betas, eps=1e-9, weight_decay=0.0, fused=True)
        found.append(Optimised(own, adam, group.rate / config.rate, group.every))
    return found


def _make_optimiser(named: dict[str, nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    matrices = [p for p in named.values() if p.ndim >= 2]
    vectors = [p for p in named.values() if p.ndim < 2]
    decays = [(matrices, config.weight_decay), (vectors, 0.0)]
    groups = [{"params": alike, "weight_decay": decay} for some, decay in decays for alike in _alike(some)]
    if config.optimiser == "nesterov":
        return torch.optim.SGD(groups, lr=0.0, momentum=config.momentum, nesterov=True)
    return torch.optim.AdamW(groups, lr=0.0, betas=config.betas, eps=1e-9, fused=True)


def optimiser_tensors(optimisers: Sequence[Optimised]) -> dict[str, Tensor]:
    """Their state under the parameters' names: `<parameter>/<moment>`."""
    return {
        f"{name}/{key}": value
        for one in optimisers
        for name, parameter in one.named.items()
        for key, value in one.optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimisers(optimisers: Sequence[Optimised], tensors: dict[str, Tensor]) -> None:
    owners = {name: one for one in optimisers for name in one.named}
    for key, value in tensors.items():
        name, moment = key.rsplit("/", 1)
        parameter = owners[name].named[name]
        is_count = value.shape != parameter.shape  # of steps
        there = value.to(parameter.device) if is_count else divided_as(value, parameter)
        owners[name].optimiser.state[parameter][moment] = there

"""The optimiser and the learning rate at each step."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from anydepth.config import TrainConfig


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


def make_optimiser(named: dict[str, nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    matrices = [p for p in named.values() if p.ndim >= 2]
    vectors = [p for p in named.values() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if config.optimiser == "nesterov":
        return torch.optim.SGD(groups, lr=0.0, momentum=config.momentum, nesterov=True)
    return torch.optim.AdamW(groups, lr=0.0, betas=config.betas, eps=1e-9, fused=True)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def optimiser_tensors(optimiser: torch.optim.Optimizer, named: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """The optimiser's state under the parameters' names: `<parameter>/<moment>`."""
    return {
        f"{name}/{key}": value
        for name, parameter in named.items()
        for key, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimiser(
    optimiser: torch.optim.Optimizer, named: dict[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    for key, value in tensors.items():
        name, moment = key.rsplit("/", 1)
        optimiser.state[named[name]][moment] = value.to(named[name].device)

"""Optimizers, the learning rate at each step, and mixed precision."""

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from anydepth.config import TrainConfig
from anydepth.errors import UserError
from anydepth.objectives.base import ParameterGroup
from anydepth.training.distributed import gather, is_sharded, local_part, shard_like

COMPILERS = (os.environ.get("CXX", "c++"), "g++", "clang++", "cl")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients and steps of Jordan et al. 2024
NEWTON_SCHULZ_STEPS = 5
UPDATE_RMS = 0.2  # as of Adam's updates (Liu et al. 2025), so that the two share a learning rate
# Matrices stacked in one parameter, by the end of its name.
STACKED = {"_qkv.weight": 3, "_key_value.weight": 2}


def inverse_sqrt(step: int, config: TrainConfig) -> float:
    return float((max(1, config.warmup) / step) ** 0.5)


def linear(step: int, config: TrainConfig) -> float:
    """Down to zero at the step after the last, so the last step still learns."""
    return max(0.0, (config.steps + 1 - step) / max(1, config.steps + 1 - config.warmup))


def warmup_stable_decay(step: int, config: TrainConfig) -> float:
    """The peak until the last share `decay` of the updates, then linear to zero."""
    decay = max(1, round(config.decay * config.steps))
    return min(1.0, max(0.0, (config.steps + 1 - step) / decay))


SCHEDULES: dict[str, Callable[[int, TrainConfig], float]] = {
    "inverse-sqrt": inverse_sqrt,
    "linear": linear,
    "wsd": warmup_stable_decay,
}


def learning_rate_at(step: int, config: TrainConfig) -> float:
    """The learning rate of update `step`, counted from 1: linear warm-up to the peak, then the schedule."""
    if step <= config.warmup:
        return config.learning_rate * step / config.warmup
    return config.learning_rate * SCHEDULES[config.schedule](step, config)


@dataclass
class OptimizerGroup:
    """Parameters with their own optimizer, which steps at every `every`-th update, on that update's gradient."""

    named: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    factor: float = 1.0  # of the learning rate
    every: int = 1

    def is_due(self, step: int) -> bool:
        return step % self.every == 0

    def set_learning_rate(self, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * self.factor

    def norm(self) -> Tensor:
        """The gradient norm, before clipping."""
        return gradient_norm(p.grad for p in self.named.values() if p.grad is not None)

    def clip(self, largest: float, norm: Tensor) -> None:
        """Scale the gradients down to a norm of `largest`. Of sharded ones each process scales its part."""
        parts = [local_part(p.grad) for p in self.named.values() if p.grad is not None]
        if parts:
            torch._foreach_mul_(parts, (largest / (norm + 1e-6)).clamp(max=1.0))


def gradient_norm(gradients: Iterable[Tensor]) -> Tensor:
    """The norm of all of them together, some of which may be sharded."""
    norms = [gather(get_total_norm(alike)) for alike in _alike(gradients)]
    return norms[0] if len(norms) == 1 else torch.stack(norms).norm()


def _alike(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Sharded tensors separately from others: they do not mix."""
    found: dict[bool, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault(is_sharded(tensor), []).append(tensor)
    return list(found.values())


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised, for matrices inside layers (Jordan et al. 2024; Liu et al. 2025).

    torch.optim.Muon computes in bfloat16, which many CPUs emulate 40 times slower, and supports neither matrices
    stacked in one parameter (query, key and value) nor sharded ones. This one orthogonalises in the given type,
    each stacked matrix by itself, those of one shape in a batch, and gathers sharded ones.
    """

    def __init__(
        self,
        named: dict[str, nn.Parameter],
        momentum: float,
        weight_decay: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.dtype = dtype
        groups = [
            {"params": alike, "stacked": stacked}
            for stacked in sorted(set(STACKED.values()) | {1})
            for alike in _alike(p for name, p in named.items() if _stacked(name) == stacked)
        ]
        super().__init__(groups, {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """With several processes each orthogonalises a share of the matrices, and all-reduces them."""
        found = [
            (group, parameter, self._momentum(parameter, group["momentum"]))
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
        owners = _spread([update.numel() for _, _, update in found], ranks)
        own: dict[torch.Size, list[Tensor]] = {}  # by the shape of a matrix
        for (group, _, update), owner in zip(found, owners, strict=True):
            if owner == rank:
                matrices = update.view(group["stacked"], -1, update.shape[1])
                own.setdefault(matrices.shape[1:], []).append(matrices)
            else:
                update.zero_()
        for shape, alike in own.items():
            made = orthogonalise(torch.cat(alike), self.dtype) * (UPDATE_RMS * max(shape) ** 0.5)
            torch._foreach_copy_(alike, list(made.split([len(one) for one in alike])))
        if ranks > 1:
            for _, _, update in found:
                dist.all_reduce(update)  # the others have zeros
        for group, parameter, update in found:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.sub_(shard_like(update, parameter), alpha=group["lr"])

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """The gradient with Nesterov momentum, gathered."""
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(gradient, 1 - momentum)
        return gather(gradient.lerp(state["momentum"], momentum))


def _spread(sizes: Sequence[int], ranks: int) -> list[int]:
    """The rank of each item: the largest first, each to the rank with the smallest load so far."""
    load, owners = [0] * ranks, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        owners[i] = load.index(min(load))
        load[owners[i]] += sizes[i]
    return owners


def _stacked(name: str) -> int:
    return next((count for end, count in STACKED.items() if name.endswith(end)), 1)


def orthogonalise(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Bring the singular values of each matrix (the last two dimensions) near 1, by a few Newton-Schulz iterations."""
    a, b, c = NEWTON_SCHULZ
    x = matrices.to(dtype)
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if is_tall else x).to(matrices.dtype)


def _takes_muon(name: str, parameter: nn.Parameter) -> bool:
    return ".layers." in name and parameter.ndim == 2


def make_optimizers(
    named: dict[str, nn.Parameter], groups: Sequence[ParameterGroup], config: TrainConfig
) -> list[OptimizerGroup]:
    """An optimizer for all parameters in no group, and one for each group. Muon takes the matrices inside layers."""
    claimed = {name for group in groups for name in group.names}
    rest = {name: parameter for name, parameter in named.items() if name not in claimed}
    found = []
    if config.optimizer == "muon":
        own = {name: parameter for name, parameter in rest.items() if _takes_muon(name, parameter)}
        rest = {name: parameter for name, parameter in rest.items() if name not in own}
        muon = Muon(own, config.muon_momentum, config.weight_decay, _muon_dtype(config, own.values()))
        found.append(OptimizerGroup(own, muon, config.muon_factor))
    found.append(OptimizerGroup(rest, _make_optimizer(rest, config)))
    for group in groups:
        own = {name: named[name] for name in group.names}
        adam = torch.optim.AdamW(own.values(), lr=0.0, betas=config.betas, eps=1e-9, weight_decay=0.0, fused=True)
        found.append(OptimizerGroup(own, adam, group.learning_rate / config.learning_rate, group.every))
    return found


def _muon_dtype(config: TrainConfig, parameters: Iterable[Tensor]) -> torch.dtype:
    """bfloat16, unless float32 is asked for or the device emulates it. Of CPUs PyTorch can only tell for x86."""
    if any(parameter.is_cuda for parameter in parameters):
        has_it = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        has_it = any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
    is_half = config.precision == "bfloat16" or (config.precision != "float32" and has_it)
    return torch.bfloat16 if is_half else torch.float32


def _make_optimizer(named: dict[str, nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    matrices = [p for p in named.values() if p.ndim >= 2]
    vectors = [p for p in named.values() if p.ndim < 2]
    decays = [(matrices, config.weight_decay), (vectors, 0.0)]
    groups = [{"params": alike, "weight_decay": decay} for some, decay in decays for alike in _alike(some)]
    if config.optimizer == "nesterov":
        return torch.optim.SGD(groups, lr=0.0, momentum=config.momentum, nesterov=True)
    return torch.optim.AdamW(groups, lr=0.0, betas=config.betas, eps=1e-9, fused=True)


def optimizer_tensors(optimizers: Sequence[OptimizerGroup]) -> dict[str, Tensor]:
    """Their state by parameter name: `<parameter>/<moment>`."""
    return {
        f"{name}/{key}": value
        for one in optimizers
        for name, parameter in one.named.items()
        for key, value in one.optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizers(optimizers: Sequence[OptimizerGroup], tensors: dict[str, Tensor]) -> None:
    owners = {name: one for one in optimizers for name in one.named}
    for key, value in tensors.items():
        name, moment = key.rsplit("/", 1)
        parameter = owners[name].named[name]
        is_step_count = value.shape != parameter.shape
        there = value.to(parameter.device) if is_step_count else shard_like(value, parameter)
        owners[name].optimizer.state[parameter][moment] = there


def choose_dtype(config: TrainConfig, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 if the device computes in it; most CPUs emulate it, many times slower."""
    if config.precision != "auto":
        return DTYPES[config.precision]
    has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if has_bfloat16 else torch.float32


def check_precision(config: TrainConfig) -> None:
    """Refuse settings that cannot work here."""
    if config.compile and not any(map(shutil.which, COMPILERS)):
        raise UserError("train.compile needs a C++ compiler: install one, such as g++, or leave out train.compile")
    if config.shard and config.precision == "float16":
        raise UserError(
            "train.shard works with float32 or bfloat16, not with the loss scaling of float16: set train.precision"
        )


class Precision:
    """Mixed precision: a context for the forward pass, and a gradient scaler, which may do nothing."""

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self.device = device
        self.dtype = choose_dtype(config, device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)

    def context(self) -> AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

"""The processes that train one model together, as torchrun starts them; without it there is one.

Each takes its rows of every batch, and their gradients are added up: what an update sees, and so what is learnt, does
not depend on how many there are.
"""

import atexit
import math
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from anydepth.errors import UserError
from anydepth.model.device import choose_device
from anydepth.model.stack import Stack
from anydepth.text.batches import Part

# What keeps DDP from sending buffers around at each step, by its name in this version of PyTorch: ours are constants.
KNOWN = signature(DistributedDataParallel).parameters
BUFFERS = next(name for name in ("forward_sync_buffers", "broadcast_buffers") if name in KNOWN)
SAME = 1e-6  # the same sums on devices of different kinds differ by less
LONGEST_WAIT = timedelta(days=2)  # while the first prepares a corpus; if it dies the others are told at once


@dataclass(frozen=True)
class Processes:
    """This one among all. `sharded`: weights, gradients and moments are divided among them (FSDP)."""

    rank: int = 0
    count: int = 1
    sharded: bool = False

    @property
    def is_first(self) -> bool:
        """The only one that writes and speaks."""
        return self.rank == 0

    @property
    def part(self) -> Part:
        return Part(self.rank, self.count)

    def wrapped(self, update: nn.Module, model: nn.Module, apart: set[nn.Parameter]) -> nn.Module:
        """`update` as a module whose gradients all have, or, if they are divided, each a part of.

        Those of `apart` stay whole, and are summed by `add_up`.
        """
        if self.count == 1:
            return update
        if not self.sharded:
            return DistributedDataParallel(update, **{BUFFERS: False})  # type: ignore[arg-type]
        mesh = init_device_mesh(next(model.parameters()).device.type, (self.count,))
        stacks = [module for module in model.modules() if isinstance(module, Stack)]
        for layer in (layer for stack in stacks for layer in stack.distinct):
            fully_shard(layer, mesh=mesh)
        fully_shard(update, mesh=mesh, ignored_params=apart)
        return update

    @contextmanager
    def adding_up(self, update: nn.Module, last: bool) -> Iterator[None]:
        """Of the batches of one update, gradients travel with the last."""
        if isinstance(update, DistributedDataParallel) and not last:
            with update.no_sync():
                yield
        else:
            if isinstance(update, FSDPModule):
                update.set_requires_gradient_sync(last)
            yield

    def add_up(self, parameters: set[nn.Parameter]) -> None:
        """The gradients of what stays whole while all else is divided."""
        if self.sharded:
            for parameter in parameters:
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= self.count

    @contextmanager
    def whole(self, update: nn.Module) -> Iterator[None]:
        """Outside an update: what is not part of a layer is there while this lasts; layers see to themselves."""
        if isinstance(update, FSDPModule):
            update.unshard()
        yield
        if isinstance(update, FSDPModule):
            update.reshard()

    def sum(self, values: Sequence[float]) -> Sequence[float]:
        """Of all processes, each of the values. No device has to wait for it."""
        if self.count == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def check_alike(self, parameters: Iterable[Tensor]) -> None:
        """Stop if the weights of some process are not those of the others, for whatever reason."""
        if self.count == 1 or self.sharded:
            return
        squares = sum(float(one.detach().double().square().sum()) for one in parameters)
        found = self.sum([squares if rank == self.rank else 0.0 for rank in range(self.count)])
        for rank, value in enumerate(found):
            if not math.isclose(value, found[0], rel_tol=SAME):
                raise UserError(
                    f"the weights of process {rank} are no longer those of the first: nothing was saved; the same "
                    "command goes on from the last checkpoint, and if this comes back, look for a broken device"
                )

    def told(self, value: Any = None) -> Any:
        """What the first one says, to all. Others wait for it, for days if need be."""
        if self.count == 1:
            return value
        key = f"told/{next(_news)}"
        if self.is_first:
            _store().set(key, pickle.dumps(value))
            return value
        _store().wait([key], LONGEST_WAIT)
        return pickle.loads(_store().get(key))


ALONE = Processes()
_stores: list[Any] = []
_news = count()


def join(device: str, shard: bool) -> tuple[Processes, torch.device]:
    """Find the others, if torchrun has started several, and the device of this one."""
    here, processes = choose_device(device), int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        return ALONE, here
    if here.type == "cuda":
        here = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(here)
    if not dist.is_initialized():
        shared, rank, _ = next(rendezvous("env://"))
        # After a restart, what the processes before left there would lead astray.
        attempt = f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
        store = dist.PrefixStore(attempt, shared)  # type: ignore[attr-defined]
        _stores.append(store)
        backend = "cpu:gloo,cuda:nccl" if here.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=processes)
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), processes, shard), here


def _store() -> Any:
    """Where processes leave messages. A group would have a time limit, and the first may prepare a corpus for hours."""
    return _stores[0]


def full(value: Tensor) -> Tensor:
    """All of a tensor that may be divided among the processes; every one of them has to ask."""
    return value.full_tensor() if is_divided(value) else value  # type: ignore[attr-defined, no-any-return]


def is_divided(value: Tensor) -> bool:
    return hasattr(value, "full_tensor")


def divided_as(value: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor, divided as `parameter` is, if it is."""
    if not is_divided(parameter):
        return value.to(parameter.device)
    from torch.distributed.tensor import distribute_tensor

    placed = value.to(parameter.device)
    return distribute_tensor(placed, parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]

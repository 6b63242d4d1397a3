"""The processes that train one model together, as torchrun starts them; without it there is one.

Each takes its rows of every batch, and their gradients are added up: what an update sees, and so what is learnt, does
not depend on how many there are.
"""

import atexit
import os
import pickle
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
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

from anydepth.data.batches import Share
from anydepth.errors import UserError
from anydepth.model.device import choose_device
from anydepth.model.stack import Stack

# What keeps DDP from sending buffers around at each step, by its name in this version of PyTorch: ours are constants.
KNOWN = signature(DistributedDataParallel).parameters
BUFFERS = next(name for name in ("forward_sync_buffers", "broadcast_buffers") if name in KNOWN)
SAME = 1e-4  # devices of different kinds may round differently
WAITS = timedelta(seconds=5)
PLACE = "anydepth"
LONGEST_WAIT = timedelta(days=2)  # while the first prepares a corpus; if it dies the others are told at once
LONGEST_FAREWELL = timedelta(minutes=10)
LONGEST_SEARCH = timedelta(minutes=5)  # for the first one, which may still have to start


@dataclass(frozen=True)
class Processes:
    """This one among all. `sharded`: weights, gradients and moments are divided among them (FSDP), on devices of this
    kind."""

    rank: int = 0
    count: int = 1
    sharded: bool = False
    kind: str = "cpu"

    @property
    def is_first(self) -> bool:
        """The only one that writes and speaks."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        return Share(self.rank, self.count)

    def placed(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model on this one's device; but one that is to be divided stays where it is, for it may not fit: its
        layers come over one by one as they are divided."""
        return model if self.sharded else model.to(device)

    def wrapped(self, update: nn.Module, model: nn.Module, apart: set[nn.Parameter]) -> nn.Module:
        """`update` as a module whose gradients all have, or, if they are divided, each a part of.

        Those of `apart` stay whole, and are summed by `add_up`.
        """
        if self.count == 1:
            return update
        if not self.sharded:
            options = {BUFFERS: False, "gradient_as_bucket_view": True}  # no second copy of the gradients
            return DistributedDataParallel(update, **options)  # type: ignore[arg-type]
        mesh = init_device_mesh(self.kind, (self.count,))
        stacks = [module for module in model.modules() if isinstance(module, Stack)]
        for layer in (layer for stack in stacks for layer in stack.distinct):
            fully_shard(layer, mesh=mesh)
        fully_shard(update, mesh=mesh, ignored_params=apart)
        return update

    @contextmanager
    def adding_up(self, update: nn.Module, last: bool) -> Iterator[None]:
        """Of the batches of one update, gradients travel with the last. Where they are divided, with each of them: to
        keep them whole until then would take the memory that is to be saved."""
        if isinstance(update, DistributedDataParallel) and not last:
            with update.no_sync():
                yield
        else:
            yield

    def add_up(self, parameters: Sequence[nn.Parameter]) -> None:
        """The gradients of what stays whole while all else is divided, in the same order everywhere."""
        for gradient in [one.grad for one in parameters if one.grad is not None] if self.sharded else []:
            dist.all_reduce(gradient)
            gradient /= self.count

    @contextmanager
    def whole(self, update: nn.Module) -> Iterator[None]:
        """Outside an update: what is not part of a layer is there while this lasts; layers see to themselves."""
        if not isinstance(update, FSDPModule):
            yield
            return
        update.unshard()
        try:
            yield
        finally:
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
        differs = 0.0
        for own in (parameter.detach() for parameter in parameters):
            of_first = own.clone()
            dist.broadcast(of_first, 0)
            differs = max(differs, float(not torch.allclose(own, of_first, rtol=SAME, atol=SAME)))
        found = self.sum([differs * (rank == self.rank) for rank in range(self.count)])
        if any(found):
            raise UserError(
                f"the weights of process {found.index(1.0)} are no longer those of the first: nothing was saved; the "
                "same command goes on from the last checkpoint, and if this comes back, look for a broken device"
            )

    def gathered(self, value: Tensor) -> Tensor | None:
        """All of a tensor, in main memory, for the first, which writes it. Every process has to ask."""
        whole = full(value.detach())
        return whole.cpu() if self.is_first else None

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

    def leave(self) -> None:
        """At the end: the first keeps the messages, and waits until the slowest has read the last of them. Not for
        ever: one that has died reads nothing."""
        if self.count == 1:
            return
        key = f"left/{next(_news)}"
        if not self.is_first:
            _store().set(f"{key}/{self.rank}", b"")
            return
        with suppress(dist.DistStoreError):
            _store().wait([f"{key}/{rank}" for rank in range(1, self.count)], LONGEST_FAREWELL)


ALONE = Processes()
_stores: list[Any] = []
_news = count()


def join(device: str, shard: bool) -> tuple[Processes, torch.device]:
    """Find the others, if torchrun has started several, and the device of this one."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return ALONE, choose_device(device)
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UserError(f"WORLD_SIZE is {count} but there is no {missing[0]}: start with torchrun, or unset WORLD_SIZE")
    if device in ("auto", "cuda") and torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    here = choose_device(device)
    if here.type == "cuda":
        torch.cuda.set_device(here)
    if not dist.is_initialized():
        shared, rank, _ = next(rendezvous("env://"))
        _stores.append(fresh_store(shared, rank, count))
        backend = "cpu:gloo,cuda:nccl" if here.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=_stores[0], rank=rank, world_size=count)
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), count, shard, here.type), here


def fresh_store(shared: Any, rank: int, count: int, patience: timedelta = LONGEST_SEARCH) -> Any:
    """A store of these processes, which the first one keeps. In torchrun's there is what those before a restart left,
    and machines count restarts differently."""
    host = os.environ["MASTER_ADDR"]
    if rank == 0:
        store = dist.TCPStore(host, 0, count, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        shared.set(PLACE, str(store.port))
        return store
    end = time.monotonic() + patience.total_seconds()
    while True:
        port = int(shared.get(PLACE))
        try:
            socket.create_connection((host, port), WAITS.total_seconds()).close()  # for a store complains at length
            store = dist.TCPStore(host, port, count, is_master=False, timeout=WAITS)  # type: ignore[attr-defined]
        except (OSError, RuntimeError) as error:  # it was that of a process that is gone, or nobody lets us through
            if time.monotonic() > end:
                raise UserError(
                    f"the first process does not answer at {host}, port {port}, which the system chose: open the ports "
                    "between the machines, or give torchrun an address of the first machine that the others reach"
                ) from error
            time.sleep(WAITS.total_seconds() / 10)
        else:
            store.set_timeout(LONGEST_WAIT)
            return store


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

"""Distributed training by processes that torchrun starts (DDP or FSDP); without torchrun there is one process.

Each process takes its share of every batch, and gradients are all-reduced: what is learned does not depend on how many
processes there are.
"""

import atexit
import logging
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
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from anydepth.data.batching import BatchShare
from anydepth.device import choose_device
from anydepth.errors import UserError
from anydepth.model.stack import Stack

# DDP's option to broadcast buffers at each step, by its name in this version of PyTorch; our buffers are constants.
KNOWN = signature(DistributedDataParallel).parameters
BUFFERS = next(name for name in ("forward_sync_buffers", "broadcast_buffers") if name in KNOWN)
TOLERANCE = 1e-4  # devices of different kinds may round differently
CONNECT_TIMEOUT = timedelta(seconds=5)
PORT_KEY = "anydepth"  # of our store, in torchrun's
BROADCAST_TIMEOUT = timedelta(days=2)  # rank 0 may prepare a large corpus; if it dies, the others fail at once
EXIT_TIMEOUT = timedelta(minutes=10)
STORE_TIMEOUT = timedelta(minutes=5)  # rank 0 may still have to start


@dataclass(frozen=True)
class World:
    """All processes, and this one's rank. `sharded`: weights, gradients and moments are sharded (FSDP)."""

    rank: int = 0
    size: int = 1
    sharded: bool = False
    device_type: str = "cpu"

    @property
    def is_main(self) -> bool:
        """Rank 0: the only process that writes files and reports progress."""
        return self.rank == 0

    @property
    def share(self) -> BatchShare:
        return BatchShare(self.rank, self.size)

    def place(self, model: nn.Module, device: torch.device) -> nn.Module:
        """Move the model to this process's device. One that will be sharded may not fit, and stays: FSDP moves it layer
        by layer."""
        return model if self.sharded else model.to(device)

    def wrap(self, update: nn.Module, model: nn.Module, unsharded: set[nn.Parameter]) -> nn.Module:
        """Wrap `update` in DDP or FSDP. The gradients of `unsharded` parameters are left to `all_reduce_gradients`."""
        if self.size == 1:
            return update
        if not self.sharded:
            options = {BUFFERS: False, "gradient_as_bucket_view": True}  # no second copy of the gradients
            return DistributedDataParallel(update, **options)  # type: ignore[arg-type]
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard  # takes as long to import as all the rest of PyTorch

        mesh = init_device_mesh(self.device_type, (self.size,))
        stacks = [module for module in model.modules() if isinstance(module, Stack)]
        for layer in (layer for stack in stacks for layer in stack.distinct):
            fully_shard(layer, mesh=mesh)
        fully_shard(update, mesh=mesh, ignored_params=unsharded)
        return update

    @contextmanager
    def gradient_sync(self, update: nn.Module, last: bool) -> Iterator[None]:
        """With DDP, gradients are reduced at the last batch of an update only. With FSDP, at each: unreduced gradients
        would take the memory that sharding saves."""
        if isinstance(update, DistributedDataParallel) and not last:
            with update.no_sync():
                yield
        else:
            yield

    def all_reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients of parameters that are not sharded while the model is."""
        for gradient in [one.grad for one in parameters if one.grad is not None] if self.sharded else []:
            dist.all_reduce(gradient)
            gradient /= self.size

    @contextmanager
    def gather_parameters(self, update: nn.Module) -> Iterator[None]:
        """Outside an update: gather the parameters that belong to no layer; layers gather their own when they run."""
        if self.size == 1 or not self.sharded:
            yield
            return
        from torch.distributed.fsdp import FSDPModule

        assert isinstance(update, FSDPModule)
        for layer in update.modules():  # one that has not run yet would make its buffers in inference mode, for good
            if isinstance(layer, FSDPModule):
                layer.unshard()
                layer.reshard()
        update.unshard()
        try:
            yield
        finally:
            update.reshard()

    def all_reduce(self, values: Sequence[float]) -> Sequence[float]:
        """The sum of each value over all processes, on the CPU: no device has to wait."""
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def check_in_sync(self, parameters: Iterable[Tensor]) -> None:
        """Stop if some process has other weights than rank 0."""
        if self.size == 1 or self.sharded:
            return
        differs = 0.0
        for own in (parameter.detach() for parameter in parameters):
            expected = own.clone()
            dist.broadcast(expected, 0)
            differs = max(differs, float(not torch.allclose(own, expected, rtol=TOLERANCE, atol=TOLERANCE)))
        found = self.all_reduce([differs * (rank == self.rank) for rank in range(self.size)])
        if any(found):
            raise UserError(
                f"the weights of process {found.index(1.0)} differ from those of process 0: nothing was saved; the "
                "same command resumes from the last checkpoint; if this happens again, look for a broken device"
            )

    def gather_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Full tensors in CPU memory on rank 0, nothing elsewhere; every process has to call it.

        One at a time: all of them together may not fit into a device's memory.
        """
        found: dict[str, Tensor] = {}
        for name, value in tensors.items():
            whole = gather(value.detach())
            if self.is_main:
                found[name] = whole.cpu()
        return found

    def broadcast(self, value: Any = None) -> Any:
        """The value of rank 0, for all. Others wait for it, for days if need be."""
        if self.size == 1:
            return value
        key = f"broadcast/{next(_messages)}"
        if self.is_main:
            _store().set(key, pickle.dumps(value))
            return value
        _store().wait([key], BROADCAST_TIMEOUT)
        return pickle.loads(_store().get(key))

    def wait_for_exit(self) -> None:
        """At the end: rank 0 keeps the store, and waits until all have read its last message, or a process has died."""
        if self.size == 1:
            return
        key = f"exit/{next(_messages)}"
        if not self.is_main:
            _store().set(f"{key}/{self.rank}", b"")
            return
        with suppress(dist.DistStoreError):
            _store().wait([f"{key}/{rank}" for rank in range(1, self.size)], EXIT_TIMEOUT)


SINGLE = World()
_stores: list[Any] = []
_messages = count()


def init_distributed(device: str, shard: bool) -> tuple[World, torch.device]:
    """Connect to the other processes, if torchrun started several; return the world and this process's device.

    Only rank 0 logs at INFO from here on.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return SINGLE, choose_device(device)
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UserError(f"WORLD_SIZE is {size} but there is no {missing[0]}: start with torchrun, or unset WORLD_SIZE")
    if device in ("auto", "cuda") and torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    here = choose_device(device)
    if here.type == "cuda":
        torch.cuda.set_device(here)
    if not dist.is_initialized():
        shared, rank, _ = next(rendezvous("env://"))
        _stores.append(make_store(shared, rank, size))
        backend = "cpu:gloo,cuda:nccl" if here.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=_stores[0], rank=rank, world_size=size)
        atexit.register(dist.destroy_process_group)
    if dist.get_rank() != 0:
        logging.getLogger("anydepth").setLevel(logging.WARNING)
    return World(dist.get_rank(), size, shard, here.type), here


def make_store(shared: Any, rank: int, size: int, patience: timedelta = STORE_TIMEOUT) -> Any:
    """A store of these processes, kept by rank 0. Torchrun's own store may have entries from before a restart, and
    machines count restarts differently."""
    host = os.environ["MASTER_ADDR"]
    if rank == 0:
        store = dist.TCPStore(host, 0, size, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        shared.set(PORT_KEY, str(store.port))
        return store
    end = time.monotonic() + patience.total_seconds()
    while True:
        port = int(shared.get(PORT_KEY))
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT.total_seconds()).close()  # fails without a traceback
            store = dist.TCPStore(host, port, size, is_master=False, timeout=CONNECT_TIMEOUT)  # type: ignore[attr-defined]
        except (OSError, RuntimeError) as error:  # the port of a process that is gone, or a closed one
            if time.monotonic() > end:
                raise UserError(
                    f"process 0 does not answer at {host}, port {port} (chosen by the system): open the ports between "
                    "the machines, or give torchrun an address of the first machine that the others can reach"
                ) from error
            time.sleep(CONNECT_TIMEOUT.total_seconds() / 10)
        else:
            store.set_timeout(BROADCAST_TIMEOUT)
            return store


def _store() -> Any:
    """For messages between processes. A process group would time out while rank 0 prepares a corpus for hours."""
    return _stores[0]


def is_sharded(value: Tensor) -> bool:
    return hasattr(value, "full_tensor")


def gather(value: Tensor) -> Tensor:
    """The full tensor of one that may be sharded; every process has to call it."""
    return value.full_tensor() if is_sharded(value) else value  # type: ignore[attr-defined, no-any-return]


def local_part(value: Tensor) -> Tensor:
    """This process's part of a tensor that may be sharded, which shares its memory."""
    return value.to_local() if is_sharded(value) else value  # type: ignore[attr-defined, no-any-return]


def shard_like(value: Tensor, parameter: Tensor) -> Tensor:
    """A full tensor, sharded as `parameter` is, if it is."""
    if not is_sharded(parameter):
        return value.to(parameter.device)
    from torch.distributed.tensor import distribute_tensor

    placed = value.to(parameter.device)
    return distribute_tensor(placed, parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]

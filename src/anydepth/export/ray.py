"""Runs long jobs on the machines of a Ray cluster, or on the cores of this one.

Each piece of work is a Ray task. If its worker dies, another runs it again. Results come back in the order of the
pieces and are the same as from one process.

Start the head of a cluster with `GRPC_ENABLE_FORK_SUPPORT=0 ray start --head`. With gRPC's fork handlers a client's
server now and then dies as it is forked. A client retries for ten minutes before it gives up.
"""

import io
import logging
import os
import socket
import tarfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import torch

from anydepth import __version__
from anydepth.errors import UserError
from anydepth.infer.options import Progress
from anydepth.infer.runner import Piece, Result, Work
from anydepth.infer.translator import Translator, on_engine

log = logging.getLogger(__name__)

MAX_RETRIES = 20  # of a piece whose worker has died
QUEUED_PER_WORKER = 2  # pieces, so that no worker runs dry
TOKEN = ".ray/auth_token"
CONNECT_TIMEOUT = 10.0  # seconds for a cluster to answer
STARTING = 600.0  # seconds for a cluster that answers to get ready: a busy head is slow to start a client's server
NOT_READY = (
    "Starting Ray client server failed",
    "Proxy failed to Connect to backend",
    "ray client connection timeout",
    "timed out during startup",  # of a cluster on this machine: Ray gives it half a minute
)


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker needs beside the model's files."""

    version: str
    fingerprint: str
    pair: tuple[str, str] | None
    device: str
    threads: int
    engine: str
    quantization: str | None


@dataclass(frozen=True)
class RayRunner:
    """Without an address Ray is started on this machine, with `workers` workers, by default one per core."""

    address: str | None = None
    workers: int | None = None
    device: str = "cpu"
    threads: int = 1  # of each worker
    engine: str = "torch"
    quantization: str | None = None

    def started(self) -> "RayRunner":
        """Connects, so that an error comes before any work."""
        _start(self.address, self.workers, self.threads)
        return self

    def __call__(
        self, work: Work[Piece, Result], translator: Translator, pieces: Iterator[Piece], progress: Progress
    ) -> Iterator[Result]:
        if translator.folder is None:
            raise UserError("only a model that was loaded from a folder can be sent to other processes")
        ray = _start(self.address, self.workers, self.threads)
        on_gpu = self.device.startswith("cuda") or (self.device == "auto" and ray.cluster_resources().get("GPU", 0) > 0)
        needs = {"GPU": 1, "CPU": 1} if on_gpu else {"CPU": self.threads}
        slots = sum(_count_slots(node["Resources"], needs) for node in ray.nodes() if node["Alive"])
        if slots < 1:
            raise UserError(
                f"no machine of the Ray cluster has {'a GPU' if on_gpu else f'{self.threads} cores'}: "
                "choose another device or fewer threads"
            )
        pair = None if translator.pair is None else translator.languages
        setup = WorkerSetup(
            __version__,
            translator.fingerprint,
            pair,
            "cuda" if on_gpu else "cpu",
            self.threads,
            self.engine,
            self.quantization,
        )
        model = ray.put(_pack(translator.folder))
        task = ray.remote(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), max_retries=MAX_RETRIES)(_run_piece)
        result, waiting = partial(_get_result, ray), deque[Any]()
        for piece in pieces:
            waiting.append(task.remote([model], setup, work, piece))
            if len(waiting) >= QUEUED_PER_WORKER * slots:
                yield result(waiting.popleft(), progress)
        while waiting:
            yield result(waiting.popleft(), progress)


def _count_slots(there: dict[str, float], needs: dict[str, int]) -> int:
    """How many tasks fit on a machine at a time."""
    return int(min(there.get(name, 0) // amount for name, amount in needs.items()))


def _start(address: str | None, workers: int | None, threads: int) -> Any:
    if find_spec("ray") is None:
        raise UserError("ray is not installed: pip install 'anydepth[ray]', or use another runner")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported about users
    if address is not None and (Path.home() / TOKEN).exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as a head does if there is a token
    import ray

    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        options |= {"num_cpus": None if workers is None else workers * threads, "include_dashboard": False}
    try:
        _check_reachable(address)
        _init(ray, address or "local", options)  # without "local" it would look for a running cluster
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        advice = "; if it asks for a token, set RAY_AUTH_TOKEN and RAY_AUTH_MODE=token" if address else ""
        raise UserError(f"no Ray cluster answers at {address or 'this machine'}: {reason}{advice}") from error
    return ray


def _init(ray: Any, address: str, options: dict[str, Any]) -> None:
    """Connect, retrying while the cluster is not ready yet."""
    end = time.monotonic() + STARTING
    while True:
        try:
            ray.init(address=address, **options)
            return
        except Exception as error:
            if not any(text in str(error) for text in NOT_READY):
                raise
            if time.monotonic() > end:
                raise RuntimeError(str(error)) from error
            log.warning("the Ray cluster at %s is not ready yet: trying again", address)
            ray.shutdown()
            time.sleep(CONNECT_TIMEOUT / 10)


def _check_reachable(address: str | None) -> None:
    """Fails at once where Ray itself would retry for minutes."""
    if address is None or address in ("auto", "local"):
        return
    parts = urlsplit(address if "://" in address else f"ray://{address}")
    if parts.hostname is None or parts.port is None:
        raise ValueError("give HOST:PORT, or ray://HOST:PORT")
    socket.create_connection((parts.hostname, parts.port), CONNECT_TIMEOUT).close()


def _get_result(ray: Any, reference: Any, progress: Progress) -> Any:
    try:
        found, ready = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from error
        if isinstance(error.cause, ImportError) or "failed to import" in str(error.cause):
            reason = str(error.cause).strip().splitlines()[-1]
            raise UserError(
                f"a worker of the Ray cluster lacks something ({reason}): install anydepth {__version__} on all of them"
            ) from error
        raise
    except ray.exceptions.RayError as error:
        raise UserError(
            f"Ray gave up on a piece of work ({type(error).__name__}), after {MAX_RETRIES} retries if workers died: "
            "check their memory, or use smaller pieces; running the same command again continues"
        ) from error
    progress(ready)
    return found


def _pack(folder: Path) -> bytes:
    """The model's files as a tar archive, for machines that do not see this disk."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                tar.add(path, path.name)
    return packed.getvalue()


_models: dict[WorkerSetup, Translator] = {}  # of a worker


def _run_piece(model: list[Any], setup: WorkerSetup, work: Work[Piece, Result], piece: Piece) -> tuple[Result, int]:
    """In a worker, which fetches and loads the model once. Returns the result and the progress made."""
    if setup not in _models:
        import ray

        _models[setup] = _load(ray.get(model[0]), setup)
    ready: list[int] = []
    return work(_models[setup], piece, ready.append), sum(ready)


def _load(packed: bytes, setup: WorkerSetup) -> Translator:
    if setup.version != __version__:
        raise UserError(f"a worker has anydepth {__version__} and not {setup.version}: install the same everywhere")
    torch.set_num_threads(setup.threads)
    with TemporaryDirectory(prefix="anydepth-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        translator = Translator.load(folder, engine="torch", device=setup.device)
    if setup.pair is not None:
        translator = translator.between(*setup.pair)
    return on_engine(translator, setup.engine, setup.threads, setup.quantization)

"""Long jobs on the machines of a Ray cluster, or on the cores of this one.

Each piece is a task. Ray gives it to another worker if its own dies; results come back in the order of the pieces, and
are those that one process gives.
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

TRIES = 20  # of a piece, each after a worker has died
AHEAD = 2  # pieces for each worker that are on their way, so that none runs dry
TOKEN = ".ray/auth_token"
PATIENCE = 10.0  # seconds for a cluster to answer
# Seconds for one that answers to get ready: a busy head is slow to start a client's server, and now and then that dies at
# once, in gRPC's handling of fork (not with GRPC_ENABLE_FORK_SUPPORT=0 in the head's environment).
STARTING = 600.0
NOT_READY = ("Starting Ray client server failed", "Proxy failed to Connect to backend", "ray client connection timeout")


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know beside the model's files."""

    version: str
    fingerprint: str
    pair: tuple[str, str] | None
    device: str
    threads: int
    engine: str
    quantization: str | None


@dataclass(frozen=True)
class OnRay:
    """A runner. Without an address Ray is started here, with so many workers, by default one for each core."""

    address: str | None = None
    workers: int | None = None
    device: str = "cpu"
    threads: int = 1  # of each worker
    engine: str = "torch"
    quantization: str | None = None

    def started(self) -> "OnRay":
        """With Ray there, so that what is wrong with it is said before any work."""
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
        slots = sum(_room(node["Resources"], needs) for node in ray.nodes() if node["Alive"])
        if slots < 1:
            raise UserError(
                f"no machine of the Ray cluster has {'a GPU' if on_gpu else f'{self.threads} cores'}: "
                "choose another --device or fewer --threads"
            )
        pair = None if translator.pair is None else translator.languages
        setup = Setup(
            __version__,
            translator.fingerprint,
            pair,
            "cuda" if on_gpu else "cpu",
            self.threads,
            self.engine,
            self.quantization,
        )
        model = ray.put(_packed(translator.folder))
        task = ray.remote(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), max_retries=TRIES)(_done)
        result, waiting = partial(_result, ray), deque[Any]()
        for piece in pieces:
            waiting.append(task.remote([model], setup, work, piece))
            if len(waiting) >= AHEAD * slots:
                yield result(waiting.popleft(), progress)
        while waiting:
            yield result(waiting.popleft(), progress)


def _room(there: dict[str, float], needs: dict[str, int]) -> int:
    """How many tasks fit on a machine at a time."""
    return int(min(there.get(name, 0) // amount for name, amount in needs.items()))


def _start(address: str | None, workers: int | None, threads: int) -> Any:
    if find_spec("ray") is None:
        raise UserError("ray is not installed: pip install 'anydepth[ray]', or leave out --runner")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what people translate with is their own business
    if address is not None and (Path.home() / TOKEN).exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as a head does that finds one
    import ray

    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        options |= {"num_cpus": None if workers is None else workers * threads, "include_dashboard": False}
    try:
        _knock(address)
        _init(ray, address or "local", options)  # otherwise it would look for one that is there
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        advice = "; if it asks for a token, set RAY_AUTH_TOKEN and RAY_AUTH_MODE=token" if address else ""
        raise UserError(f"no Ray cluster answers at {address or 'this machine'}: {reason}{advice}") from error
    return ray


def _init(ray: Any, address: str, options: dict[str, Any]) -> None:
    """Connect. A cluster that is there but not ready yet is tried again, for minutes."""
    end = time.monotonic() + STARTING
    while True:
        try:
            ray.init(address=address, **options)
            return
        except (OSError, RuntimeError) as error:
            if not any(text in str(error) for text in NOT_READY) or time.monotonic() > end:
                raise
            log.warning("the Ray cluster at %s is not ready yet: trying again", address)
            ray.shutdown()
            time.sleep(PATIENCE / 10)


def _knock(address: str | None) -> None:
    """Ray itself would try for minutes."""
    if address is None or address in ("auto", "local"):
        return
    parts = urlsplit(address if "://" in address else f"ray://{address}")
    if parts.hostname is None or parts.port is None:
        raise ValueError("give HOST:PORT, or ray://HOST:PORT")
    socket.create_connection((parts.hostname, parts.port), PATIENCE).close()


def _result(ray: Any, reference: Any, progress: Progress) -> Any:
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
            f"Ray gave up a piece ({type(error).__name__}), after {TRIES} tries if its workers died: look at their "
            "memory, or take smaller pieces; the same command goes on"
        ) from error
    progress(ready)
    return found


def _packed(folder: Path) -> bytes:
    """The model's files in one piece, for machines that do not see this disk."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                tar.add(path, path.name)
    return packed.getvalue()


_models: dict[Setup, Translator] = {}  # of a worker


def _done(model: list[Any], setup: Setup, work: Work[Piece, Result], piece: Piece) -> tuple[Result, int]:
    """In a worker, which fetches and loads the model once. With the result comes what its progress adds up to."""
    if setup not in _models:
        import ray

        _models[setup] = _loaded(ray.get(model[0]), setup)
    ready: list[int] = []
    return work(_models[setup], piece, ready.append), sum(ready)


def _loaded(packed: bytes, setup: Setup) -> Translator:
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

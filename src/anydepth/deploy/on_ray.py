"""Distillation on the machines of a Ray cluster, or on the cores of this one.

Each chunk is a task. Ray gives one to another worker if its own dies; results come back in the order of the chunks, and
are those that one process gives.
"""

import io
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from anydepth.artifact import load
from anydepth.deploy.engines import on_engine
from anydepth.errors import UserError
from anydepth.infer.distill import Chunk, ChunkResult, DistillOptions, distill_chunk
from anydepth.infer.translator import Translator

TRIES = 20  # of a chunk, each after a worker has died
AHEAD = 2  # chunks for each core that are on their way, so that none runs dry


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know beside the model's files."""

    fingerprint: str
    pair: tuple[str, str] | None
    engine: str
    quantization: str | None


@dataclass(frozen=True)
class OnRay:
    """A runner for `distill`. Without an address Ray is started here, with so many workers, by default one per core."""

    address: str | None = None
    workers: int | None = None
    engine: str = "torch"
    quantization: str | None = None

    def __call__(
        self,
        translator: Translator,
        options: DistillOptions,
        chunks: Iterator[Chunk],
        progress: Callable[[int], None],
    ) -> Iterator[ChunkResult]:
        ray = _started(self.address, self.workers)
        if translator.folder is None:
            raise UserError("only a model that was loaded from a folder can be sent to other processes")
        pair = None if translator.pair is None else translator.languages
        setup = Setup(translator.fingerprint, pair, self.engine, self.quantization)
        model = ray.put(_packed(translator.folder))
        task = ray.remote(num_cpus=1, max_retries=TRIES)(_distilled)
        room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting: deque[Any] = deque()
        for chunk in chunks:
            waiting.append(task.remote([model], setup, chunk, options))
            if len(waiting) >= room:
                yield _result(ray, waiting.popleft(), progress)
        while waiting:
            yield _result(ray, waiting.popleft(), progress)


def _started(address: str | None, workers: int | None) -> Any:
    if find_spec("ray") is None:
        raise UserError("ray is not installed: pip install 'anydepth[ray]', or leave out --runner")
    import ray

    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        options |= {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"no Ray cluster answers at {address or 'this machine'}: {error}") from error
    return ray


def _result(ray: Any, reference: Any, progress: Callable[[int], None]) -> ChunkResult:
    try:
        found: ChunkResult = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from error
        raise
    except ray.exceptions.WorkerCrashedError as error:
        raise UserError(
            f"a chunk was given up after {TRIES} workers had died over it: look at their memory, or take a smaller "
            "--chunk; the same command goes on"
        ) from error
    progress(found.counts.read)
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


def _distilled(model: list[Any], setup: Setup, chunk: Chunk, options: DistillOptions) -> ChunkResult:
    """In a worker, which fetches and loads the model once."""
    if setup not in _models:
        import ray

        _models[setup] = _loaded(ray.get(model[0]), setup)
    return distill_chunk(_models[setup], *chunk, options)


def _loaded(packed: bytes, setup: Setup) -> Translator:
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="anydepth-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        translator = load(folder)
    if setup.pair is not None:
        translator = translator.between(*setup.pair)
    return on_engine(translator, setup.engine, 1, setup.quantization)

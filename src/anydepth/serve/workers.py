"""What runs the model: threads for an engine that releases the interpreter lock, processes for one that does not."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from anydepth.artifact.model import load_model
from anydepth.device import set_torch_threads
from anydepth.engines.auto import EngineOptions, make_classifier_engine, make_engine, refuse_translation_options
from anydepth.errors import UserError
from anydepth.infer.text_model import DEFERRED
from anydepth.infer.translator import Translator

if TYPE_CHECKING:  # PyTorch, which a server of the native engine does without
    from anydepth.infer.classifier import Classifier

ServedModel = Union[Translator, "Classifier"]


@dataclass(frozen=True)
class ModelSource:
    """Where a worker finds its model, and the engine to run it with."""

    folder: Path
    device: str = "cpu"
    engine: str = "torch"
    quantization: str | None = None
    speculate: bool = False
    shortlist: bool | None = None

    def load(self, workers: int) -> ServedModel:
        loaded = load_model(self.folder, self.device, defer=self.engine in DEFERRED)
        if loaded.kind == "classifier":
            from anydepth.infer.classifier import Classifier

            refuse_translation_options(self.quantization, self.speculate, self.shortlist)
            return Classifier(loaded, make_classifier_engine(loaded, self.engine, 1))  # each worker has a core
        if loaded.kind == "encoder":
            raise UserError("this is an encoder-only model (masked language model): there is nothing to serve")
        options = EngineOptions(workers, self.quantization, self.speculate, self.shortlist)
        return Translator(loaded, make_engine(loaded, self.engine, options))


class BatchKey(NamedTuple):
    """What the texts of a batch have in common."""

    depth: str | None
    pair: tuple[str, str] | None = None  # if the model has several
    beam: int = 1
    nbest: int = 1
    words: bool = False  # of a classifier: return the depth of each word
    scale: float | None = None
    lambda_: float | None = None
    exit_rule: str | None = None


def run_batch(model: ServedModel, key: BatchKey, texts: list[str]) -> list[Any]:
    """For each text its best translations and whether they were cut off at the limit; or its label."""
    if not isinstance(model, Translator):
        depth, scale, lambda_, exit_rule = key.depth, key.scale, key.lambda_, key.exit_rule
        if key.words:
            return [model.explain(text, depth=depth, scale=scale, lambda_=lambda_, exit=exit_rule) for text in texts]
        found = model.classify(texts, depth=depth, scale=scale, lambda_=lambda_, exit=exit_rule, batch_size=len(texts))
        return [(one, None) for one in found]
    translator = model if key.pair is None else model.between(*key.pair)
    nbest = translator.hypotheses(
        texts, depth=key.depth, beam=key.beam, nbest=key.nbest, batch_size=len(texts), scores=key.beam > 1
    )
    return [([one.text for one in each], not all(one.ended for one in each)) for each in nbest]


class Workers:
    """Runs `count` batches at once. A process that dies is replaced, and its batch tried once more."""

    def __init__(self, model: ServedModel, source: ModelSource, count: int) -> None:
        self.count = count
        self._model, self._source = model, source
        self.processes = count > 1 and model.engine.name == "torch"
        self._executor = self._make_executor()

    def _make_executor(self) -> Executor:
        if not self.processes:
            return ThreadPoolExecutor(self.count, thread_name_prefix="worker")
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.count, context, _start_process, (self._source,))

    async def start(self) -> None:
        """Wait until each process has loaded the model."""
        loop = asyncio.get_running_loop()
        ready: set[int] = set()
        while self.processes and len(ready) < self.count:
            answers = (loop.run_in_executor(self._executor, _process_id) for _ in range(self.count))
            ready.update(await asyncio.gather(*answers))

    async def run(self, key: BatchKey, texts: list[str]) -> list[Any]:
        executor = self._executor
        try:
            return await self._submit(key, texts)
        except BrokenProcessPool:
            if self._executor is executor:  # the first batch to notice replaces it
                self._executor = self._make_executor()
                executor.shutdown(wait=False, cancel_futures=True)
            return await self._submit(key, texts)

    async def _submit(self, key: BatchKey, texts: list[str]) -> list[Any]:
        loop = asyncio.get_running_loop()
        if self.processes:
            return await loop.run_in_executor(self._executor, _run_in_process, key, texts)
        return await loop.run_in_executor(self._executor, run_batch, self._model, key, texts)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


_model: ServedModel | None = None  # of a worker process


def _start_process(source: ModelSource) -> None:
    """In a new process: one thread, as the other processes have the other cores. The server handles signals."""
    global _model
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_exit_with_server, daemon=True).start()
    set_torch_threads(1)
    _model = source.load(1)


def _exit_with_server() -> None:
    """A server that is killed cannot stop its workers."""
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os._exit(1)


def _process_id() -> int:
    """Slow enough that no process answers for the others."""
    time.sleep(0.02)
    return os.getpid()


def _run_in_process(key: BatchKey, texts: list[str]) -> list[Any]:
    assert _model is not None
    return run_batch(_model, key, texts)

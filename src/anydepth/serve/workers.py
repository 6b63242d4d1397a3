"""What runs the model: threads around an engine that needs no interpreter lock, processes around one that does."""

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
from typing import Any, NamedTuple

import torch

from anydepth.artifact.model import load_model
from anydepth.engines.auto import EngineOptions, make_engine
from anydepth.errors import UserError
from anydepth.infer.classifier import Classifier
from anydepth.infer.translator import Translator

Model = Translator | Classifier


@dataclass(frozen=True)
class Source:
    """Where a worker finds its model, and what is to run it."""

    folder: Path
    device: str = "cpu"
    engine: str = "torch"
    quantization: str | None = None
    speculate: bool = False
    shortlist: bool = False

    def load(self, workers: int) -> Model:
        loaded = load_model(self.folder, self.device)
        if loaded.kind == "classifier":
            return Classifier(loaded)
        if loaded.kind == "encoder":
            raise UserError("this model is an encoder alone, for masked words: there is nothing to serve")
        options = EngineOptions(workers, self.quantization, self.speculate, self.shortlist)
        return Translator(loaded, make_engine(loaded, self.engine, options))


class Task(NamedTuple):
    """What texts that go together have in common."""

    depth: str | None
    pair: tuple[str, str] | None = None  # of a model of several
    beam: int = 1
    nbest: int = 1
    words: bool = False  # of a classifier: how deep each word went
    scale: float | None = None


def carry_out(model: Model, task: Task, texts: list[str]) -> list[Any]:
    """For each text what came of it: its best translations, and whether they ran into the limit; or its label."""
    if isinstance(model, Classifier):
        return _classified(model, task, texts)
    translator = model if task.pair is None else model.between(*task.pair)
    found = translator.hypotheses(
        texts, depth=task.depth, beam=task.beam, nbest=task.nbest, batch_size=len(texts), scores=task.beam > 1
    )
    return [([one.text for one in each], not all(one.ended for one in each)) for each in found]


def _classified(model: Classifier, task: Task, texts: list[str]) -> list[Any]:
    if task.words:
        return [model.explain(text, depth=task.depth, scale=task.scale) for text in texts]
    found = model.classify(texts, depth=task.depth, scale=task.scale, batch_size=len(texts))
    return [(one, None) for one in found]


class Workers:
    """So many batches run at once. A process that dies is replaced, and its batch tried once more."""

    def __init__(self, model: Model, source: Source, count: int) -> None:
        self.count = count
        self._model, self._source = model, source
        engine = "torch" if isinstance(model, Classifier) else model.engine.name
        self.processes = count > 1 and engine == "torch"
        self._executor = self._start()

    def _start(self) -> Executor:
        if not self.processes:
            return ThreadPoolExecutor(self.count, thread_name_prefix="worker")
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.count, context, _begin, (self._source,))

    async def get_ready(self) -> None:
        """Until each process has loaded the model."""
        loop = asyncio.get_running_loop()
        ready: set[int] = set()
        while self.processes and len(ready) < self.count:
            answers = (loop.run_in_executor(self._executor, _process) for _ in range(self.count))
            ready.update(await asyncio.gather(*answers))

    async def run(self, task: Task, texts: list[str]) -> list[Any]:
        executor = self._executor
        try:
            return await self._submit(task, texts)
        except BrokenProcessPool:
            if self._executor is executor:  # the first batch that notices replaces it
                self._executor = self._start()
                executor.shutdown(wait=False, cancel_futures=True)
            return await self._submit(task, texts)

    async def _submit(self, task: Task, texts: list[str]) -> list[Any]:
        loop = asyncio.get_running_loop()
        if self.processes:
            return await loop.run_in_executor(self._executor, _in_process, task, texts)
        return await loop.run_in_executor(self._executor, carry_out, self._model, task, texts)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


_model: Model | None = None  # of a worker process


def _begin(source: Source) -> None:
    """In a new process: one thread, as the others have the other cores; the server decides when to stop."""
    global _model
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    torch.set_num_threads(1)
    _model = source.load(1)


def _end_with_the_server() -> None:
    """A server that is killed cannot tell its workers."""
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os._exit(1)


def _process() -> int:
    """Which one has answered; not so fast that one of them answers for all."""
    time.sleep(0.02)
    return os.getpid()


def _in_process(task: Task, texts: list[str]) -> list[Any]:
    assert _model is not None
    return carry_out(_model, task, texts)

"""Start a server and stop it in good order."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI

from anydepth.deploy.sample import find_sample
from anydepth.deploy.server.app import make_app
from anydepth.deploy.server.classifying import Classifying
from anydepth.deploy.server.settings import Settings
from anydepth.deploy.server.translating import Translating
from anydepth.deploy.server.workers import Source, Workers
from anydepth.errors import UserError
from anydepth.infer.classifier import Classifier


def build(given: Path, source: Source, workers: int, settings: Settings) -> FastAPI:
    """The application for a model. Whatever is wrong with the set-up is found here, before it answers anyone."""
    torch.set_num_threads(1)
    model = source.load(workers)
    running = Workers(model, source, workers)
    if isinstance(model, Classifier):
        if source.engine != "torch":
            raise UserError(f"{source.engine} takes models that translate; this one classifies: use --engine torch")
        model.menu[settings.depth]
        return make_app(Classifying(model, settings), running, settings)
    if not model.translates:
        raise UserError("this model is an encoder alone, for masked words: there is nothing to serve")
    if settings.depth is not None and settings.depth != "auto" and not model.must_choose:
        model.menu[settings.depth]
    pair = model.pairs[0]
    of_pair = model.between(pair.source, pair.target) if model.must_choose else model
    return make_app(Translating(model, settings, find_sample(of_pair, given)), running, settings)


class _Server(uvicorn.Server):
    """Ends with exit code 0 when it is told to stop: first what it has begun, then itself."""

    def __init__(self, config: uvicorn.Config, started: Callable[[int], None]) -> None:
        super().__init__(config)
        self._tell = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self._tell(self.servers[0].sockets[0].getsockname()[1])


def run(app: FastAPI, host: str, port: int, started: Callable[[int], None], patience: int) -> None:
    """Serve until SIGTERM or SIGINT; what is under way then has `patience` seconds to end."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=patience,
        lifespan="on",
    )
    server = _Server(config, started)
    asyncio.run(server.serve())
    if not server.started:
        raise UserError(f"cannot serve on {host}:{port}: is another program listening there? give another --port")

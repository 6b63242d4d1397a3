"""Start a server and stop it in good order."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI

from anydepth.errors import UserError
from anydepth.export.sample import find_sample
from anydepth.infer.classifier import Classifier
from anydepth.serve.app import make_app
from anydepth.serve.classifying import Classifying
from anydepth.serve.connections import protocol
from anydepth.serve.settings import Limits, Settings
from anydepth.serve.translating import Translating
from anydepth.serve.workers import Source, Workers


def build(given: Path, source: Source, workers: int, settings: Settings) -> FastAPI:
    """The application for a model. Whatever is wrong with the set-up is found here, before it answers anyone."""
    torch.set_num_threads(1)
    model = source.load(workers)
    if isinstance(model, Classifier):
        if source.engine not in ("auto", "torch"):
            raise UserError(f"{source.engine} takes models that translate; this one classifies: use --engine torch")
        return make_app(Classifying(model, settings), Workers(model, source, workers), settings)
    work = Translating(model, settings, find_sample(model.choices[0], given))
    return make_app(work, Workers(model, source, workers), settings)


class _Server(uvicorn.Server):
    """Ends with exit code 0 when it is told to stop: first what it has begun, then itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield


def listen(host: str, port: int) -> socket.socket:
    """Before the model is loaded: whoever cannot listen need not wait for it."""
    try:
        (family, *_), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot serve on {host}:{port} ({reason}): give another --port or --host") from error


def run(app: FastAPI, listening: socket.socket, limits: Limits) -> None:
    """Serve until SIGTERM or SIGINT; what is under way then may still end."""
    config = uvicorn.Config(
        app,
        http=protocol(limits.sending),
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
        lifespan="on",
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:  # uvloop, where there is one
        runner.run(_Server(config).serve(sockets=[listening]))

"""Start a server, and stop it once the requests under way are answered."""

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from anydepth.device import set_torch_threads
from anydepth.errors import UserError
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator
from anydepth.serve.app import make_app
from anydepth.serve.handlers import ClassificationHandler, TranslationHandler
from anydepth.serve.schemas import RequestLimits, ServerSettings
from anydepth.serve.workers import ModelSource, Workers

LARGEST_HEAD = 64 * 1024  # bytes of a request's line and headers
REASONS = {408: "Request Timeout", 431: "Request Header Fields Too Large"}


def build_app(given: Path, source: ModelSource, workers: int, settings: ServerSettings) -> FastAPI:
    """The application for a model. Whatever is wrong with the set-up is found here, before it answers anyone."""
    set_torch_threads(1)
    model = source.load(workers)
    if not isinstance(model, Translator):
        return make_app(ClassificationHandler(model, settings), Workers(model, source, workers), settings)
    handler = TranslationHandler(model, settings, find_sample(model.choices[0], given))
    return make_app(handler, Workers(model, source, workers), settings)


def listen(host: str, port: int) -> socket.socket:
    """Called before the model is loaded, so that an address in use is found at once."""
    try:
        (family, *_), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot serve on {host}:{port} ({reason}): choose another port or host") from error


def run(app: FastAPI, listening: socket.socket, limits: RequestLimits) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are then still answered."""
    config = uvicorn.Config(
        app,
        http=_limited_protocol(limits.sending),
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
        lifespan="on",
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:  # uvloop, where there is one
        runner.run(_Server(config).serve(sockets=[listening]))


class _Server(uvicorn.Server):
    """Exits with code 0 on SIGTERM or SIGINT; uvicorn's own raises the signal again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield


def _limited_protocol(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's HTTP, with limits on the head of a request, in bytes and in seconds, against slow clients."""

    class Limited(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """`cycle` is uvicorn's name for the request under way: there is a new one when its head is complete."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head, self._timer = 0, asyncio.get_running_loop().call_later(seconds, self._on_timeout)

        def data_received(self, data: bytes) -> None:
            before, waits = self.cycle, self.cycle is None or self.cycle.response_complete
            self._head += len(data) if waits else 0
            super().data_received(data)
            if self.cycle is not before:
                self._timer.cancel()
                self._head = 0
            elif waits and self._head > LARGEST_HEAD:
                self._refuse(431, f"Invalid request: the headers exceed {LARGEST_HEAD} bytes")
            elif waits and self._timer.cancelled():
                self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timeout)

        def connection_lost(self, error: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(error)

        def _on_timeout(self) -> None:
            if self._head:
                self._refuse(408, f"The request was not sent within {seconds:g} seconds")
            else:
                self.transport.close()

        def _refuse(self, status: int, message: str) -> None:
            body = json.dumps({"error": message}).encode()
            head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n"
            self.transport.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            self.transport.close()

    return Limited

"""How a request waits for its sentences: not for ever, and not when its client has hung up."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from anydepth.serve.errors import GoneError, SlowError
from anydepth.serve.metrics import Metrics


async def all_of(
    results: "Sequence[asyncio.Future[Any]]", request: Request, seconds: float, metrics: Metrics
) -> list[Any]:
    """The results, in order. If they come too late or nobody waits for them, what is still queued leaves the queue."""
    everything = asyncio.gather(*results)
    everything.add_done_callback(_noted)
    hung_up = asyncio.ensure_future(_hung_up(request))
    either: set[asyncio.Future[Any]] = {everything, hung_up}
    try:
        done, _ = await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if everything in done:
            return list(everything.result())
        if hung_up in done:
            metrics.cancelled.inc()
            raise GoneError
        raise SlowError(seconds)
    finally:
        hung_up.cancel()
        for result in results:
            result.cancel()


class Lines(StreamingResponse):
    """JSON lines. However they end, even before the first, what is still queued leaves the queue."""

    def __init__(self, lines: AsyncIterator[str], results: "Sequence[asyncio.Future[Any]]", metrics: Metrics) -> None:
        super().__init__(lines, media_type="application/x-ndjson")
        self.results, self.metrics = results, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            cancelled = [result.cancel() for result in self.results]
            if any(cancelled):
                self.metrics.cancelled.inc()


def _noted(everything: "asyncio.Future[Any]") -> None:
    """What went wrong after nobody waited any more is no news."""
    if not everything.cancelled():
        everything.exception()


async def _hung_up(request: Request) -> None:
    """The body has been read, so that the next message can only be that."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

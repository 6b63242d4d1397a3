"""Sentences wait here for a worker. A free worker takes the oldest, with others that can run in the same batch.

No batch waits to fill: without load a sentence runs alone and at once, under load batches form by themselves. A request
waits for its sentences only so long, and not once its client has disconnected.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from anydepth.serve.monitoring import Metrics
from anydepth.serve.schemas import AnswerTimeoutError, ApiError, BusyError, DisconnectedError
from anydepth.serve.workers import BatchKey, Workers


@dataclass(frozen=True, eq=False)  # by identity: equal texts are still separate
class QueuedText:
    text: str
    result: "asyncio.Future[Any]"
    since: float = field(default_factory=time.monotonic)


WaitingTexts = OrderedDict[QueuedText, None]


class Queue:
    def __init__(self, workers: Workers, metrics: Metrics, batch_size: int, most: int) -> None:
        self.workers, self.metrics, self.batch_size, self.most = workers, metrics, batch_size, most
        self._lines: dict[BatchKey, WaitingTexts] = {}
        self._count = 0
        self._busy = 0
        self._seconds_per_text = 0.01  # a running mean, for Retry-After
        self._runs: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return self._count

    def check_room(self, texts: int) -> None:
        """Refuse what never fits, and what does not fit now."""
        if texts > self.most:
            raise ApiError(400, f"Invalid request: {texts} sentences exceed the queue limit ({self.most})")
        if self._count + texts > self.most:
            raise BusyError(self.retry_after)

    def add(self, key: BatchKey, texts: Sequence[str]) -> "list[asyncio.Future[Any]]":
        """A future for each text. Cancelling it takes the text out of the queue, unless it is running already."""
        self.check_room(len(texts))
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(key, OrderedDict())
        added = [QueuedText(text, loop.create_future()) for text in texts]
        for one in added:
            one.result.add_done_callback(partial(self._remove_if_cancelled, key, one))
            line[one] = None
        self._count_changed(key, line, len(added))
        self._dispatch()
        return [one.result for one in added]

    @property
    def retry_after(self) -> int:
        """Seconds until about half of what waits is done."""
        return max(1, math.ceil(self._count * self._seconds_per_text / 2))

    def _remove_if_cancelled(self, key: BatchKey, item: QueuedText, future: "asyncio.Future[Any]") -> None:
        line = self._lines.get(key)
        if future.cancelled() and line is not None and item in line:
            del line[item]
            self._count_changed(key, line, -1)

    def _count_changed(self, key: BatchKey, line: WaitingTexts, by: int) -> None:
        if not line:
            self._lines.pop(key, None)
        self._count += by
        self.metrics.waiting.set(self._count)

    def _dispatch(self) -> None:
        while self._lines and self._busy < self.workers.count:
            key, line = min(self._lines.items(), key=lambda one: next(iter(one[1])).since)
            batch = [line.popitem(last=False)[0] for _ in range(self._fair_share(line))]
            self._count_changed(key, line, -len(batch))
            self._busy += 1
            run = asyncio.get_running_loop().create_task(self._run(key, batch))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    def _fair_share(self, line: WaitingTexts) -> int:
        """Where several workers are free, a line is divided among them."""
        free = self.workers.count - self._busy
        return min(self.batch_size, math.ceil(len(line) / free))

    async def _run(self, key: BatchKey, batch: list[QueuedText]) -> None:
        began = time.monotonic()
        self.metrics.batch_size.observe(len(batch))
        self.metrics.texts.labels(key.depth).inc(len(batch))
        try:
            results = await self._run_or_split(key, [one.text for one in batch])
            for one, result in zip(batch, results, strict=True):
                if one.result.done():
                    continue
                if isinstance(result, Exception):
                    one.result.set_exception(result)
                    one.result.exception()  # retrieved, so that asyncio does not report it if nobody waits
                else:
                    one.result.set_result(result)
        finally:
            for one in batch:
                one.result.cancel()  # those without a result, if the server is stopping
            self._busy -= 1
            each = (time.monotonic() - began) / len(batch) / self.workers.count
            self._seconds_per_text += 0.1 * (each - self._seconds_per_text)
            self._dispatch()

    async def _run_or_split(self, key: BatchKey, texts: list[str]) -> list[Any]:
        """A result or an exception for each text: one that fails does not spoil the batch of others."""
        try:
            return await self.workers.run(key, texts)
        except Exception as error:
            if len(texts) == 1:
                return [error]
        return [result for text in texts for result in await self._run_or_split(key, [text])]

    async def drain(self) -> None:
        """Wait until the queue is empty and nothing runs."""
        while self._runs:
            await asyncio.wait(self._runs)


async def wait_for_all(
    results: "Sequence[asyncio.Future[Any]]", request: Request, seconds: float, metrics: Metrics
) -> list[Any]:
    """The results, in order. On a timeout, or if the client disconnects, what is still queued leaves the queue."""
    everything = asyncio.gather(*results)
    everything.add_done_callback(_retrieve_exception)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    either: set[asyncio.Future[Any]] = {everything, disconnected}
    try:
        done, _ = await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if everything in done:
            return list(everything.result())
        if disconnected in done:
            metrics.cancelled.inc()
            raise DisconnectedError
        raise AnswerTimeoutError(seconds)
    finally:
        disconnected.cancel()
        for result in results:
            result.cancel()


class JsonLinesResponse(StreamingResponse):
    """However the stream ends, even before its first line, what is still queued leaves the queue."""

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


def _retrieve_exception(everything: "asyncio.Future[Any]") -> None:
    """Otherwise asyncio reports an exception that nobody waited for."""
    if not everything.cancelled():
        everything.exception()


async def _wait_for_disconnect(request: Request) -> None:
    """The body has been read, so that the next message can only be that."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

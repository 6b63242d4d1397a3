"""Sentences that wait. Whenever a worker is free it takes the oldest, with all that go with it, in one batch.

Nobody waits for a batch to fill: without load a sentence runs alone and at once, under load batches form by themselves.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anydepth.serve.errors import ApiError, BusyError
from anydepth.serve.metrics import Metrics
from anydepth.serve.workers import Task, Workers


@dataclass(frozen=True, eq=False)  # each is itself and no other, however alike
class Waiting:
    text: str
    result: "asyncio.Future[Any]"
    since: float = field(default_factory=time.monotonic)


Line = OrderedDict[Waiting, None]


class Queue:
    def __init__(self, workers: Workers, metrics: Metrics, batch_size: int, most: int) -> None:
        self.workers, self.metrics, self.batch_size, self.most = workers, metrics, batch_size, most
        self._waiting: dict[Task, Line] = {}
        self._count = 0
        self._busy = 0
        self._seconds_per_text = 0.01  # a running mean, for Retry-After
        self._runs: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return self._count

    def check_room(self, texts: int) -> None:
        """Refuse what can never be taken in, and what cannot be now."""
        if texts > self.most:
            raise ApiError(400, f"Invalid request: {texts} sentences exceed the queue limit ({self.most})")
        if self._count + texts > self.most:
            raise BusyError(self.retry_after)

    def add(self, task: Task, texts: Sequence[str]) -> "list[asyncio.Future[Any]]":
        """A future for each text; cancel it and the text leaves the queue, unless it is running already."""
        self.check_room(len(texts))
        loop = asyncio.get_running_loop()
        line = self._waiting.setdefault(task, OrderedDict())
        added = [Waiting(text, loop.create_future()) for text in texts]
        for one in added:
            one.result.add_done_callback(partial(self._left, task, one))
            line[one] = None
        self._changed(task, line, len(added))
        self._dispatch()
        return [one.result for one in added]

    @property
    def retry_after(self) -> int:
        """Seconds until about half of what waits is done."""
        return max(1, math.ceil(self._count * self._seconds_per_text / 2))

    def _left(self, task: Task, item: Waiting, future: "asyncio.Future[Any]") -> None:
        """A cancelled text goes at once, so that it is in nobody's way."""
        line = self._waiting.get(task)
        if future.cancelled() and line is not None and item in line:
            del line[item]
            self._changed(task, line, -1)

    def _changed(self, task: Task, line: Line, by: int) -> None:
        if not line:
            self._waiting.pop(task, None)
        self._count += by
        self.metrics.waiting.set(self._count)

    def _dispatch(self) -> None:
        while self._waiting and self._busy < self.workers.count:
            task, line = min(self._waiting.items(), key=lambda one: next(iter(one[1])).since)
            batch = [line.popitem(last=False)[0] for _ in range(self._fair_share(line))]
            self._changed(task, line, -len(batch))
            self._busy += 1
            run = asyncio.get_running_loop().create_task(self._run(task, batch))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    def _fair_share(self, line: Line) -> int:
        """Where several workers are free, a line is divided among them."""
        free = self.workers.count - self._busy
        return min(self.batch_size, math.ceil(len(line) / free))

    async def _run(self, task: Task, batch: list[Waiting]) -> None:
        began = time.monotonic()
        self.metrics.batch_size.observe(len(batch))
        self.metrics.texts.labels(task.depth).inc(len(batch))
        try:
            found = await self._results(task, [one.text for one in batch])
            for one, result in zip(batch, found, strict=True):
                if one.result.done():
                    continue
                if isinstance(result, Exception):
                    one.result.set_exception(result)
                    one.result.exception()  # if nobody waits for it any more, it is no news
                else:
                    one.result.set_result(result)
        finally:
            for one in batch:
                one.result.cancel()  # those without a result, if we are being stopped
            self._busy -= 1
            each = (time.monotonic() - began) / len(batch) / self.workers.count
            self._seconds_per_text += 0.1 * (each - self._seconds_per_text)
            self._dispatch()

    async def _results(self, task: Task, texts: list[str]) -> list[Any]:
        """What came of each text, or what went wrong with it: nobody's text spoils the batch of others."""
        try:
            return await self.workers.run(task, texts)
        except Exception as error:
            if len(texts) == 1:
                return [error]
        return [result for text in texts for result in await self._results(task, [text])]

    async def drain(self) -> None:
        """Until nothing waits and nothing runs."""
        while self._runs:
            await asyncio.wait(self._runs)

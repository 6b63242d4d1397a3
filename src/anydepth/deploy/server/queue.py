"""Sentences that wait. Whenever a worker is free it takes the oldest, with all that go with it, in one batch.

Nobody waits for a batch to fill: without load a sentence runs alone and at once, under load batches form by themselves.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anydepth.deploy.server.errors import BusyError
from anydepth.deploy.server.metrics import Metrics
from anydepth.deploy.server.workers import Task, Workers


@dataclass(frozen=True)
class Waiting:
    text: str
    result: "asyncio.Future[Any]"
    since: float = field(default_factory=time.monotonic)


class Queue:
    def __init__(self, workers: Workers, metrics: Metrics, batch_size: int, most: int) -> None:
        self.workers, self.metrics, self.batch_size, self.most = workers, metrics, batch_size, most
        self._waiting: dict[Task, deque[Waiting]] = {}
        self._count = 0
        self._busy = 0
        self._seconds_per_text = 0.01  # a running mean, for Retry-After
        self._runs: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return self._count

    def add(self, task: Task, texts: Sequence[str]) -> "list[asyncio.Future[Any]]":
        """A future for each text; cancel it and the text leaves the queue, unless it is running already."""
        if self._count + len(texts) > self.most:
            raise BusyError(self.retry_after)
        loop = asyncio.get_running_loop()
        line = self._waiting.setdefault(task, deque())
        added = [Waiting(text, loop.create_future()) for text in texts]
        for one in added:
            one.result.add_done_callback(partial(self._left, task, one))
        line.extend(added)
        self._count += len(added)
        self.metrics.waiting.set(self._count)
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
            line.remove(item)
            self._gone(task, line, 1)

    def _gone(self, task: Task, line: deque[Waiting], count: int) -> None:
        if not line:
            self._waiting.pop(task, None)
        self._count -= count
        self.metrics.waiting.set(self._count)

    def _dispatch(self) -> None:
        while self._waiting and self._busy < self.workers.count:
            task, line = min(self._waiting.items(), key=lambda one: one[1][0].since)
            batch = [line.popleft() for _ in range(min(len(line), self._fair_share(line)))]
            self._gone(task, line, len(batch))
            self._busy += 1
            run = asyncio.get_running_loop().create_task(self._run(task, batch))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    def _fair_share(self, line: deque[Waiting]) -> int:
        """Where several workers are free, a line is divided among them."""
        free = self.workers.count - self._busy
        return min(self.batch_size, math.ceil(len(line) / free))

    async def _run(self, task: Task, batch: list[Waiting]) -> None:
        began = time.monotonic()
        self.metrics.batch_size.observe(len(batch))
        try:
            found = await self.workers.run(task, [one.text for one in batch])
        except BaseException as error:
            for one in batch:
                if not one.result.done():
                    one.result.set_exception(error)
                    one.result.exception()  # if nobody waits for it any more, it is no news
            if not isinstance(error, Exception):
                raise
        else:
            for one, result in zip(batch, found, strict=True):
                if not one.result.done():
                    one.result.set_result(result)
        finally:
            self._busy -= 1
            each = (time.monotonic() - began) / len(batch) / self.workers.count
            self._seconds_per_text += 0.1 * (each - self._seconds_per_text)
            self._dispatch()

    async def drain(self) -> None:
        """Until nothing waits and nothing runs."""
        while self._runs:
            await asyncio.wait(self._runs)

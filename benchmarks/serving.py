"""The server: two workers against one, its overhead beside calling the engine, and 64 clients for a minute.

python benchmarks/serving.py [--model models/pt-en] [--engine ctranslate2 --quantize int8] [--seconds 60]

The clients are as light as they can be, for they share the cores with the server: requests are encoded beforehand and
go over plain sockets that stay open.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import psutil
import torch
from common import print_versions

from anydepth.artifact import bundled_model
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator, on_engine
from anydepth.serve.segments import split

CLIENTS, ROUNDS, REQUESTS, SENTENCES = 64, 5, 60, 8
WORKERS_BAR, OVERHEAD_BAR = 1.7, 3.0


class Server:
    def __init__(self, model: Path, *options: object) -> None:
        command = [sys.executable, "-m", "anydepth", "serve", str(model), "--port", "0", "--log-level", "warning"]
        self.process = subprocess.Popen([*command, *map(str, options)], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.match(r"http://127.0.0.1:(\d+)/", line)
        if found is None:
            raise SystemExit(line + self.process.stderr.read())
        self.port = int(found[1])
        self.log: list[str] = []
        threading.Thread(target=self.log.extend, args=(self.process.stderr,), daemon=True).start()

    def memory(self) -> float:
        family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        return float(sum(one.memory_info().rss for one in family)) / 2**20


@contextlib.contextmanager
def serving(model: Path, *options: object) -> Iterator[Server]:
    server = Server(model, *options)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


def encoded(texts: list[str], depth: str | None) -> bytes:
    fields = {"q": texts, "source": "fr", "target": "en"} | ({} if depth is None else {"depth": depth})
    body = json.dumps(fields).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> "Client":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *reason: object) -> None:
        self.writer.close()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None
        return int(head.split()[1]), await self.reader.readexactly(int(length[1]))


async def ready(port: int) -> None:
    async with Client(port) as client:
        await client.ask(encoded(["Bonjour."], None))


async def throughput(port: int, requests: list[bytes], clients: int) -> float:
    """Requests per second while so many clients share them."""
    waiting = iter(requests)

    async def work() -> None:
        async with Client(port) as client:
            for request in waiting:
                status, answer = await client.ask(request)
                assert status == 200, answer

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return len(requests) / (time.perf_counter() - began)


async def compare_workers(model: Path, options: list[object], texts: list[str]) -> None:
    with serving(model, *options, "--workers", 1) as one, serving(model, *options, "--workers", 2) as two:
        rng = random.Random(1)
        rates: dict[str, list[float]] = {"1": [], "2": []}
        for server in (one, two):
            await ready(server.port)
            await throughput(server.port, [encoded(texts[:SENTENCES], None)] * 10, 8)
        for _ in range(ROUNDS):
            requests = [encoded(rng.sample(texts, SENTENCES), None) for _ in range(REQUESTS)]
            for name, server in (("1", one), ("2", two)):
                rates[name].append(await throughput(server.port, requests, 16))
        ratio = median(rates["2"]) / median(rates["1"])
        each = ", ".join(f"{b / a:.2f}" for a, b in zip(rates["1"], rates["2"], strict=True))
        print(f"two workers against one: {ratio:.2f}x (bar {WORKERS_BAR}x); rounds {each}")
        print(f"  {SENTENCES * median(rates['2']):.0f} sentences/s with two, {SENTENCES} in a request, 16 clients")


async def compare_overhead(model: Path, options: list[object], direct: Translator, texts: list[str]) -> None:
    with serving(model, *options) as server:
        await ready(server.port)
        overheads, alone = [], []
        async with Client(server.port) as client:
            for text in texts[:50]:
                await client.ask(encoded([text], None))
                direct.translate([text])
            for text in texts[:300]:
                request = encoded([text], None)
                began = time.perf_counter()
                direct.translate([text])
                middle = time.perf_counter()
                await client.ask(request)
                alone.append(middle - began)
                overheads.append(time.perf_counter() - middle - alone[-1])
        print(
            f"server against the engine called directly, one sentence at a time: {1000 * median(overheads):+.2f} ms "
            f"median (bar {OVERHEAD_BAR} ms), the engine takes {1000 * median(alone):.2f} ms"
        )


async def many_clients(
    model: Path, options: list[object], direct: Translator, texts: list[str], seconds: float
) -> None:
    depths = [direct.menu.names[0], direct.menu.default.name, None]
    expected = {(text, depth): direct.translate([text], depth=depth)[0] for text in texts for depth in depths}
    answers = set(expected.values())
    counts = dict.fromkeys(("requests", "sentences", "refused", "failed", "lost", "swapped", "other words"), 0)
    memory: list[float] = []
    with serving(model, *options, "--workers", 2) as server:
        await ready(server.port)
        end = time.perf_counter() + seconds

        async def work(seed: int) -> None:
            rng = random.Random(seed)
            async with Client(server.port) as client:
                while time.perf_counter() < end:
                    chosen, depth = rng.sample(texts, rng.choice((1, 1, 1, 2, 5, 20))), rng.choice(depths)
                    status, body = await client.ask(encoded(chosen, depth))
                    counts["requests"] += 1
                    if status == 429:
                        counts["refused"] += 1
                        await asyncio.sleep(0.2)
                        continue
                    counts["failed"] += status >= 500
                    found = json.loads(body).get("translatedText", [])
                    counts["lost"] += len(found) != len(chosen)
                    counts["sentences"] += len(found)
                    for text, one in zip(chosen, found, strict=False):
                        if one != expected[text, depth]:  # a tie that broke otherwise in a batch, or worse
                            counts["swapped" if one in answers else "other words"] += 1

        async def watch() -> None:
            while time.perf_counter() < end:
                memory.append(server.memory())
                await asyncio.sleep(1)

        await asyncio.gather(watch(), *(work(seed) for seed in range(CLIENTS)))
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    third = max(1, len(memory) // 3)
    print(f"{CLIENTS} clients for {seconds:.0f} s: {told}")
    middle, last = mean(memory[third : 2 * third]), mean(memory[-third:])
    print(f"  memory {middle:.0f} MiB in the middle third, {last:.0f} in the last")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--engine", default="ctranslate2")
    parser.add_argument("--quantize")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--source", type=Path)
    arguments = parser.parse_args()
    print_versions("ctranslate2", "fastapi", "uvicorn")
    torch.set_num_threads(1)
    model = arguments.model or bundled_model()
    options: list[Any] = ["--engine", arguments.engine]
    if arguments.quantize:
        options += ["--quantize", arguments.quantize]
    translator = Translator.load(model)
    lines = dict.fromkeys(find_sample(translator, model, arguments.source, size=2000).sources)
    language = translator.pairs[0].source
    alone = [line for line in lines if len(split(line, language, lambda piece: True)) == 1]  # the server splits others
    texts = alone[:1000]
    print(f"{model.name}, {' '.join(map(str, options[1:]))}")
    direct = on_engine(Translator.load(model, engine="torch", device="cpu"), arguments.engine, 1, arguments.quantize)
    await compare_workers(model, options, texts)
    await compare_overhead(model, options, direct, texts)
    await many_clients(model, options, direct, texts[:300], arguments.seconds)


if __name__ == "__main__":
    asyncio.run(main())

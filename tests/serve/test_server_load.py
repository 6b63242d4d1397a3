"""Many clients at once, some of them rude: nothing is lost, nobody waits for others, and the end is an orderly one."""

import asyncio
import json
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from running_server import serving

import anydepth as package
from anydepth.errors import UserError
from anydepth.serve.monitoring import Metrics
from anydepth.serve.queue import Queue
from anydepth.serve.workers import BatchKey, ModelSource, Workers

pytestmark = pytest.mark.slow

pytest_plugins = ["made_servers"]
SLOW = ("--engine", "torch", "--batch-size", 1, "--beam", 8)  # so that something is still under way


def test_nothing_is_lost_or_swapped_when_many_ask_at_once(server, measured_run):
    words = ["chat", "chien", "oiseau"]
    texts = [f"le {a} voit un {b}{' et mange ici' * k}." for a in words for b in words for k in range(4)]
    depths = ["1-1", "1-2", "2-1", "2-2"]
    translator = package.load(measured_run, engine="torch")
    expected = {(text, d): translator.translate([text], depth=d)[0] for text in texts for d in depths}
    wrong = []

    def ask(seed):
        with httpx.Client(base_url=server.url, timeout=1000) as client:
            for i in range(seed, len(texts) * 4, 7):
                text, depth = texts[i % len(texts)], depths[i % 4]
                fields = {"q": text, "source": "fr", "target": "en", "depth": depth}
                answer = client.post("/translate", json=fields).json()
                if answer.get("translatedText") != expected[text, depth]:
                    wrong.append((text, depth, answer))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    sizes = server.client.get("/metrics").text
    batches = float(re.search(r"anydepth_batch_size_count ([\d.]+)", sizes)[1])
    sentences = float(re.search(r"anydepth_batch_size_sum ([\d.]+)", sizes)[1])
    assert sentences > batches  # some ran together


def test_cancelled_texts_leave_the_queue(toy_run):
    async def scenario():
        source = ModelSource(toy_run / "model")
        workers = Workers(source.load(1), source, 1)
        queue = Queue(workers, Metrics(), batch_size=2, most=100)
        kept = queue.add(BatchKey("2-2"), ["le chat dort."] * 3)
        left = queue.add(BatchKey("1-1"), ["un chien mange."] * 40)
        assert len(queue) == 41  # two run
        for one in left:
            one.cancel()
        await asyncio.sleep(0)
        assert len(queue) == 1
        assert await asyncio.gather(*kept) == [(["the cat sleeps."], False)] * 3
        await queue.drain()
        assert len(queue) == 0
        workers.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [1, 2])
def test_a_text_that_fails_fails_alone(toy_run, count):
    """Of two that run together, or in two processes, one is longer than the model takes."""

    async def scenario():
        source = ModelSource(toy_run / "model")
        workers = Workers(source.load(1), source, count)
        queue = Queue(workers, Metrics(), batch_size=8, most=100)
        queue.add(BatchKey("2-2"), ["le chat."] * count)  # keeps the workers busy
        good, bad = queue.add(BatchKey("2-2"), ["le chat dort.", "le chat " * 100])
        assert await good == (["the cat sleeps."], False)
        with pytest.raises(UserError, match="the limit is"):
            await bad
        await queue.drain()
        workers.close()

    asyncio.run(scenario())


def test_a_client_that_sends_too_slowly_is_told_so(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=1000) as half:
        half.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert half.recv(100).startswith(b"HTTP/1.1 408")


def test_a_head_without_an_end_has_one_all_the_same(server):
    host, port = server.url.removeprefix("http://").split(":")
    sockets = [socket.create_connection((host, int(port)), timeout=1000) for _ in range(4)]
    silent, slow, again, endless = sockets
    slow.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
    again.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = b""
    while not answer.endswith(b"}"):
        answer += again.recv(1000)
    assert answer.startswith(b"HTTP/1.1 200")
    again.sendall(b"GET /hea")
    endless.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * 70_000)
    said = endless.recv(1000)
    assert said.startswith(b"HTTP/1.1 431")
    assert b'{"error": "Invalid request: the headers exceed 65536 bytes"}' in said
    assert silent.recv(1000) == b""
    for one in (slow, again):
        assert one.recv(1000).startswith(b"HTTP/1.1 408")
    for one in sockets:
        one.close()
    assert server.client.get("/health").status_code == 200


@pytest.mark.parametrize("path", ["/translate", "/translate_stream"])
def test_a_client_that_hangs_up_frees_the_queue(toy_run, path):
    text = "le petit chien voit un grand chat et un oiseau rouge ici. " * 200
    freed = ("anydepth_cancelled_total 1.0", "anydepth_waiting 0.0")
    with serving(toy_run, *SLOW) as served:
        host, port = served.url.removeprefix("http://").split(":")
        body = json.dumps({"q": text, "source": "fr", "target": "en"}).encode()
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n" % path.encode())
            client.sendall(b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        while not all(line in served.client.get("/metrics").text for line in freed):
            time.sleep(0.05)
        assert served.stop() == 0
        assert any(line.get("status") in (499, 200) for line in served.log())


def test_sigterm_lets_requests_finish(toy_run):
    with serving(toy_run, "--batch-size", 1) as served:
        answers = []
        ask = threading.Thread(target=lambda: answers.append(served.translate(["un chien mange."] * 150)))
        ask.start()
        while "anydepth_characters_total 2250.0" not in served.client.get("/metrics").text:
            time.sleep(0.01)
        assert served.stop(signal.SIGTERM) == 0
        ask.join()
        assert answers[0].json()["translatedText"] == ["a dog eats."] * 150
        assert any(line["event"] == "request" and line.get("texts") == 150 for line in served.log())


def test_threads_of_the_native_engine_serve_every_depth(toy_run):
    depths = ["1-1", "1-2", "2-1", "2-2"]
    with serving(toy_run, "--workers", 2, "--engine", "native", "--speculate") as served:
        assert not [c for c in psutil.Process(served.process.pid).children() if "spawn_main" in " ".join(c.cmdline())]
        answers: dict[int, dict[str, object]] = {}

        def ask(number: int) -> None:
            answers[number] = served.translate("le chat dort.", depth=depths[number % 4]).json()

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {answer["engine"] for answer in answers.values()} == {"native"}
    assert [answers[number]["depth"] for number in range(24)] == depths * 6
    assert {answer["translatedText"] for answer in answers.values()} == {"the cat sleeps."}


def test_two_processes_with_a_full_queue_and_one_that_dies(toy_run):
    with serving(toy_run, "--workers", 2, "--engine", "torch", "--queue-limit", 200) as served:
        assert served.translate(["le chat dort."] * 50).json()["translatedText"] == ["the cat sleeps."] * 50
        children = psutil.Process(served.process.pid).children()
        workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        assert len(workers) == 2
        assert_a_full_queue_turns_requests_away(served, workers)
        workers[0].kill()
        assert served.translate(["un chien mange."] * 50).json()["translatedText"] == ["a dog eats."] * 50
        others = psutil.Process(served.process.pid).children()
        served.stop(signal.SIGKILL)
        assert not psutil.wait_procs(others, timeout=1000)[1]  # they end with the server


def assert_a_full_queue_turns_requests_away(served, workers):
    """The workers stand still until that has been seen."""
    for worker in workers:
        worker.suspend()
    texts = ["un chien mange."] * 150
    with ThreadPoolExecutor() as threads:
        first = threads.submit(served.translate, texts)
        try:
            while "anydepth_waiting 0.0" in served.client.get("/metrics").text:
                time.sleep(0.01)
            answer = served.translate(texts)
        finally:
            for worker in workers:
                worker.resume()
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) >= 1
    assert "error" in answer.json()
    assert first.result().json()["translatedText"] == ["a dog eats."] * 150
    assert served.translate(texts[:5]).status_code == 200  # there is room again

"""10,000 malformed requests, made by schemathesis from the server's own description and by hand: no 5xx, no hang.

python benchmarks/malformed.py [--model models/pt-en] [--requests 10000]
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from common import print_versions
from serving import serving

from anydepth.artifact import bundled_model

ROUTES = ("/translate", "/translate_stream", "/detect", "/languages", "/health", "/model", "/", "/nowhere", "/docs")
KINDS = (
    "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "multipart/form-data",
    "text/html", "", "application/json; charset=utf-16", "*" * 300,
)  # fmt: skip
PIECES = (
    b"{", b"}", b"[", b"]", b'"', b":", b",", b'"q"', b'"source"', b'"target"', b'"fr"', b'"en"', b'"auto"', b'"depth"',
    b'"6-3"', b'"99-99"', b'"budget_ms"', b"1e999", b"-1", b"0", b"null", b"true", b"NaN", b"\xff\xfe",
    b"\x00", b'"\\ud800"',
    b'"Bonjour."', b"q=", b"&", b"source=fr", b"target=en", b"%ff", b"%", b"--b\r\n",
    b"Content-Disposition: form-data; name=q",
    b"\r\n\r\n", b'"alternatives"', b'"format"', b'"html"', b'"api_key"', b"9" * 400,
    b'"' + b"a" * 5000 + b'"', b"\xf0\x9f\x98\x80",
)  # fmt: skip
PATIENCE = 30.0


def by_hand(rng: random.Random) -> bytes:
    """A request that is broken in its fields, its body, its headers or its very syntax."""
    method = rng.choice(("POST", "POST", "POST", "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "FOO"))
    body = b"".join(rng.choices(PIECES, k=rng.randrange(12)))
    if rng.random() < 0.4:
        values = (
            b'"Bonjour."',
            b"[]",
            b'["a", 1]',
            b"7",
            b"null",
            b'{"a": 1}',
            b'""',
            b'"' + "😀".encode() * 50 + b'"',
        )
        depths = (b'"6-3"', b'"9-9"', b'"auto"', b"[]", b'"6-3-words"', b'"\\u0000"', b"1.5")
        body = b'{"q": %s, "source": %s, "target": %s, "depth": %s, "budget_ms": %s, "alternatives": %s}' % (
            rng.choice(values), rng.choice((b'"fr"', b'"fr"', b'"\\ud800"', b"3")),
            rng.choice((b'"en"', b'"en"', b'"\\udfff"')),
            rng.choice(depths), rng.choice((b"1", b"-1", b'"x"', b"1e400", b"null")),
            rng.choice((b"0", b"3", b"99", b"-2", b'"two"', b"1.5", b"null")),
        )  # fmt: skip
    length = rng.choice((len(body),) * 6 + (len(body) + 5, 0, -1, 10**12))
    head = [
        f"{method} {rng.choice(ROUTES)} HTTP/1.{rng.choice('1110')}",
        "Host: x",
        f"Content-Type: {rng.choice(KINDS)}",
    ]
    if rng.random() < 0.85:
        head.append(f"Content-Length: {length}")
    elif rng.random() < 0.5:
        head.append("Transfer-Encoding: chunked")
    if rng.random() < 0.1:
        head.append(rng.choice(("X: \x01", "Bad Header", "Origin: https://evil.example", "Authorization: Bearer \xff")))
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


async def send(port: int, request: bytes) -> str:
    """The status of the answer, or how else it ended; a request that promises more body than it has is closed by us."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        writer.write_eof()
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
        return line.split()[1].decode() if line.startswith(b"HTTP/") else "closed"
    except TimeoutError:
        return "hang"
    except OSError:
        return "closed"
    finally:
        writer.close()


async def hand_made(port: int, count: int) -> Counter[str]:
    rng = random.Random(1)
    found: Counter[str] = Counter()
    waiting = iter(range(count))

    async def work() -> None:
        for _ in waiting:
            found[await send(port, by_hand(rng))] += 1

    await asyncio.gather(*(work() for _ in range(16)))
    return found


def from_the_description(port: int, examples: int) -> tuple[int, str]:
    """How many requests schemathesis made, and the end of its report."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "requests.ndjson"
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"http://127.0.0.1:{port}/openapi.json",
            "--checks", "not_a_server_error", "--max-examples", str(examples), "--seed", "1", "--mode", "all",
            "--report", "ndjson", "--report-ndjson-path", str(record), "--request-timeout", str(PATIENCE), "--no-color",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        made = record.read_text("utf-8").count('"status_code"') if record.exists() else 0
    return made, done.stdout[-1500:] + done.stderr[-500:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args()
    print_versions("schemathesis", "fastapi", "uvicorn")
    model = arguments.model or bundled_model()
    with serving(model, "--engine", "ctranslate2") as server:
        began = time.perf_counter()
        made, report = from_the_description(server.port, arguments.requests // 10)
        print(f"schemathesis: {made:,} requests\n{report}", flush=True)
        found = asyncio.run(hand_made(server.port, max(0, arguments.requests - made)))
        print(f"by hand: {sum(found.values()):,} requests: {dict(sorted(found.items()))}")
        failed = sum(count for status, count in found.items() if status.startswith("5"))
        print(f"server errors by hand: {failed}, hangs: {found['hang']}")
        print(f"{time.perf_counter() - began:.0f} s; the server is still up: {server.process.poll() is None}")


if __name__ == "__main__":
    main()

"""A real server on loopback, in a process of its own."""

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import forked
import httpx
from conftest import running


class Served:
    def __init__(self, process: "forked.Process | subprocess.Popen[bytes]", said: TextIO) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = ""
        for line in said:
            self.lines.append(line)
            if found := re.match(r"(http://\S+/) ", line):
                self.url = found[1].rstrip("/")
                break
        self._begun = len(self.lines)
        assert self.url, "".join(self.lines)
        self.reader = threading.Thread(target=lambda: self.lines.extend(said), daemon=True)
        self.reader.start()
        self.client = httpx.Client(base_url=self.url, timeout=1000)

    def post(self, route: str, **fields: object) -> httpx.Response:
        return self.client.post(route, json=fields)

    def translate(self, q: object, **fields: object) -> httpx.Response:
        return self.post("/translate", **{"q": q, "source": "fr", "target": "en", **fields})

    def log(self) -> list[dict]:
        """All that it has written since it serves; a line that is not JSON is an error."""
        return [json.loads(line) for line in self.lines[self._begun :]]

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait()
        self.reader.join()
        return code


@contextmanager
def serving(model: Path, *options: object) -> Iterator[Served]:
    ours, theirs = os.pipe()
    with open(ours, encoding="utf-8") as said:
        with running("serve", model, "--port", 0, "--timeout", 1000, *options, stderr=theirs) as process:
            os.close(theirs)
            served = Served(process, said)
            yield served
        served.reader.join()  # it reads until the server has ended

"""A static server on loopback that holds the model's file back until a test lets go of it, or cuts it off."""

import re
import socket
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path


class GatedSite:
    def __init__(self, folder: Path, first: float, ranges: bool = False, port: int = 0) -> None:
        """`first` is the share of the model's file that is sent before the gate; `ranges`: it can send parts."""
        self.first, self.ranges = first, ranges
        self.gate, self.cuts = threading.Event(), 0.0  # connections that are still to be cut
        self.asked: list[str | None] = []  # the ranges that were asked for, of the model's file
        self.held, self.release = threading.Event(), threading.Event()  # of the address /hold
        self._server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, self, folder))
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def cut(self, times: float = inf) -> None:
        """Close connections at the gate, now and later: so many, or all until `mend`."""
        self.cuts = times
        self.gate.set()

    def mend(self) -> None:
        self.cuts = 0.0

    def stop(self) -> None:
        self.gate.set()
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, site: GatedSite, folder: Path, *arguments: object) -> None:
        self.site = site
        super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path == "/hold":
            self.site.held.set()
            self.site.release.wait()
        if self.path.startswith("/model.anydepth"):
            asked = self.headers.get("Range")
            self.site.asked.append(asked)
            if asked and self.site.ranges:
                return self._send_rest(int(re.fullmatch(r"bytes=(\d+)-", asked).group(1)))  # type: ignore[union-attr]
        super().do_GET()

    def _send_rest(self, start: int) -> None:
        data = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self._send_through_gate(data, start, self.wfile)

    def copyfile(self, source, outputfile) -> None:  # type: ignore[no-untyped-def]
        data = source.read()
        if self.path.startswith("/model.anydepth"):
            self._send_through_gate(data, 0, outputfile)
        else:
            outputfile.write(data)

    def _send_through_gate(self, data: bytes, start: int, outputfile) -> None:  # type: ignore[no-untyped-def]
        first = max(start, int(self.site.first * len(data)))
        outputfile.write(data[start:first])
        outputfile.flush()
        self.site.gate.wait()
        if self.site.cuts > 0:
            self.site.cuts -= 1
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            outputfile.write(data[first:])

    def log_message(self, *arguments: object) -> None:
        pass

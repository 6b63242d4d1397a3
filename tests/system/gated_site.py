"""A static server on loopback that holds the model's file back until a test lets go of it."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class GatedSite:
    def __init__(self, folder: Path, first: float) -> None:
        """`first` is the share of the model's file that is sent before the gate."""
        self.gate = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self, folder, first))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, site: GatedSite, folder: Path, first: float, *arguments: object) -> None:
        self.site, self.first = site, first
        super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

    def copyfile(self, source, outputfile) -> None:  # type: ignore[no-untyped-def]
        data = source.read()
        if self.path.startswith("/model.anydepth"):
            first = int(self.first * len(data))
            outputfile.write(data[:first])
            outputfile.flush()
            self.site.gate.wait()
            data = data[first:]
        outputfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass

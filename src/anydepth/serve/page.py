"""The page at `/`: the files of the web export, and the model for it, which it runs in the browser where it can."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from anydepth.artifact.weights import FileWeights, StoredWeights
from anydepth.data.tokenizer import PretrainedTokenizer
from anydepth.engines.packed import PACKING
from anydepth.engines.shortlist import NAME as SHORTLIST
from anydepth.errors import UserError
from anydepth.export.runtime import build_runtime_file
from anydepth.export.web import ABOUT, MEDIA_TYPES, MODEL_FILE, describe_in_tab, read_page_files
from anydepth.infer.translator import Translator
from anydepth.serve.schemas import ApiError

log = logging.getLogger(__name__)

LARGEST = 100_000_000  # parameters, or bytes of a model file: a larger model is left to the server
INDEX = "index.html"


class ModelForTab:
    """The model file that the page runs, made when it is first asked for. `about` is None where it cannot run there."""

    def __init__(self, translator: Translator) -> None:
        self.translator, self._making = translator, asyncio.Lock()
        self._data: bytes | None = None
        self.about = self._describe()

    def _describe(self) -> dict[str, Any] | None:
        loaded, weights = self.translator.loaded, self.translator.loaded.weights
        if isinstance(loaded.tokenizer, PretrainedTokenizer):
            return None
        if isinstance(weights, FileWeights):
            size, version = weights.file.path.stat().st_size, _checksum(weights.file.path.read_bytes())
        elif isinstance(weights, StoredWeights):
            size, version = weights.parameters(self.translator.menu[None].subnetwork), self._version()
        else:
            return None
        try:
            return describe_in_tab(self.translator, None, version) if size <= LARGEST else None
        except UserError as error:
            log.info("the page runs on the server: %s", error)
            return None

    def _version(self) -> str:
        """Of all that the file is made of."""
        parts = [self.translator.fingerprint, PACKING, self.translator.menu.whole.to_json()]
        shortlist = None if self.translator.folder is None else self.translator.folder / SHORTLIST
        found = shortlist.read_bytes() if shortlist is not None and shortlist.is_file() else b""
        return _checksum(json.dumps(parts).encode() + found)

    async def answer(self, headers: dict[str, str]) -> Response:
        weights = self.translator.loaded.weights
        if isinstance(weights, FileWeights):
            return FileResponse(weights.file.path, media_type="application/octet-stream", headers=headers)
        async with self._making:
            if self._data is None:
                self._data = await asyncio.to_thread(build_runtime_file, self.translator)
        return Response(self._data, media_type="application/octet-stream", headers=headers)


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def add_page(app: FastAPI, describe: Callable[[], dict[str, Any]], model: ModelForTab | None) -> None:
    """Routes of the page. `describe` gives what /model says, and `model` is what may run in the browser."""
    page = read_page_files()
    about = None if model is None else model.about

    def add_file(name: str, data: bytes) -> None:
        @app.get("/" if name == INDEX else f"/{name}", include_in_schema=False, name=name)
        async def send() -> Response:
            return Response(data, headers={"Content-Type": MEDIA_TYPES[name], "Cache-Control": "no-cache"})

    for name, data in page.items():
        add_file(name, data)

    @app.get(f"/{ABOUT}", include_in_schema=False)
    async def send_about() -> Response:
        return JSONResponse(describe() | {"in_tab": about}, headers={"Cache-Control": "no-cache"})

    @app.get(f"/{MODEL_FILE}", include_in_schema=False)
    async def send_model(request: Request) -> Response:
        if model is None or about is None:
            raise ApiError(404, "this server does not give its model away")
        keep = "max-age=31536000, immutable" if request.url.query else "no-cache"  # its address names the version
        return await model.answer({"Cache-Control": keep})

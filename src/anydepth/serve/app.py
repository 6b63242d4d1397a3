"""The routes."""

import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from anydepth import __version__
from anydepth.serve.classifying import Classifying
from anydepth.serve.documentation import DESCRIPTION, ClassifyAnswer, TranslateAnswer, body_of, errors
from anydepth.serve.errors import ApiError
from anydepth.serve.handlers import AUTO_SOURCE, Translating
from anydepth.serve.metrics import Metrics
from anydepth.serve.monitoring import HANDLERS, Watching, error_response
from anydepth.serve.queue import Queue
from anydepth.serve.schemas import (
    ClassifyRequest,
    DetectRequest,
    StreamRequest,
    TranslateRequest,
    read_fields,
    text_field,
    texts_of,
)
from anydepth.serve.settings import Settings
from anydepth.serve.workers import Workers

CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
)


def make_app(work: Translating | Classifying, workers: Workers, settings: Settings) -> FastAPI:
    """The application around a model that is loaded."""
    metrics = Metrics()
    queue = Queue(workers, metrics, settings.batch_size, settings.limits.waiting)
    work.attach(queue, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await workers.get_ready()
        yield
        await queue.drain()
        workers.close()

    app = FastAPIOffline(
        title="anydepth",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        exception_handlers=HANDLERS | {HTTPException: _on_http_error},
    )
    _add_common_routes(app, work, metrics, settings)
    if isinstance(work, Translating):
        _add_translation(app, work, settings)
    else:
        _add_classification(app, work, settings)
    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    app.add_middleware(Watching, metrics=metrics, routes=routes)
    return app


def _add_common_routes(app: FastAPI, work: Translating | Classifying, metrics: Metrics, settings: Settings) -> None:
    page = files("anydepth.serve").joinpath("page.html").read_text("utf-8")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def show_page() -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": CONTENT_POLICY})

    @app.get("/health", summary="Whether it is up", tags=["server"])
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Figures for Prometheus", tags=["server"], response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/model", summary="Depths, what they cost and give, and limits", tags=["server"])
    async def model() -> dict[str, Any]:
        return work.about() | {"version": __version__, "key_required": bool(settings.api_keys)}


def _add_translation(app: FastAPI, work: Translating, settings: Settings) -> None:
    limits = settings.limits
    pairs = work.translator.pairs
    choices = {
        "source": [*dict.fromkeys(pair.source for pair in pairs), AUTO_SOURCE],
        "target": list(dict.fromkeys(pair.target for pair in pairs)),
        "depth": work.translator.menu.names,
    }

    @app.get("/languages", summary="Supported languages", tags=["LibreTranslate"])
    async def languages() -> list[dict[str, Any]]:
        return work.languages()

    @app.get("/frontend/settings", summary="What LibreTranslate's clients ask for", tags=["LibreTranslate"])
    async def frontend_settings() -> dict[str, Any]:
        return work.frontend_settings() | {"apiKeys": bool(settings.api_keys), "keyRequired": bool(settings.api_keys)}

    @app.post(
        "/translate",
        summary="Translate a text or several",
        tags=["LibreTranslate"],
        openapi_extra=body_of(TranslateRequest, **choices),
        response_model=TranslateAnswer,
        responses=errors(400, 403, 408, 413, 415, 429, 503),
    )
    async def translate(request: Request) -> Response:
        began = time.perf_counter()
        fields = await read_fields(request, limits)
        _check_key(request, fields, settings)
        return JSONResponse(await work.translate(request, fields, began))

    @app.post(
        "/translate_stream",
        summary="Translate a text, sentence by sentence, a JSON object per line",
        tags=["anydepth"],
        openapi_extra=body_of(StreamRequest, **choices),
        responses=errors(400, 403, 408, 413, 415, 429),
    )
    async def translate_stream(request: Request) -> Response:
        began = time.perf_counter()
        fields = await read_fields(request, limits)
        _check_key(request, fields, settings)
        return await work.stream(request, fields, began)

    @app.post(
        "/detect",
        summary="The model's source language; nothing is detected",
        tags=["LibreTranslate"],
        openapi_extra=body_of(DetectRequest),
        responses=errors(400, 403, 408, 413, 415),
    )
    async def detect(request: Request) -> list[dict[str, Any]]:
        fields = await read_fields(request, limits)
        _check_key(request, fields, settings)
        texts_of(fields, limits)
        return work.detected()


def _add_classification(app: FastAPI, work: Classifying, settings: Settings) -> None:
    @app.post(
        "/classify",
        summary="Classify a text or several",
        tags=["anydepth"],
        openapi_extra=body_of(ClassifyRequest),
        response_model=ClassifyAnswer,
        responses=errors(400, 403, 408, 413, 415, 429, 503),
    )
    async def classify(request: Request) -> Response:
        began = time.perf_counter()
        fields = await read_fields(request, settings.limits)
        _check_key(request, fields, settings)
        return JSONResponse(await work.classify(request, fields, began))


def _check_key(request: Request, fields: dict[str, Any], settings: Settings) -> None:
    if not settings.api_keys:
        return
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    given = [text_field(fields, "api_key"), token.strip() if kind.lower() == "bearer" else None]
    sent = [one.encode("utf-8", "replace") for one in given if one]
    if not sent:
        raise ApiError(403, "This server wants an API key: send api_key, or a bearer token")
    digests = [hmac.compare_digest(one, key.encode()) for one in sent for key in settings.api_keys]
    if not any(digests):
        raise ApiError(403, "Invalid API key")


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    """No such route, or not this method."""
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, str(error.detail), dict(error.headers or {}))

"""The application: routes, API keys, and the answer to each kind of error."""

import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from anydepth import __version__
from anydepth.errors import UserError
from anydepth.serve.handlers import AUTO_SOURCE, ClassificationHandler, TranslationHandler
from anydepth.serve.monitoring import CLIENT_CLOSED, Metrics, MonitoringMiddleware
from anydepth.serve.page import ModelForTab, add_page
from anydepth.serve.queue import Queue
from anydepth.serve.schemas import (
    ApiError,
    ClassifyAnswer,
    ClassifyRequest,
    DisconnectedError,
    ServerSettings,
    StreamRequest,
    TextRequest,
    TranslateAnswer,
    TranslateRequest,
    describe_body,
    describe_errors,
    error_response,
    parse_request,
    read_fields,
)
from anydepth.serve.workers import Workers

Handler = TranslationHandler | ClassificationHandler

DESCRIPTION = (
    "Translation at any depth. `/translate`, `/languages`, `/detect` and `/health` are those of LibreTranslate, "
    'so that its clients work as they are; `depth` and `budget_ms` are ours. Errors are `{"error": "..."}`.'
)


def make_app(handler: Handler, workers: Workers, settings: ServerSettings) -> FastAPI:
    """The application for a model that is loaded."""
    metrics = Metrics()
    queue = Queue(workers, metrics, settings.batch_size, settings.limits.waiting)
    handler.attach(queue, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await workers.start()
        yield
        await queue.drain()
        workers.close()

    app = FastAPIOffline(
        title="anydepth",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        exception_handlers=ERROR_HANDLERS,
    )
    _add_common_routes(app, handler, metrics, settings)
    if isinstance(handler, TranslationHandler):
        _add_translation(app, handler, settings)
    else:
        _add_classification(app, handler, settings)
    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    app.add_middleware(MonitoringMiddleware, metrics=metrics, routes=routes)
    return app


def _add_common_routes(app: FastAPI, handler: Handler, metrics: Metrics, settings: ServerSettings) -> None:
    def describe() -> dict[str, Any]:
        return handler.describe() | {"version": __version__, "key_required": bool(settings.api_keys)}

    # Where a key is needed, the model is not given away either.
    in_tab: ModelForTab | None = None
    if isinstance(handler, TranslationHandler) and not settings.api_keys:
        in_tab = ModelForTab(handler.translator)
    add_page(app, describe, in_tab)

    @app.get("/health", summary="Whether it is up", tags=["server"])
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Metrics for Prometheus", tags=["server"], response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/model", summary="Depths with their cost and quality, and limits", tags=["server"])
    async def model() -> dict[str, Any]:
        return describe()


def _add_translation(app: FastAPI, handler: TranslationHandler, settings: ServerSettings) -> None:
    pairs = handler.translator.pairs
    choices = {
        "source": [*dict.fromkeys(pair.source for pair in pairs), AUTO_SOURCE],
        "target": list(dict.fromkeys(pair.target for pair in pairs)),
        "depth": handler.translator.menu.names,
    }

    @app.get("/languages", summary="Supported languages", tags=["LibreTranslate"])
    async def languages() -> list[dict[str, Any]]:
        return handler.languages()

    @app.get("/frontend/settings", summary="Settings that LibreTranslate's clients ask for", tags=["LibreTranslate"])
    async def frontend_settings() -> dict[str, Any]:
        return handler.frontend_settings() | {
            "apiKeys": bool(settings.api_keys),
            "keyRequired": bool(settings.api_keys),
        }

    @app.post(
        "/translate",
        summary="Translate a text or several",
        tags=["LibreTranslate"],
        openapi_extra=describe_body(TranslateRequest, **choices),
        response_model=TranslateAnswer,
        responses=describe_errors(400, 403, 408, 413, 415, 429, 503),
    )
    async def translate(request: Request) -> Response:
        began = time.perf_counter()
        fields = await _read_allowed(request, settings)
        return JSONResponse(await handler.translate(request, fields, began))

    @app.post(
        "/translate_stream",
        summary="Translate a text, sentence by sentence, a JSON object per line",
        tags=["anydepth"],
        openapi_extra=describe_body(StreamRequest, **choices),
        responses=describe_errors(400, 403, 408, 413, 415, 429),
    )
    async def translate_stream(request: Request) -> Response:
        began = time.perf_counter()
        fields = await _read_allowed(request, settings)
        return await handler.stream(request, fields, began)

    @app.post(
        "/detect",
        summary="The model's source language; nothing is detected",
        tags=["LibreTranslate"],
        openapi_extra=describe_body(TextRequest),
        responses=describe_errors(400, 403, 408, 413, 415),
    )
    async def detect(request: Request) -> list[dict[str, Any]]:
        parse_request(TextRequest, await _read_allowed(request, settings), settings.limits)
        return handler.detect()


def _add_classification(app: FastAPI, handler: ClassificationHandler, settings: ServerSettings) -> None:
    @app.post(
        "/classify",
        summary="Classify a text or several",
        tags=["anydepth"],
        openapi_extra=describe_body(ClassifyRequest),
        response_model=ClassifyAnswer,
        responses=describe_errors(400, 403, 408, 413, 415, 422, 429, 503),
    )
    async def classify(request: Request) -> Response:
        began = time.perf_counter()
        fields = await _read_allowed(request, settings)
        return JSONResponse(await handler.classify(request, fields, began))


async def _read_allowed(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """The fields of a request, once its API key is found to be right."""
    fields = await read_fields(request, settings.limits)
    if not settings.api_keys:
        return fields
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    given = [fields.get("api_key"), token.strip() if kind.lower() == "bearer" else None]
    sent = [one.encode("utf-8", "replace") for one in given if isinstance(one, str) and one]
    if not sent:
        raise ApiError(403, "This server requires an API key: send api_key, or a bearer token")
    digests = [hmac.compare_digest(one, key.encode()) for one in sent for key in settings.api_keys]
    if not any(digests):
        raise ApiError(403, "Invalid API key")
    return fields


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Ours, and those of the framework: no such route, or not this method."""
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, str(error.detail), error.headers)


async def _on_user_error(request: Request, error: Exception) -> JSONResponse:
    """A text or an option that the model refuses."""
    return error_response(400, f"Invalid request: {error}")


async def _on_disconnect(request: Request, error: Exception) -> JSONResponse:
    return error_response(CLIENT_CLOSED, "the client has disconnected")


ERROR_HANDLERS: dict[Any, Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
    HTTPException: _on_http_error,
    UserError: _on_user_error,
    DisconnectedError: _on_disconnect,
}

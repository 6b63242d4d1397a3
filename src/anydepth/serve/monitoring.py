"""Around every request: it is timed, counted and logged, and whatever goes wrong is said in one shape."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anydepth.data.tokenizer import encodable
from anydepth.errors import UserError
from anydepth.serve.errors import ApiError, BusyError, GoneError
from anydepth.serve.logs import LOG
from anydepth.serve.metrics import Metrics

HUNG_UP = 499  # as proxies log it; nobody receives it
OTHER = "other"
MOST_AT_ONCE = 1000  # requests; beyond that, to say no is all that can be done
RETRY_AFTER = 5  # seconds
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class Watching:
    def __init__(self, app: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes
        self._now = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), HUNG_UP
        scope.setdefault("state", {})["log"] = facts = dict[str, Any]()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        self._now += 1
        try:
            if self._now > MOST_AT_ONCE:
                busy = BusyError(RETRY_AFTER)
                await error_response(busy.status, busy.message, busy.headers)(scope, receive, sending)
            else:  # whoever asks for the head only is answered as usual; the body is not sent
                known = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
                await self.app(known, receive, sending)
        except Exception as error:
            LOG.error("failure", exc_info=error)
            if status != HUNG_UP:  # the answer has begun
                raise
            await error_response(500, "Cannot translate text: the server's log says why")(scope, receive, sending)
        finally:
            self._now -= 1
            seconds = time.perf_counter() - began
            route = scope["path"] if scope["path"] in self.routes else OTHER
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            facts |= {"method": scope["method"], "route": route, "status": status, "ms": round(1000 * seconds, 1)}
            LOG.info("request", extra=facts)


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": encodable(message)}, status, headers)


async def on_api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error_response(error.status, error.message, error.headers)


async def on_gone(request: Request, error: Exception) -> JSONResponse:
    return error_response(HUNG_UP, "the client has hung up")


async def on_user_error(request: Request, error: Exception) -> JSONResponse:
    """What a text or an option is refused with by what runs it."""
    return error_response(400, f"Invalid request: {error}")


HANDLERS: dict[Any, Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
    ApiError: on_api_error,
    GoneError: on_gone,
    UserError: on_user_error,
}

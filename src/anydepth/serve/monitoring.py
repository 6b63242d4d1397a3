"""What an operator sees of a server: a JSON line per request on standard error, and metrics for Prometheus.

Neither ever holds the texts themselves, and no metric has a label that a client could make up.
"""

import logging
import sys
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anydepth.serve.schemas import BusyError, error_response

log = logging.getLogger(__name__)

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
CLIENT_CLOSED = 499  # as proxies log it; nobody receives it
OTHER_ROUTE = "other"
MOST_AT_ONCE = 1000  # requests; more are refused at once
RETRY_AFTER = 5  # seconds
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
FAILURE = "Cannot translate text: the server's log says why"


def configure_logging(level: str) -> None:
    """From now on, every message of the server and its libraries is a line of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(
            "{asctime}{levelname}{message}",
            style="{",
            reserved_attrs=[*RESERVED_ATTRS, "color_message"],
            rename_fields={"asctime": "time", "levelname": "level", "message": "event"},
        )
    )
    for name in ("anydepth", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False


class Metrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter("anydepth_requests", "Requests answered.", ["route", "status"], registry=registry)
        self.seconds = Histogram(
            "anydepth_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, registry=registry
        )
        self.texts = Counter("anydepth_texts", "Sentences or texts run, by depth.", ["depth"], registry=registry)
        self.characters = Counter("anydepth_characters", "Characters received.", registry=registry)
        self.cancelled = Counter("anydepth_cancelled", "Requests whose client disconnected.", registry=registry)
        self.waiting = Gauge("anydepth_waiting", "Sentences in the queue.", registry=registry)
        self.batch_size = Histogram("anydepth_batch_size", "Sentences run together.", buckets=SIZES, registry=registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class MonitoringMiddleware:
    """Around every request: times, counts and logs it, and answers for whatever fails unexpectedly."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), CLIENT_CLOSED
        scope.setdefault("state", {})["log"] = facts = dict[str, Any]()

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        self._running += 1
        try:
            if self._running > MOST_AT_ONCE:
                busy = BusyError(RETRY_AFTER)
                await error_response(busy.status_code, busy.detail, busy.headers)(scope, receive, send_noting_status)
            else:  # HEAD is answered as GET; uvicorn leaves out the body
                known = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
                await self.app(known, receive, send_noting_status)
        except Exception as error:
            log.error("failure", exc_info=error)
            if status != CLIENT_CLOSED:  # the answer has begun
                raise
            await error_response(500, FAILURE)(scope, receive, send_noting_status)
        finally:
            self._running -= 1
            seconds = time.perf_counter() - began
            route = scope["path"] if scope["path"] in self.routes else OTHER_ROUTE
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            facts |= {"method": scope["method"], "route": route, "status": status, "ms": round(1000 * seconds, 1)}
            log.info("request", extra=facts)

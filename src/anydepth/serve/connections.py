"""Connections of clients that never come to the point: the head of a request has a limit, in bytes and in seconds."""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

LARGEST_HEAD = 64 * 1024  # bytes
REASONS = {408: "Request Timeout", 431: "Request Header Fields Too Large"}


def protocol(seconds: float) -> type[asyncio.Protocol]:
    """What uvicorn speaks, with these limits."""

    class Limited(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """`cycle` is uvicorn's name for the request that is under way: there is a new one when its head is complete."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head, self._timer = 0, asyncio.get_running_loop().call_later(seconds, self._late)

        def data_received(self, data: bytes) -> None:
            before, waits = self.cycle, self.cycle is None or self.cycle.response_complete
            self._head += len(data) if waits else 0
            super().data_received(data)
            if self.cycle is not before:
                self._timer.cancel()
                self._head = 0
            elif waits and self._head > LARGEST_HEAD:
                self._refuse(431, f"Invalid request: the headers exceed {LARGEST_HEAD} bytes")
            elif waits and self._timer.cancelled():
                self._timer = asyncio.get_running_loop().call_later(seconds, self._late)

        def connection_lost(self, error: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(error)

        def _late(self) -> None:
            if self._head:
                self._refuse(408, f"The request was not sent within {seconds:g} seconds")
            else:
                self.transport.close()

        def _refuse(self, status: int, message: str) -> None:
            body = json.dumps({"error": message}).encode()
            head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n"
            self.transport.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            self.transport.close()

    return Limited

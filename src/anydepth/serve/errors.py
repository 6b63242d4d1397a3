"""What a client is told when it cannot have what it asked for, in LibreTranslate's shape: {"error": "..."}."""


class ApiError(Exception):
    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class BusyError(ApiError):
    """The queue is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(429, "Slow down: too many requests are waiting", {"Retry-After": str(retry_after)})


class LateError(ApiError):
    """The client is too slow."""

    def __init__(self, seconds: float) -> None:
        super().__init__(408, f"The request was not sent within {seconds:g} seconds", {"Connection": "close"})


class SlowError(ApiError):
    def __init__(self, seconds: float) -> None:
        super().__init__(503, f"Not ready within {seconds:g} seconds: try less text or another depth")


class GoneError(Exception):
    """The client has hung up: there is nobody to answer."""

"""A JSON line per request on standard error: what was asked for and how it went, never the texts themselves."""

import logging
import sys

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

LOG = logging.getLogger("anydepth.server")


def set_up(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(
            "{asctime}{levelname}{message}",
            style="{",
            reserved_attrs=[*RESERVED_ATTRS, "color_message"],
            rename_fields={"asctime": "time", "levelname": "level", "message": "event"},
        )
    )
    for logger in (LOG, logging.getLogger("uvicorn"), logging.getLogger("asyncio")):
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False

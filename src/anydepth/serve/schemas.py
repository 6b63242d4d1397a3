"""What a client may send: JSON or a form, with LibreTranslate's own words for what is missing or wrong."""

import asyncio
import json
import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request

from anydepth.serve.errors import ApiError, GoneError, LateError
from anydepth.serve.settings import Limits

HEARD_OUT = 16  # times the allowed size
JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"


class StreamRequest(BaseModel):
    """The fields of LibreTranslate, and depth and budget_ms."""

    model_config = ConfigDict(json_schema_extra={"example": {"q": "Où est la gare ?", "source": "fr", "target": "en"}})

    q: str = Field(description="A text.")
    source: str = Field(description="Language code, or auto where the model has one source language.")
    target: str = Field(description="Language code.")
    format: str = Field("text", description="text; html is not supported.")
    api_key: str | None = Field(None, description="If the server wants one; or as a bearer token.")
    depth: str | None = Field(None, description="Such as 6-2, or auto for the model's selector.")
    budget_ms: float | None = Field(None, gt=0, description="The best depth within this time per sentence.")


class TranslateRequest(StreamRequest):
    q: str | list[str] = Field(description="A text, or several.")  # type: ignore[assignment]
    alternatives: int = Field(0, ge=0, description="How many other translations to give, at most.")


class ClassifyRequest(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"q": "a truly terrible thriller", "words": True}})

    q: str | list[str] = Field(description="A text, or several.")
    depth: str | None = Field(None, description="Such as 6-0; by default that of the model.")
    scale: float | None = Field(None, gt=0, description="Where each word has its own depth: all deeper or shallower.")
    words: bool = Field(False, description="Give the depth of each word.")
    api_key: str | None = None


class DetectRequest(BaseModel):
    q: str = Field(min_length=1)
    api_key: str | None = None


async def read_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """The fields of a request, as they came; a form has strings only. What is in the address counts, too."""
    return {**request.query_params, **await _fields_of_body(request, limits)}


async def _fields_of_body(request: Request, limits: Limits) -> dict[str, Any]:
    try:
        async with asyncio.timeout(limits.sending):
            body = await _body(request, limits.body)
    except TimeoutError:
        raise LateError(limits.sending) from None
    except ClientDisconnect:
        raise GoneError from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in (FORM, MULTIPART):
        return await _form(request, body)
    if not body:
        return {}
    if kind == JSON or kind.endswith("+json"):
        try:
            fields = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise ApiError(400, "Invalid JSON format") from None
        if not isinstance(fields, dict):
            raise ApiError(400, "Invalid JSON format")
        return fields
    raise ApiError(415, f"Invalid request: send {JSON} or {FORM}")


async def _body(request: Request, most: int) -> bytes:
    """Never more in memory than is allowed. Somewhat more is still read, and thrown away: a client that is cut off
    while it sends does not see the answer."""
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            body += chunk
        elif size > HEARD_OUT * most:
            break
    if size > most:
        raise ApiError(413, f"Invalid request: the body exceeds {most} bytes", {"Connection": "close"})
    return bytes(body)


async def _form(request: Request, body: bytes) -> dict[str, Any]:
    async def again() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        form = await Request(request.scope, again).form(max_files=0, max_fields=1000)
    except (MultiPartException, HTTPException):
        raise ApiError(400, "Invalid request: the form cannot be read") from None
    fields: dict[str, Any] = {}
    for name, value in form.multi_items():
        fields[name] = value
    texts = form.getlist("q")
    return fields | ({"q": texts} if len(texts) > 1 else {})


def texts_of(fields: dict[str, Any], limits: Limits) -> tuple[list[str], bool]:
    """The texts to work on, and whether they came as a list."""
    q = fields.get("q")
    if not q or (isinstance(q, list) and not all(isinstance(text, str) for text in q)):
        raise ApiError(400, "Invalid request: missing q parameter")
    if not isinstance(q, str | list):
        raise ApiError(400, "Invalid request: q parameter is not a text")
    texts = [q] if isinstance(q, str) else q
    if len(texts) > limits.texts:
        raise ApiError(400, f"Invalid request: request ({len(texts)}) exceeds batch limit ({limits.texts})")
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise ApiError(400, f"Invalid request: request ({characters}) exceeds text limit ({limits.characters})")
    return texts, isinstance(q, list)


def text_field(fields: dict[str, Any], name: str, required: bool = False) -> str | None:
    value = fields.get(name)
    if value is None or value == "":
        if required:
            raise ApiError(400, f"Invalid request: missing {name} parameter")
        return None
    if not isinstance(value, str):
        raise ApiError(400, f"Invalid request: {name} parameter is not a text")
    return value


def number_field(fields: dict[str, Any], name: str, positive: bool = False) -> float | None:
    value = fields.get(name)
    if value is None or value == "":
        return None
    wrong = ApiError(400, f"Invalid request: {name} parameter is not a number")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise wrong from None
    if not math.isfinite(number):
        raise wrong
    if positive and number <= 0:
        raise ApiError(400, f"Invalid request: {name} parameter must be above 0")
    return number


def flag_field(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if isinstance(value, str):
        return value.strip().lower() in ("1", "true", "yes", "on")
    if not isinstance(value, bool | None):
        raise ApiError(400, f"Invalid request: {name} parameter is not true or false")
    return bool(value)


def alternatives_of(fields: dict[str, Any], limits: Limits) -> int:
    number = number_field(fields, "alternatives")
    if number is None:
        return 0
    if number < 0 or number != int(number):
        raise ApiError(400, "Invalid request: alternatives parameter is not a number")
    if number > limits.alternatives:
        raise ApiError(400, f"Invalid request: alternatives ({number:g}) exceeds limit ({limits.alternatives})")
    return int(number)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")

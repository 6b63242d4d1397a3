"""What a server takes and gives: its settings, the fields of requests, the shapes of answers, and errors.

Bodies are JSON or a form. Their fields are checked by pydantic models, which also describe them at /docs; what is
missing or wrong is said in LibreTranslate's own words.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from anydepth.data.tokenizer import encodable

DISCARDED = 16  # times the allowed size: how much of a body that is too large is still read
JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"


def _refuse_flag(value: Any) -> Any:
    """JSON's true is not the number 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("float_type", "a flag is not a number")
    return value


NotFlag = BeforeValidator(_refuse_flag)
JsonCount = Annotated[int, Field(ge=0), NotFlag]
JsonFinite = Annotated[float, Field(allow_inf_nan=False), NotFlag]
JsonPositive = Annotated[float, Field(gt=0, allow_inf_nan=False), NotFlag]


# Settings


@dataclass(frozen=True)
class RequestLimits:
    """What one request may ask for, and how much may wait."""

    characters: int = 20_000  # in all texts of a request
    texts: int = 200  # in a list
    sentence: int = 128  # subwords; longer sentences are split, as models have rarely seen such in training
    alternatives: int = 5
    body: int = 1 << 20  # bytes
    seconds: float = 60.0  # to answer a request
    sending: float = 10.0  # seconds for a client to send its request
    waiting: int = 2_000  # sentences in the queue; requests beyond that are refused


@dataclass(frozen=True)
class ServerSettings:
    batch_size: int = 32
    beam: int = 1
    depth: str | None = None  # for requests that name none; None is the model's default
    budget: float | None = None  # seconds per sentence, likewise
    limits: RequestLimits = field(default_factory=RequestLimits)
    api_keys: frozenset[str] = frozenset()
    origins: tuple[str, ...] = ()  # other sites whose pages may call the API (CORS)


# Errors


class ApiError(HTTPException):
    """Becomes an answer in LibreTranslate's shape: {"error": "..."}."""


class BusyError(ApiError):
    """The queue is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(429, "Slow down: too many requests are waiting", {"Retry-After": str(retry_after)})


class SendTimeoutError(ApiError):
    """The client took too long to send its request."""

    def __init__(self, seconds: float) -> None:
        super().__init__(408, f"The request was not sent within {seconds:g} seconds", {"Connection": "close"})


class AnswerTimeoutError(ApiError):
    """The model took too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(503, f"Not ready within {seconds:g} seconds: try less text or another depth")


class DisconnectedError(Exception):
    """The client has closed the connection: there is nobody to answer."""


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": encodable(message)}, status, headers)


# Requests


class TextRequest(BaseModel):
    """What every request has."""

    q: str | list[str] = Field(description="A text, or several.")
    api_key: str | None = Field(None, description="If the server requires one; or send it as a bearer token.")

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q


class StreamRequest(TextRequest):
    """The fields of LibreTranslate, and depth and budget_ms."""

    model_config = ConfigDict(json_schema_extra={"example": {"q": "Bom dia!", "source": "pt", "target": "en"}})

    q: str = Field(description="A text.")
    source: str = Field(description="Language code, or auto where the model has one source language.")
    target: str = Field(description="Language code.")
    format: str = Field("text", description="text; html is not supported.")
    depth: str | None = Field(None, description="Such as 6-2, or auto for the model's selector.")
    budget_ms: JsonPositive | None = Field(None, description="The best depth within this time per sentence.")


class TranslateRequest(StreamRequest):
    q: str | list[str] = Field(description="A text, or several.")  # type: ignore[assignment]
    alternatives: JsonCount = Field(0, description="How many other translations to give, at most.")


class ClassifyRequest(TextRequest):
    """A field that is not here is refused."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"q": "a truly terrible thriller", "words": True}}
    )

    depth: str | None = Field(None, description="Such as 6-0; by default that of the model.")
    budget_ms: JsonPositive | None = Field(None, description="The best depth within this time per text.")
    exit: str | None = Field(None, description="confidence:0.9 or patience:2: texts leave early, at a sure exit.")
    scale: JsonPositive | None = Field(None, description="Where each word has its own depth: all deeper or shallower.")
    lambda_: JsonFinite | None = Field(None, alias="lambda", description="The same, for depths from reconstruction.")
    words: bool = Field(False, description="Give the depth of each word.")


AnyRequest = TypeVar("AnyRequest", bound=TextRequest)
# What is wrong with a field, by pydantic's name of the problem or the beginning of it.
NOT_A_NUMBER, NOT_A_TEXT = "is not a number", "is not a text"
WRONG = {"string": NOT_A_TEXT, "list": NOT_A_TEXT, "bool": "is not true or false", "greater_than": "must be above 0"}
WRONG |= dict.fromkeys(("float", "finite", "int", "greater"), NOT_A_NUMBER)


async def read_fields(request: Request, limits: RequestLimits) -> dict[str, Any]:
    """The fields of a request, unchecked, from its body and its query string; a form has strings only."""
    return {**request.query_params, **await _read_body_fields(request, limits)}


async def _read_body_fields(request: Request, limits: RequestLimits) -> dict[str, Any]:
    try:
        async with asyncio.timeout(limits.sending):
            body = await _read_body(request, limits.body)
    except TimeoutError:
        raise SendTimeoutError(limits.sending) from None
    except ClientDisconnect:
        raise DisconnectedError from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in (FORM, MULTIPART):
        return await _parse_form(request, body)
    if not body:
        return {}
    if kind == JSON or kind.endswith("+json"):
        try:
            fields = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise ApiError(400, "Invalid JSON format") from None
        if not isinstance(fields, dict):
            raise ApiError(400, "Invalid JSON format")
        return fields
    raise ApiError(415, f"Invalid request: send {JSON} or {FORM}")


async def _read_body(request: Request, most: int) -> bytes:
    """Keeps no more than is allowed. Somewhat more is still read and discarded: a client that is cut off while it sends
    does not see the answer."""
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            body += chunk
        elif size > DISCARDED * most:
            break
    if size > most:
        raise ApiError(413, f"Invalid request: the body exceeds {most} bytes", {"Connection": "close"})
    return bytes(body)


async def _parse_form(request: Request, body: bytes) -> dict[str, Any]:
    async def again() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        form = await Request(request.scope, again).form(max_files=0, max_fields=1000)
    except (MultiPartException, HTTPException):
        raise ApiError(400, "Invalid request: the form cannot be read") from None
    fields: dict[str, Any] = dict(form.multi_items())
    texts = form.getlist("q")
    return fields | ({"q": texts} if len(texts) > 1 else {})


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def parse_request(kind: type[AnyRequest], fields: dict[str, Any], limits: RequestLimits) -> AnyRequest:
    """The fields, checked; empty ones count as left out. Messages are LibreTranslate's."""
    known = [field.alias or name for name, field in kind.model_fields.items()]
    given = {name: value for name, value in fields.items() if value not in (None, "", []) or name not in known}
    try:
        asked = kind.model_validate(given)
    except ValidationError as error:
        raise _explain(error, known) from None
    if len(asked.texts) > limits.texts:
        raise ApiError(400, f"Invalid request: request ({len(asked.texts)}) exceeds batch limit ({limits.texts})")
    characters = sum(map(len, asked.texts))
    if characters > limits.characters:
        raise ApiError(400, f"Invalid request: request ({characters}) exceeds text limit ({limits.characters})")
    return asked


def _explain(error: ValidationError, known: list[str]) -> ApiError:
    """What is wrong with the first wrong field; one that is not known comes before all others."""
    problems = error.errors()
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    name, wrong = str(problem["loc"][0]), problem["type"]
    if wrong == "extra_forbidden":
        near = get_close_matches(name, known, 1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return ApiError(422, f"Invalid request: there is no {name[:40]} parameter: {advice}")
    if wrong == "missing":
        return ApiError(400, f"Invalid request: missing {name} parameter")
    reason = WRONG.get(wrong) or WRONG.get(wrong.partition("_")[0], "is wrong")
    return ApiError(400, f"Invalid request: {name} parameter {reason}")


# Answers, as /docs describes them


class ErrorAnswer(BaseModel):
    error: str = Field(description="What is wrong.")


class DetectedLanguage(BaseModel):
    language: str
    confidence: float = Field(description="0: it is the model's only source language, nothing was detected.")


class TranslateAnswer(BaseModel):
    """For a list of texts, every field but milliseconds and engine is a list, too."""

    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    depth: str | list[str] = Field(description="What ran; empty if there was nothing to translate.")
    cut: bool | list[bool] | None = Field(None, description="There if a translation did not end within the limit.")
    milliseconds: float
    engine: str


class WordAnswer(BaseModel):
    text: str
    depth: int


class LabelAnswer(BaseModel):
    label: str
    probability: float
    probabilities: dict[str, float]
    mean_depth: float
    cut: bool = Field(description="The text is longer than the model reads.")
    words: list[WordAnswer] | None = None


class OneClassified(LabelAnswer):
    depth: str
    milliseconds: float


class ManyClassified(BaseModel):
    results: list[LabelAnswer]
    depth: str
    milliseconds: float


ClassifyAnswer = OneClassified | ManyClassified

STATUSES = {
    400: "The request is invalid.",
    403: "The API key is missing or wrong.",
    408: "The client did not send it in time.",
    413: "The body is too large.",
    415: "Neither JSON nor a form.",
    422: "There is a field that is not known.",
    429: "Too many requests are waiting; Retry-After says when to try again.",
    503: "Not ready in time.",
}


def describe_body(model: type[BaseModel], **choices: list[str]) -> dict[str, Any]:
    """The shape of a body; `choices` are the values that this server's model has for some of its fields."""
    schema = model.model_json_schema()
    for name, values in choices.items():
        schema["properties"][name]["examples" if name == "depth" else "enum"] = values
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in (JSON, FORM)}}}


def describe_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": STATUSES[status], "model": ErrorAnswer} for status in statuses}

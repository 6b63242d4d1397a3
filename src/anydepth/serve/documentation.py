"""What the page at /docs says: bodies are read by hand, as JSON or a form, so that their shapes are told here."""

from typing import Any

from pydantic import BaseModel, Field

from anydepth.serve.schemas import FORM, JSON

DESCRIPTION = (
    "Translation at any depth. `/translate`, `/languages`, `/detect` and `/health` are those of LibreTranslate, "
    'so that its clients work as they are; `depth` and `budget_ms` are ours. Errors are `{"error": "..."}`.'
)


class ErrorAnswer(BaseModel):
    error: str = Field(description="What is wrong.")


class Detected(BaseModel):
    language: str
    confidence: float = Field(description="0: it is the model's only source language, nothing was detected.")


class TranslateAnswer(BaseModel):
    """For a list of texts, every field but milliseconds and engine is a list, too."""

    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detected | list[Detected] | None = None  # noqa: N815
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

MEANINGS = {
    400: "The request makes no sense.",
    403: "The API key is missing or wrong.",
    408: "The client did not send it in time.",
    413: "The body is too large.",
    415: "Neither JSON nor a form.",
    429: "Too much is waiting; Retry-After says when to come back.",
    503: "Not ready in time.",
}


def body_of(model: type[BaseModel], **choices: list[str]) -> dict[str, Any]:
    """The shape of a body; `choices` are what this server's model has for some of its fields."""
    schema = model.model_json_schema()
    for name, values in choices.items():
        schema["properties"][name]["examples" if name == "depth" else "enum"] = values
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in (JSON, FORM)}}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": MEANINGS[status], "model": ErrorAnswer} for status in statuses}

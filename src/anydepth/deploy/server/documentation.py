"""What the page at /docs says: bodies are read by hand, as JSON or a form, so that their shapes are told here."""

from typing import Any

from pydantic import BaseModel, Field

from anydepth.deploy.server.requests import FORM, JSON

DESCRIPTION = (
    "Translation at any depth. `/translate`, `/languages`, `/detect` and `/health` are those of LibreTranslate, "
    'so that its clients work as they are; `depth` and `budget_ms` are ours. Errors are `{"error": "..."}`.'
)


class ErrorAnswer(BaseModel):
    error: str = Field(description="What is wrong.")


MEANINGS = {
    400: "The request makes no sense.",
    403: "The API key is missing or wrong.",
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

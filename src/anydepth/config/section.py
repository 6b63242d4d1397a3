"""What all sections of a recipe share, and other files that are checked when they are read."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Finite = Annotated[float, Field(allow_inf_nan=False)]
Special = Literal["deepest", "mean", "shallowest"]  # word depths: that of what is no word
Unseen = Literal["deepest", "frequency", "subword"]  # and of words that the table has not


class ConfigSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, values: Any) -> Any:
        """YAML reads `yes` and `on` as true, which Python would count as 1."""
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        for name, value in values.items() if isinstance(values, dict) else ():
            field = fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation not in (bool, bool | None):
                raise ValueError(f"{name} cannot be true or false")
        return values


def did_you_mean(given: object, choices: Iterable[str]) -> str:
    """The end of a message about a misspelt name; empty if nothing is similar."""
    found = get_close_matches(str(given), list(choices), n=1)
    return f"; did you mean `{found[0]}`?" if found else ""

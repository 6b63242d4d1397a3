"""What all sections of a recipe share."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, values: Any) -> Any:
        """YAML reads `yes` and `on` as true, which Python would count as 1."""
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        for name, value in values.items() if isinstance(values, dict) else ():
            field = fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation is not bool:
                raise ValueError(f"{name} cannot be true or false")
        return values

"""All keys of a recipe: as the table in docs/recipe-keys.md and as a JSON schema, for editors to complete."""

import json
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from anydepth.config.data import CorpusConfig
from anydepth.config.recipe import Recipe


def inner_sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Those that a key may hold, in whatever they are wrapped."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from inner_sections(inner)


def fields_by_key(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """As a recipe spells them, which is not always as Python can."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def objective_name(section: type[BaseModel]) -> str:
    return str(get_args(section.model_fields["name"].annotation)[0])


def objective_sections() -> dict[str, type[BaseModel]]:
    """The section of each objective, by its name."""
    return {objective_name(kind): kind for kind in inner_sections(Recipe.model_fields["objective"].annotation)}


def _rows(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Every key below `section` as (dotted key, default, description)."""
    for name, field in fields_by_key(section).items():
        key = prefix + name
        below = list(dict.fromkeys(inner_sections(field.annotation)))
        if name == "objective":
            for kind in below:
                yield key, f"`name: {objective_name(kind)}`", " ".join((kind.__doc__ or "").split())
                yield from (row for row in _rows(kind, f"{key}.") if row[0] != "objective.name")
        elif below == [CorpusConfig] and key != "data.train":
            default = "`required`" if field.is_required() else ""
            yield key, default, f"{field.description} (keys as for data.train)"
        elif below and isinstance(field.default, list):
            yield key, f"`{field.default}`", f"{field.description}; each with:"
            yield from _rows(below[0], f"{key}.")
        elif below:
            yield from _rows(below[0], f"{key}.")
        else:
            shown: Any = "required" if field.is_required() else field.default
            yield key, f"`{shown}`", field.description or ""


def keys_as_markdown() -> str:
    lines = [
        "# Recipe keys",
        "",
        "Made by `python -m anydepth.config`.",
        "",
        "| key | default | meaning |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in _rows(Recipe, "")]
    return "\n".join(lines) + "\n"


def all_keys() -> list[str]:
    """Dotted, as `--set` takes them."""
    return [key for key, _, _ in _rows(Recipe, "")]


def keys_as_schema() -> str:
    """JSON schema of recipes, for editors that complete and check YAML."""
    schema = Recipe.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1) + "\n"

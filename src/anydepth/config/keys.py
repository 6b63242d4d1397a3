"""The table in docs/recipe-keys.md."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from anydepth.config.data import CorpusConfig
from anydepth.config.recipe import Recipe


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Those that a key may hold, in whatever they are wrapped."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)


def _rows(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Every key below `section` as (dotted key, default, description)."""
    for name, field in section.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        below = list(dict.fromkeys(_sections(field.annotation)))
        if name == "objective":
            for kind in below:
                yield (
                    key,
                    f"`name: {get_args(kind.model_fields['name'].annotation)[0]}`",
                    " ".join((kind.__doc__ or "").split()),
                )
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

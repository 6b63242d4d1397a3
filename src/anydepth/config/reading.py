"""Reads a recipe file, with changes from the command line, and says in one line what is wrong with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from anydepth.config import Recipe
from anydepth.errors import UserError
from anydepth.objectives import OBJECTIVES


class _NoDoubleKeys(yaml.SafeLoader):
    """YAML lets a key stand twice and takes the last; that hides mistakes."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise yaml.YAMLError(f"the key {twice[0]!r} stands twice in one section")
        return super().construct_mapping(node, deep)


def read_recipe(path: Path, changes: Sequence[str] = ()) -> Recipe:
    """Read a YAML recipe; `changes` are `key=value` with dotted keys, the values in YAML as well.

    Paths in the recipe are relative to where the command runs, as on any command line.
    """
    try:
        content = yaml.load(path.read_text("utf-8"), _NoDoubleKeys)  # a SafeLoader
    except FileNotFoundError:
        raise UserError(f"there is no recipe {path}: recipes/ has some to start from") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the recipe {path}: {error}") from error
    except yaml.YAMLError as error:
        raise UserError(f"the recipe {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"the recipe {path} is empty or not a mapping: start from one in recipes/")
    for change in changes:
        _apply(content, change)
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise UserError(f"recipe {path}: {_first_problem(error)}") from error


def _apply(content: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {change}: write key=value, for instance --set train.steps=2000")
    *sections, last = key.strip().split(".")
    place = content
    for section in sections:
        inner = place.setdefault(section, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {change}: {section} is not a section")
        place = inner
    try:
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"--set {change}: the value is not valid YAML") from None


def _keys_of(objective: str) -> str:
    kinds = get_args(Recipe.model_fields["objective"].annotation)
    (found,) = (kind for kind in kinds if get_args(kind.model_fields["name"].annotation)[0] == objective)
    return ", ".join(field.alias or name for name, field in found.model_fields.items() if name != "name") or "none"


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    parts = [part for part in problem["loc"] if part not in (*OBJECTIVES, "one", "several")]
    key = ".".join(str(part + 1) if isinstance(part, int) else part for part in parts)
    if any(isinstance(part, int) for part in parts):
        key += " (counted from 1)"
    others = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if problem["type"] == "union_tag_invalid":
        return f"there is no objective {problem['ctx']['tag']!r}: choose from {', '.join(OBJECTIVES)}{others}"
    if problem["type"] == "extra_forbidden" and key.startswith("objective."):
        kind = str(problem["loc"][1])
        return f"{kind} has no key {key}, it has {_keys_of(kind)}: for another objective set the whole section"
    if problem["type"] == "extra_forbidden":
        return f"there is no key {key}; docs/recipe-keys.md lists them all{others}"
    if problem["type"] == "model_type":
        return f"{key} is a section: give its keys, which docs/recipe-keys.md lists{others}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {message[0].lower()}{message[1:]}{others}" if key else f"{message}{others}"

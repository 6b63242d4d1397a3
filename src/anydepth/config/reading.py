"""Reads a recipe file, with changes from the command line, and checks it: one line says what is wrong."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from anydepth.config.keys import all_keys, fields_by_key, inner_sections, objective_name, objective_sections
from anydepth.config.objective import WordDepthsConfig
from anydepth.config.recipe import Recipe
from anydepth.config.section import did_you_mean
from anydepth.errors import UserError
from anydepth.files import read_json

TAGS = ("one", "several")  # which pydantic adds to a place where one corpus or a list of them may be
# Keys that may change when a run is resumed: how long it is and what it runs on.
CHANGEABLE = (
    "about",
    "train.steps",
    "train.threads",
    "train.device",
    "train.shard",
    "train.activation_checkpointing",
    "train.compile",
)


class _NoDuplicateKeys(yaml.SafeLoader):
    """YAML allows a key twice and takes the last, which hides mistakes."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise yaml.YAMLError(f"the key {twice[0]!r} appears twice in one section")
        return super().construct_mapping(node, deep)


def read_recipe(path: Path, changes: Sequence[str] = ()) -> Recipe:
    """Read a YAML recipe; `changes` are `key=value` with dotted keys, the values in YAML as well.

    Paths in the recipe are relative to where the command runs, as on any command line.
    """
    try:
        content = yaml.load(path.read_text("utf-8"), _NoDuplicateKeys)  # a SafeLoader
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
        raise UserError(f"recipe {path}: {_explain(error)}") from error


def _apply(content: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals or not key.strip():
        raise UserError(f"{change}: write key=value, for instance train.steps=2000")
    *sections, last = key.strip().split(".")
    place = content
    for section in sections:
        inner = place.setdefault(section, {})
        if not isinstance(inner, dict):
            raise UserError(f"{change}: {section} is not a section")
        place = inner
    try:
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"{change}: the value is not valid YAML") from None


def _explain(error: ValidationError) -> str:
    """The first problem; or a misspelt key, which may be why another is missing."""
    problems = error.errors()
    problem = problems[0]
    if problem["type"] == "missing":
        problem = next((one for one in problems if one["type"] == "extra_forbidden"), problem)
    path, section = _walk(problem["loc"])
    key = ".".join(str(part + 1) if isinstance(part, int) else part for part in path)
    if any(isinstance(part, int) for part in path):
        key += " (counted from 1)"
    others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if problem["type"] == "union_tag_invalid":
        given, names = problem["ctx"]["tag"], list(objective_sections())
        return f"there is no objective {given!r}: choose from {', '.join(names)}{did_you_mean(given, names)}{others}"
    if problem["type"] == "union_tag_not_found":
        return f"objective has no name: choose from {', '.join(objective_sections())}{others}"
    if problem["type"] == "extra_forbidden":
        return _explain_unknown_key(key, str(path[-1]), section) + others
    if problem["type"] == "model_type":
        return f"{key} is a section: give its keys, which docs/recipe-keys.md lists{others}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "literal_error":
        message += did_you_mean(problem["input"], re.findall("'([^']*)'", problem["ctx"]["expected"]))
    return f"{key}: {message[0].lower()}{message[1:]}{others}" if key else f"{message}{others}"


def _explain_unknown_key(key: str, name: str, section: type[BaseModel]) -> str:
    advice = did_you_mean(name, fields_by_key(section))
    if section in objective_sections().values():
        others = ", ".join(other for other in fields_by_key(section) if other != "name") or "none"
        advice = advice or ": for another objective set the whole section"
        return f"{objective_name(section)} has no key {key}, it has {others}{advice}"
    if not advice:
        elsewhere = next((other for other in all_keys() if other.rpartition(".")[2] == name), None)
        advice = f"; did you mean `{elsewhere}`?" if elsewhere else "; docs/recipe-keys.md lists them all"
    return f"there is no key {key}{advice}"


def _walk(location: Sequence[int | str]) -> tuple[list[int | str], type[BaseModel]]:
    """The keys and list numbers that lead to a problem, without what pydantic puts between them; and the section that
    the last key is in, or should be in."""
    path: list[int | str] = []
    section: type[BaseModel] = Recipe
    below: type[BaseModel] | None = Recipe  # the section that the keys so far lead to
    for part in location:
        if isinstance(part, int):
            path.append(part)
        elif path == ["objective"] and part in objective_sections():
            below = objective_sections()[part]
        elif below is not None and part not in TAGS:
            path.append(part)
            field = fields_by_key(below).get(part)
            section, below = below, None if field is None else next(inner_sections(field.annotation), None)
    return path, section


def check_sections(recipe: Recipe) -> None:
    """Refuse sections that do not fit together."""
    if recipe.data.max_tokens >= recipe.model.max_length:
        raise UserError("model.max_length must be larger than data.max_tokens: raise the one or lower the other")
    has_decoder = recipe.model.decoder_layers > 0
    by_mi = isinstance(recipe.objective, WordDepthsConfig) and recipe.objective.depths == "mi"
    if by_mi and not recipe.data.is_labelled:
        raise UserError(
            "mutual information needs labelled texts: for others set objective.depths to a file that `anydepth "
            "word-depths reconstruction` made"
        )
    by_word = recipe.objective.name in ("word-depths", "halting")
    if by_word and recipe.model.residual == "dlcl":
        raise UserError("words cannot have depths of their own with dense connections: set model.residual to plain")
    if by_word and recipe.train.shard:
        raise UserError(
            "train.shard needs every process to run the same layers, which depths per word do not guarantee: leave out "
            "train.shard"
        )
    if by_word and recipe.data.is_text:
        raise UserError(f"objective {recipe.objective.name} is not for masked text: give labels or translations")
    if recipe.data.is_labelled and has_decoder:
        raise UserError("labelled texts are for an encoder-only model: set model.decoder_layers to 0")
    if recipe.data.is_text and has_decoder:
        raise UserError(
            "a text without translations is for masked language modelling, which has no decoder: "
            "set model.decoder_layers to 0, or give source and target"
        )
    if recipe.data.task == "translation" and not has_decoder:
        raise UserError(
            "a model without a decoder cannot translate: give a corpus with `text`, or set model.decoder_layers"
        )


def check_same_recipe(recipe: Recipe, run: Path) -> None:
    """Refuse to resume a run with another recipe."""
    if not (run / "recipe.json").exists():
        return
    old = read_json(run / "recipe.json", f"restore it, or give another folder than {run} with out=…")
    with suppress(ValidationError):  # an earlier version had fewer keys: their defaults are what it did
        old = Recipe.model_validate(old).model_dump(mode="json")
    new = recipe.model_dump(mode="json")
    free = {*CHANGEABLE, *_moved_teacher(old, new)}
    changed = [key for key in _different_keys(old, new) if key not in free]
    if changed:
        raise UserError(
            f"{run} was started with another {', '.join(changed)}: give the same recipe to resume, or another "
            "folder with out=…"
        )


def _moved_teacher(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The path of a teacher may change, and that of its tokenizer with it, if it is the same teacher."""
    before, now = (recipe.get("teacher") or {"model": "self"} for recipe in (old, new))
    if "self" in (before["model"], now["model"]):
        return []
    brought = [recipe["data"]["tokenizer"] == teacher["model"] for recipe, teacher in ((old, before), (new, now))]
    return ["teacher.model", "data.tokenizer"] if all(brought) else ["teacher.model"]


def _different_keys(old: Any, new: Any, prefix: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*new, *(key for key in old if key not in new)]
        return [
            name
            for key in keys
            for name in _different_keys(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key)
        ]
    return [] if old == new else [prefix]

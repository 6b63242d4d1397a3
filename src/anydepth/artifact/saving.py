"""Writing a model folder, in one step; and into one that is there, what was measured of it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anydepth.artifact.card import model_card
from anydepth.artifact.folder import (
    WEIGHTS,
    WORD_DEPTHS,
    LanguagePair,
    check_files,
    choose_format,
    read_config,
    without_defaults,
)
from anydepth.config import ModelConfig
from anydepth.data.tokenizer import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.files import atomic_folder, file_sha256, write_atomically
from anydepth.tensors import write_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from anydepth.word_depths.table import TokenDepths


@dataclass(frozen=True)
class ModelContent:
    """What a model folder is made from.

    `pairs` matter where there are several, or one with a tag; `languages` then are a summary. A model that classifies
    has `labels`, and in training read `max_tokens` of a text at most.
    """

    config: ModelConfig
    tensors: "dict[str, Tensor] | Callable[[Path], None]"  # or what writes them to the file
    tokenizer: Tokenizer
    menu: DepthMenu
    languages: tuple[str, str]
    pairs: Sequence[LanguagePair] = ()
    labels: Sequence[str] = ()
    token_depths: "TokenDepths | None" = None
    max_tokens: int | None = None
    lowercase_capitals: bool = False


def save(folder: Path, content: ModelContent, facts: dict[str, Any]) -> None:
    """Write a model folder in one step. `facts` are for people only: data and recipe, shown on the card."""
    config, tokenizer, menu, rule = content.config, content.tokenizer, content.menu, content.token_depths
    pairs = (
        content.pairs if len(content.pairs) > 1 or any(pair.tag or pair.target_tag for pair in content.pairs) else ()
    )
    with atomic_folder(folder) as temporary:
        if callable(content.tensors):
            content.tensors(temporary / WEIGHTS)
        else:
            write_tensors(temporary / WEIGHTS, content.tensors)
        (temporary / tokenizer.file_name).write_bytes(tokenizer.to_bytes())
        if rule is not None:
            rule.table.save(temporary / WORD_DEPTHS)
        record: dict[str, Any] = {
            "format": choose_format(config, pairs, bool(content.labels) or rule is not None),
            "model": without_defaults(config),
            "vocabulary": tokenizer.vocabulary_size,
            "languages": list(content.languages),
        }
        if pairs:
            record["pairs"] = [_pair_record(pair) for pair in pairs]
        if content.labels:
            record |= {"labels": list(content.labels), "max_tokens": content.max_tokens}
        if content.lowercase_capitals:
            record["lowercase_capitals"] = True
        if rule is not None:
            record["words"] = {"special": rule.special, "scale": rule.scale, "lambda": rule.lambda_}
            if rule.unseen != "deepest":
                record["words"]["unseen"] = rule.unseen
        record["files"] = {path.name: file_sha256(path) for path in sorted(temporary.iterdir())}
        record["facts"] = facts
        (temporary / "config.json").write_text(_json(record), "utf-8")
        (temporary / "depths.json").write_text(_json(menu.to_json()), "utf-8")
        (temporary / "README.md").write_text(model_card(record, menu), "utf-8")


def _pair_record(pair: LanguagePair) -> dict[str, Any]:
    """What only imported models have is left out of others, which earlier versions read."""
    left_out = {"target_tag": None, "tag_last": False}
    return {key: value for key, value in asdict(pair).items() if key not in left_out or value != left_out[key]}


def is_intact(folder: Path) -> bool:
    """Whether weights and tokenizer are there as they were saved."""
    try:
        check_files(folder, read_config(folder))
    except (OSError, ValueError, UserError):
        return False
    return (folder / "depths.json").is_file()


def record_measurements(folder: Path, menu: DepthMenu) -> None:
    """Put what a sweep measured into the model's menu and on its card."""
    record = json.loads((folder / "config.json").read_text("utf-8"))
    write_atomically(folder / "depths.json", _json(menu.to_json()))
    write_atomically(folder / "README.md", model_card(record, menu.whole))


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

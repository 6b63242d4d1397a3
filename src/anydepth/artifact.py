"""The model folder: weights, config, tokenizer, depth menu and card. It has forgotten how it was trained.

config.json         format, sizes, languages, checksums of the two files below, facts for the card
model.safetensors   the weights
tokenizer.model     sentencepiece
depths.json         the depth menu with measured cost and quality
README.md           the model card
"""

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from anydepth.card import model_card
from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.files import atomic_folder, sha256_of, write_atomically
from anydepth.infer.layout import arrange_for_decoding
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.tensors import write_tensors
from anydepth.text import Tokenizer

FORMAT = 1
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.model"


def save(
    folder: Path,
    config: ModelConfig,
    tensors: dict[str, Tensor],
    tokenizer: Tokenizer,
    menu: DepthMenu,
    languages: tuple[str, str],
    facts: dict[str, Any],
) -> None:
    """Write a model folder in one step. `facts` are for people only: data and recipe, shown on the card."""
    with atomic_folder(folder) as temporary:
        write_tensors(temporary / WEIGHTS, tensors)
        (temporary / TOKENIZER).write_bytes(tokenizer.to_bytes())
        record = {
            "format": FORMAT,
            "model": config.model_dump(),
            "vocabulary": tokenizer.vocabulary_size,
            "languages": list(languages),
            "files": {name: sha256_of(temporary / name) for name in (WEIGHTS, TOKENIZER)},
            "facts": facts,
        }
        (temporary / "config.json").write_text(_json(record), "utf-8")
        (temporary / "depths.json").write_text(_json(menu.to_json()), "utf-8")
        (temporary / "README.md").write_text(model_card(record, menu), "utf-8")


def resolve(path: Path | str) -> Path:
    """The model folder that a user means by naming it or the run it came from."""
    path = Path(path)
    if (path / "config.json").is_file():
        return path
    if (path / "model" / "config.json").is_file():
        return path / "model"
    if not path.exists():
        raise UserError(f"there is no model at {path}: give a model folder or the folder of a finished run")
    if (path / "recipe.json").is_file():
        raise UserError(f"the run {path} has not finished: give its training command again and it goes on")
    raise UserError(f"{path} is not a model folder: it has no config.json")


def load(path: Path | str, device: str = "cpu") -> Translator:
    """A Translator from a model folder, or from the folder of a finished run."""
    folder = resolve(path)
    try:
        record = json.loads((folder / "config.json").read_text("utf-8"))
        _check_format(folder, record)
        for name, digest in record["files"].items():
            if sha256_of(folder / name) != digest:
                raise UserError(f"the model folder {folder} is damaged ({name} is not what was saved): copy it again")
        model = Transformer(ModelConfig(**record["model"]), record["vocabulary"])
        _load_weights(model, folder / WEIGHTS)
        tokenizer = Tokenizer.from_bytes((folder / TOKENIZER).read_bytes())
        menu = DepthMenu.from_json(json.loads((folder / "depths.json").read_text("utf-8")))
        source, target = record["languages"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, RuntimeError, ValidationError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the model folder {folder} is damaged ({reason}): copy it again") from error
    arrange_for_decoding(model.to(device).eval())
    return Translator(model, tokenizer, menu, (source, target), folder)


def record_measurements(folder: Path, menu: DepthMenu) -> None:
    """Put what a sweep measured into the model's menu and on its card."""
    record = json.loads((folder / "config.json").read_text("utf-8"))
    write_atomically(folder / "depths.json", _json(menu.to_json()))
    write_atomically(folder / "README.md", model_card(record, menu))


def _check_format(folder: Path, record: dict[str, Any]) -> None:
    if not isinstance(record, dict) or not isinstance(record.get("format"), int):
        raise UserError(f"{folder} is not an anydepth model folder: its config.json has no format number")
    if record["format"] > FORMAT:
        raise UserError(f"the model folder {folder} was written by a newer anydepth: upgrade anydepth to read it")


def _load_weights(model: Transformer, path: Path) -> None:
    tensors = load_file(path)
    expected = {name: parameter.shape for name, parameter in model.named_parameters()}
    found = {name: value.shape for name, value in tensors.items()}
    if expected != found:
        raise ValueError(f"{path.name} does not fit config.json")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

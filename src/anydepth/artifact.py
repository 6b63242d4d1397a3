"""The model folder: weights, config, tokenizer, depth menu and card. It has forgotten how it was trained.

config.json         format, sizes, languages and their pairs, checksums of the two files below, facts for the card
model.safetensors   the weights
tokenizer.model     sentencepiece
depths.json         the depth menu with measured cost and quality
README.md           the model card
selector/           the learnt choice of a depth for each sentence, where one was trained (select/selector_folder.py)
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from anydepth.card import model_card
from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.files import atomic_folder, sha256_of, write_atomically
from anydepth.infer.languages import LanguagePair
from anydepth.infer.layout import arrange_for_decoding
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.model.device import choose_device
from anydepth.select.selector_folder import load_selector
from anydepth.tensors import write_tensors
from anydepth.text import Tokenizer

FORMAT = 2  # the newest that is read; a folder has the oldest that can say what it holds
SHARING, LAYER_OPTIONS = ("encoder_shared", "decoder_shared"), ("norm", "residual", "init")  # keys that came later
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.model"
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Checksums(BaseModel):
    model_config = ConfigDict(extra="forbid")

    weights: Digest = Field(alias=WEIGHTS)
    tokenizer: Digest = Field(alias=TOKENIZER)


class FolderConfig(BaseModel):
    """What config.json holds."""

    format: int = Field(ge=1)
    model: ModelConfig
    vocabulary: int = Field(ge=4, le=1_000_000)
    languages: tuple[str, str]
    pairs: tuple[LanguagePair, ...] = ()
    files: Checksums
    facts: dict[str, Any]


def save(
    folder: Path,
    config: ModelConfig,
    tensors: dict[str, Tensor],
    tokenizer: Tokenizer,
    menu: DepthMenu,
    languages: tuple[str, str],
    facts: dict[str, Any],
    pairs: Sequence[LanguagePair] = (),
) -> None:
    """Write a model folder in one step. `facts` are for people only: data and recipe, shown on the card.

    `pairs` matter where there are several, or one with a tag; `languages` then are a summary.
    """
    told = pairs if len(pairs) > 1 or any(pair.tag for pair in pairs) else ()
    with atomic_folder(folder) as temporary:
        write_tensors(temporary / WEIGHTS, tensors)
        (temporary / TOKENIZER).write_bytes(tokenizer.to_bytes())
        record = {
            "format": _format(config, told),
            "model": _without_defaults(config),
            "vocabulary": tokenizer.vocabulary_size,
            "languages": list(languages),
            **({"pairs": [asdict(pair) for pair in told]} if told else {}),
            "files": {name: sha256_of(temporary / name) for name in (WEIGHTS, TOKENIZER)},
            "facts": facts,
        }
        (temporary / "config.json").write_text(_json(record), "utf-8")
        (temporary / "depths.json").write_text(_json(menu.to_json()), "utf-8")
        (temporary / "README.md").write_text(model_card(record, menu), "utf-8")


def _format(config: ModelConfig, pairs: Sequence[LanguagePair]) -> int:
    """Earlier versions are to call a folder newer, not damaged, whose keys they do not know."""
    plain = config.decoder_layers > 0 and all(_has_default(config, key) for key in LAYER_OPTIONS)
    return 1 if plain and not pairs else 2


def _without_defaults(config: ModelConfig) -> dict[str, Any]:
    """Where a later key has its default nothing is said of it: earlier versions do not know it, and can read that."""
    return config.model_dump(exclude={key for key in (*SHARING, *LAYER_OPTIONS) if _has_default(config, key)})


def _has_default(config: ModelConfig, key: str) -> bool:
    return bool(getattr(config, key) == ModelConfig.model_fields[key].default)


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
    inside = sorted(config.parent.name for config in path.glob("*/config.json"))
    if inside:
        raise UserError(f"{path} is not a model but has some: choose one of {', '.join(inside)} in it")
    raise UserError(f"{path} is not a model folder: it has no config.json")


def short_name(model: Path) -> str:
    """The folder's name; for the model of a run, the run's."""
    path = model.resolve()
    of_run = path.name == "model" and (path.parent / "recipe.json").exists()
    return path.parent.name if of_run else path.name


def load(path: Path | str, device: str = "cpu") -> Translator:
    """A Translator from a model folder, or from the folder of a finished run."""
    where = choose_device(device)
    folder = resolve(path)
    try:
        config = _read_config(folder)
        _check_files(folder, config)
        tensors = load_file(folder / WEIGHTS)
        _check_tensors(config, tensors)
        model = Transformer(config.model, config.vocabulary)
        model.load_state_dict(tensors, strict=False)  # a shared matrix is there once, under one of its names
        tokenizer = Tokenizer.from_bytes((folder / TOKENIZER).read_bytes())
        menu = DepthMenu.from_json(json.loads((folder / "depths.json").read_text("utf-8")))
        _check_menu(menu, config.model)
        _check_pairs(config, menu, tokenizer)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the model folder {folder} is damaged ({reason}): copy it again") from error
    arrange_for_decoding(model.to(where).eval())
    # Read when it is first asked for: one that is damaged need not stop those who name a depth.
    find_selector = partial(load_selector, folder, model, tokenizer, menu, config.files.weights)
    tag = config.pairs[0].tag if len(config.pairs) == 1 else None
    return Translator(model, tokenizer, menu, config.languages, folder, find_selector, config.pairs, tag)


def is_whole(folder: Path) -> bool:
    """Whether weights and tokenizer are there as they were saved."""
    try:
        _check_files(folder, _read_config(folder))
    except (OSError, ValueError, UserError):
        return False
    return (folder / "depths.json").is_file()


def record_measurements(folder: Path, menu: DepthMenu) -> None:
    """Put what a sweep measured into the model's menu and on its card."""
    record = json.loads((folder / "config.json").read_text("utf-8"))
    write_atomically(folder / "depths.json", _json(menu.to_json()))
    write_atomically(folder / "README.md", model_card(record, menu.whole))


def _read_config(folder: Path) -> FolderConfig:
    record = json.loads((folder / "config.json").read_text("utf-8"))
    if not isinstance(record, dict) or not isinstance(record.get("format"), int):
        raise UserError(f"{folder} is not an anydepth model folder: its config.json has no format number")
    if record["format"] > FORMAT:
        raise UserError(f"the model folder {folder} was written by a newer anydepth: upgrade anydepth to read it")
    try:
        return FolderConfig.model_validate(record)
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"config.json, {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error


def _check_files(folder: Path, config: FolderConfig) -> None:
    for name, digest in config.files.model_dump(by_alias=True).items():
        if sha256_of(folder / name) != digest:
            raise ValueError(f"{name} is not what was saved")


def _check_tensors(config: FolderConfig, tensors: dict[str, Tensor]) -> None:
    """Before any memory is taken for the model that config.json describes."""
    with torch.device("meta"):
        expected = {name: p.shape for name, p in Transformer(config.model, config.vocabulary).named_parameters()}
    if expected != {name: value.shape for name, value in tensors.items()}:
        raise ValueError(f"{WEIGHTS} does not fit config.json")
    broken = [name for name, value in tensors.items() if not torch.isfinite(value).all()]
    if broken:
        raise ValueError(f"{broken[0]} has values that are not finite numbers")


def _check_menu(menu: DepthMenu, model: ModelConfig) -> None:
    for entry in menu:
        sub = entry.subnetwork
        for layers, weights, count in (
            (sub.encoder, sub.encoder_weights, model.encoder_layers),
            (sub.decoder, sub.decoder_weights, model.decoder_layers),
        ):
            whole = all(type(layer) is int and layer < count for layer in layers) and bool(layers) == bool(count)
            if not whole or any(not math.isfinite(weight) for weight in weights or ()):
                raise ValueError(f"depth {entry.name} does not fit the model")


def _check_pairs(config: FolderConfig, menu: DepthMenu, tokenizer: Tokenizer) -> None:
    """Each has a depth, each depth and figure a pair, and a model that translates into two languages a tag for each."""
    pairs, names = config.pairs, [pair.name for pair in config.pairs]
    if len(set(names)) < len(names):
        raise ValueError("config.json, pairs: some occur twice")
    unheard = {pair for entry in menu for pair in (entry.pair, *entry.of_pairs) if pair is not None} - set(names)
    if unheard:
        raise ValueError(f"the depths are of {min(unheard)}, which is none of the model's language pairs")
    needed = config.model.decoder_layers > 0 and len({pair.target for pair in pairs}) > 1
    for pair in pairs:
        menu.of_pair(pair.name)
        if (needed and pair.tag is None) or (pair.tag is not None and tokenizer.id_of(pair.tag) is None):
            raise ValueError(f"the tokenizer has no tag for {pair.name}")


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

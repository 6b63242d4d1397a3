"""The model folder: weights, config, tokenizer, depth menu and card. It has forgotten how it was trained.

config.json         format, sizes, languages and their pairs or labels, checksums of the files below, facts for the card
model.safetensors   the weights
tokenizer.model     sentencepiece; or tokenizer.json, which came with a pre-trained encoder
depths.json         the depth menu with measured cost and quality
word-depths.json    how deep each word goes, where that is known beforehand (word_depths/table.py)
README.md           the model card
selector/           the learned choice of a depth for each sentence, where one was trained (selectors/learned.py)
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from anydepth.artifact.card import model_card
from anydepth.artifact.folder import (
    WEIGHTS,
    WORD_DEPTHS,
    FolderConfig,
    check_files,
    check_menu,
    check_pairs,
    format_of,
    make_model,
    read_config,
    without_defaults,
)
from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.device import choose_device
from anydepth.errors import UserError
from anydepth.files import atomic_folder, sha256_of, write_atomically
from anydepth.infer.classifier import Classifier
from anydepth.infer.languages import LanguagePair
from anydepth.infer.layout import arrange_for_decoding
from anydepth.infer.translator import Translator
from anydepth.selectors.learned import load_selector
from anydepth.tensors import write_tensors
from anydepth.word_depths.table import TokenDepths, WordDepths


def save(
    folder: Path,
    config: ModelConfig,
    tensors: dict[str, Tensor],
    tokenizer: Tokenizer,
    menu: DepthMenu,
    languages: tuple[str, str],
    facts: dict[str, Any],
    pairs: Sequence[LanguagePair] = (),
    labels: Sequence[str] = (),
    token_depths: TokenDepths | None = None,
    max_tokens: int | None = None,
) -> None:
    """Write a model folder in one step. `facts` are for people only: data and recipe, shown on the card.

    `pairs` matter where there are several, or one with a tag; `languages` then are a summary. A model that classifies
    has `labels`, and in training read `max_tokens` of a text at most.
    """
    told = pairs if len(pairs) > 1 or any(pair.tag for pair in pairs) else ()
    with atomic_folder(folder) as temporary:
        write_tensors(temporary / WEIGHTS, tensors)
        (temporary / tokenizer.file_name).write_bytes(tokenizer.to_bytes())
        words: dict[str, Any] = {}
        if token_depths is not None:
            token_depths.table.save(temporary / WORD_DEPTHS)
            rule = token_depths
            words = {"words": {"special": rule.special, "scale": rule.scale, "lambda": rule.lambda_}}
        record = {
            "format": format_of(config, told, bool(labels) or token_depths is not None),
            "model": without_defaults(config),
            "vocabulary": tokenizer.vocabulary_size,
            "languages": list(languages),
            **({"pairs": [asdict(pair) for pair in told]} if told else {}),
            **({"labels": list(labels), "max_tokens": max_tokens} if labels else {}),
            **words,
            "files": {path.name: sha256_of(path) for path in sorted(temporary.iterdir())},
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
    found = load_any(path, device)
    if isinstance(found, Classifier):
        raise UserError(f"{path} classifies texts: use it with `anydepth classify`, `evaluate` or `explain`")
    return found


def load_classifier(path: Path | str, device: str = "cpu") -> Classifier:
    """A Classifier from such a folder."""
    found = load_any(path, device)
    if isinstance(found, Translator):
        raise UserError(f"{path} does not classify texts: give a model that was trained on labelled ones")
    return found


def load_any(path: Path | str, device: str = "cpu") -> Translator | Classifier:
    """Whichever the folder holds."""
    where = choose_device(device)
    folder = resolve(path)
    try:
        config = read_config(folder)
        check_files(folder, config)
        tensors = load_file(folder / WEIGHTS)
        model = make_model(config, tensors)
        tokenizer = Tokenizer.from_bytes((folder / config.tokenizer).read_bytes())
        menu = DepthMenu.from_json(json.loads((folder / "depths.json").read_text("utf-8")))
        check_menu(menu, config.model)
        check_pairs(config, menu, tokenizer)
        token_depths = _token_depths(folder, config, menu, tokenizer)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, OSError) and error.filename is not None:
            reason = f"{Path(error.filename).name}: {error.strerror}"
        raise UserError(f"the model folder {folder} is damaged ({reason}): copy it again") from error
    arrange_for_decoding(model.to(where).eval())
    if config.labels:
        return Classifier(model, tokenizer, menu, config.labels, folder, token_depths, config.max_tokens)
    # Read when it is first asked for: one that is damaged need not stop those who name a depth.
    find_selector = partial(load_selector, folder, model, tokenizer, menu, config.files[WEIGHTS])
    tag = config.pairs[0].tag if len(config.pairs) == 1 else None
    return Translator(model, tokenizer, menu, config.languages, folder, find_selector, config.pairs, tag, token_depths)


def _token_depths(folder: Path, config: FolderConfig, menu: DepthMenu, tokenizer: Tokenizer) -> TokenDepths | None:
    by_word = any(entry.subnetwork.by_word for entry in menu)
    if by_word and config.words is None and not config.model.halting:
        raise ValueError("nothing says how deep each word goes")
    if config.words is None:
        return None
    rule = config.words
    found = TokenDepths(WordDepths.load(folder / WORD_DEPTHS), tokenizer, rule.special, rule.scale, rule.lambda_)
    found.check_layers(config.model.encoder_layers)
    return found


def is_whole(folder: Path) -> bool:
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

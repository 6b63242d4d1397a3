"""What config.json of a model folder holds, and whether the other files fit it."""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from anydepth.config import ModelConfig
from anydepth.data.tokenizer import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.files import file_sha256

if TYPE_CHECKING:
    from torch import Tensor

    from anydepth.model import Transformer

FORMAT = 3  # the newest that is read; a folder has the oldest that can say what it holds
# keys of the model that came later, in formats 1 (where they may be left out), 2 and 3
SHARING, LAYER_OPTIONS = ("encoder_shared", "decoder_shared"), ("norm", "residual", "init")
ENCODER_OPTIONS = (
    "norm_epsilon", "activation", "attention_dropout", "positions", "token_types", "head", "halting",
    "halting_confidence",
)  # fmt: skip
WEIGHTS, WORD_DEPTHS, TOKENIZERS = "model.safetensors", "word-depths.json", ("tokenizer.model", "tokenizer.json")
FILES = (WEIGHTS, WORD_DEPTHS, *TOKENIZERS)
# as in word_depths/table.py, which takes longer to import
Special = Literal["deepest", "mean", "shallowest"]
Unseen = Literal["deepest", "frequency", "subword"]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class LanguagePair:
    """The tag is a symbol before every source, by which a model of several target languages knows the one wanted."""

    source: str
    target: str
    tag: str | None = None

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"


class WordRule(BaseModel):
    """How the table of word depths was used in training."""

    model_config = ConfigDict(extra="forbid")

    special: Special
    scale: float = Field(gt=0, allow_inf_nan=False)
    lambda_: float | None = Field(None, alias="lambda", allow_inf_nan=False)
    unseen: Unseen = "deepest"


class FolderConfig(BaseModel):
    """What config.json holds."""

    format: int = Field(ge=1)
    model: ModelConfig
    vocabulary: int = Field(ge=4, le=1_000_000)
    languages: tuple[str, str]
    pairs: tuple[LanguagePair, ...] = ()
    labels: tuple[str, ...] = ()
    max_tokens: int | None = Field(None, ge=2)  # at which labelled texts were cut in training
    lowercase_capitals: bool = False  # a text in capitals is read in lowercase
    words: WordRule | None = None
    files: dict[str, Digest]
    facts: dict[str, Any]

    @model_validator(mode="after")
    def _files_are_all_there(self) -> "FolderConfig":
        if (
            not self.files.keys() <= set(FILES)
            or WEIGHTS not in self.files
            or len(self.files.keys() & set(TOKENIZERS)) != 1
        ):
            raise ValueError("files: checksums are not those of weights and tokenizer")
        if len(set(self.labels)) < len(self.labels) or len(self.labels) == 1:
            raise ValueError("labels: there must be several, each once")
        if (WORD_DEPTHS in self.files) != (self.words is not None):
            raise ValueError("words: the table and its rule do not come together")
        return self

    @property
    def tokenizer(self) -> str:
        return next(name for name in TOKENIZERS if name in self.files)


def choose_format(config: ModelConfig, pairs: Sequence[LanguagePair], by_word_or_label: bool) -> int:
    """Earlier versions are to call a folder newer, not damaged, whose keys they do not know."""
    if by_word_or_label or config.norm == "post" or not all(_has_default(config, key) for key in ENCODER_OPTIONS):
        return 3
    plain = config.decoder_layers > 0 and all(_has_default(config, key) for key in LAYER_OPTIONS)
    return 1 if plain and not pairs else 2


def without_defaults(config: ModelConfig) -> dict[str, Any]:
    """Where a later key has its default nothing is said of it: earlier versions do not know it, and can read that."""
    later = (*SHARING, *LAYER_OPTIONS, *ENCODER_OPTIONS)
    return config.model_dump(exclude={key for key in later if _has_default(config, key)})


def _has_default(config: ModelConfig, key: str) -> bool:
    return bool(getattr(config, key) == ModelConfig.model_fields[key].default)


def read_config(folder: Path) -> FolderConfig:
    return parse_config(read_part(folder / "config.json"), folder)


def read_part(path: Path) -> Any:
    """The content of a JSON file of the folder; what is wrong with it is said with its name."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def parse_config(record: Any, folder: Path) -> FolderConfig:
    """The content of config.json; `folder` is where it is, for messages."""
    if not isinstance(record, dict) or not isinstance(record.get("format"), int):
        export = (folder / "export.json").is_file()
        reason = (
            "it is an export for another engine, see its README" if export else "its config.json has no format number"
        )
        raise UserError(f"{folder} is not an anydepth model folder: {reason}")
    if record["format"] > FORMAT:
        raise UserError(f"the model folder {folder} was written by a newer anydepth: upgrade anydepth to read it")
    try:
        return FolderConfig.model_validate(record)
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"config.json, {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error


def check_files(folder: Path, config: FolderConfig, names: Collection[str] = FILES) -> None:
    for name, digest in config.files.items():
        if name in names and file_sha256(folder / name) != digest:
            raise ValueError(f"{name} is not what was saved")


def check_length(weights: Path) -> None:
    """Whether the file is as long as its header says: cut off, empty or missing files are found without reading it."""
    with weights.open("rb") as file:
        size, header = weights.stat().st_size, int.from_bytes(file.read(8), "little")
        tensors = json.loads(file.read(header)) if 8 + header <= size else {}
    ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
    if not ends or 8 + header + max(ends) != size:
        raise ValueError(f"{weights.name} is not as long as it says: {size:,} bytes")


def make_model(config: FolderConfig, tensors: "dict[str, Tensor]") -> "Transformer":
    """The model that config.json describes, with these weights.

    If there are far too few for it, that is found before any memory is taken. (A model on PyTorch's device `meta` would
    tell, too, but takes a second: it loads the compiler.)
    """
    import torch

    from anydepth.model import Transformer

    misfit = ValueError(f"{WEIGHTS} does not fit config.json")
    if _least_parameters(config) > sum(value.numel() for value in tensors.values()):
        raise misfit
    broken = [name for name, value in tensors.items() if not torch.isfinite(value).all()]
    if broken:
        raise ValueError(f"{broken[0]} has values that are not finite numbers")
    model = Transformer(config.model, config.vocabulary, len(config.labels))
    if {name: p.shape for name, p in model.named_parameters()} != {name: t.shape for name, t in tensors.items()}:
        raise misfit
    model.load_state_dict(tensors, strict=False)  # a shared matrix is there once, under one of its names
    return model


def _least_parameters(config: FolderConfig) -> int:
    """The matrices that every model has."""
    model = config.model
    layers = len({*model.encoder_pattern}) + len({*model.decoder_pattern})
    return config.vocabulary * model.width + layers * model.width * (4 * model.width + 2 * model.ffn)


def check_menu(menu: DepthMenu, model: ModelConfig) -> None:
    for entry in menu:
        sub = entry.subnetwork
        for layers, weights, count in (
            (sub.encoder, sub.encoder_weights, model.encoder_layers),
            (sub.decoder, sub.decoder_weights, model.decoder_layers),
        ):
            whole = all(type(layer) is int and layer < count for layer in layers) and bool(layers) == bool(count)
            if not whole or any(not math.isfinite(weight) for weight in weights or ()):
                raise ValueError(f"depth {entry.name} does not fit the model")


def check_pairs(config: FolderConfig, menu: DepthMenu, tokenizer: Tokenizer) -> None:
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
        if (needed and pair.tag is None) or (pair.tag is not None and tokenizer.symbol_id(pair.tag) is None):
            raise ValueError(f"the tokenizer has no tag for {pair.name}")

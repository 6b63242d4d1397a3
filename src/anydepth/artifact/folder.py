"""What config.json of a model folder holds, and whether the other files fit it."""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from anydepth.config import ModelConfig
from anydepth.config.section import Special, Unseen
from anydepth.data.tokenizer import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.files import file_sha256

if TYPE_CHECKING:
    from torch import Tensor

    from anydepth.model import Transformer

FORMAT = 4  # the newest that is read; a folder has the oldest that can say what it holds
# keys of the model that came later, in formats 1 (where they may be left out), 2, 3 and 4
SHARING, LAYER_OPTIONS = ("encoder_shared", "decoder_shared"), ("norm", "residual", "init")
ENCODER_OPTIONS = (
    "norm_epsilon", "activation", "attention_dropout", "positions", "token_types", "head", "halting",
    "halting_confidence",
)  # fmt: skip
TRANSLATION_OPTIONS = ("scale_embeddings", "embedding_norm", "target_positions", "output_bias")
WEIGHTS, WORD_DEPTHS, TOKENIZERS = "model.safetensors", "word-depths.json", ("tokenizer.model", "tokenizer.json")
FILES = (WEIGHTS, WORD_DEPTHS, *TOKENIZERS)
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class LanguagePair:
    """The tag is a symbol before every source, by which a model of several target languages knows the one wanted.

    Models of others may have it after the end of every source, and begin every output with a tag of the target.
    """

    source: str
    target: str
    tag: str | None = None
    target_tag: str | None = None
    tag_last: bool = False

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
    later = config.activation == "swish" or config.positions == "fairseq"
    later = later or any(pair.target_tag or pair.tag_last for pair in pairs)
    if later or not all(_has_default(config, key) for key in TRANSLATION_OPTIONS):
        return 4
    if by_word_or_label or config.norm == "post" or not all(_has_default(config, key) for key in ENCODER_OPTIONS):
        return 3
    plain = config.decoder_layers > 0 and all(_has_default(config, key) for key in LAYER_OPTIONS)
    return 1 if plain and not pairs else 2


def without_defaults(config: ModelConfig) -> dict[str, Any]:
    """Where a later key has its default nothing is said of it: earlier versions do not know it, and can read that."""
    later = (*SHARING, *LAYER_OPTIONS, *ENCODER_OPTIONS, *TRANSLATION_OPTIONS)
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
    """The model that config.json describes, with these weights."""
    import torch

    from anydepth.model import Transformer

    check_shapes(config, {name: tuple(value.shape) for name, value in tensors.items()})
    broken = [name for name, value in tensors.items() if not torch.isfinite(value).all()]
    if broken:
        raise ValueError(f"{broken[0]} has values that are not finite numbers")
    model = Transformer(config.model, config.vocabulary, len(config.labels))
    model.load_state_dict(tensors, strict=False)  # a shared matrix is there once, under one of its names
    return model


def check_shapes(config: FolderConfig, shapes: dict[str, tuple[int, ...]]) -> None:
    """Before memory is taken for the model."""
    if shapes != parameter_shapes(config.model, config.vocabulary, len(config.labels)):
        raise ValueError(f"{WEIGHTS} does not fit config.json")


def parameter_shapes(config: ModelConfig, vocabulary: int, classes: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the parameters of a `Transformer`, in the order in which PyTorch lists them."""
    width, shapes = config.width, dict[str, tuple[int, ...]]()

    def add(name: str, *shape: int, bias: bool = True) -> None:
        shapes[f"{name}.weight"] = shape
        if bias:
            shapes[f"{name}.bias"] = shape[:1]

    cross = {"cross_query": (width, width), "cross_out": (width, width), "cross_key_value": (2 * width, width)}
    own = {
        "attention_qkv": (3 * width, width),
        "attention_out": (width, width),
        "ffn_up": (config.ffn, width),
        "ffn_down": (width, config.ffn),
    }
    for stack, pattern in (("encoder", config.encoder_pattern), ("decoder", config.decoder_pattern)):
        decodes = stack == "decoder"
        if config.residual == "rezero":
            shapes[f"{stack}.scales"] = (len(pattern),)
        for layer in first_positions(pattern):
            place = f"{stack}.layers.{layer}"
            has_norms = config.norm != "none"
            for name in ("attention_norm", "ffn_norm") if has_norms else ():
                add(f"{place}.{name}", width)
            for name, shape in own.items():
                add(f"{place}.{name}", *shape)
            if decodes and has_norms:
                add(f"{place}.cross_norm", width)
            for name, shape in cross.items() if decodes else ():
                add(f"{place}.{name}", *shape)
        if config.norm != "post":
            add(f"{stack}.norm", width)
        if config.residual == "dlcl":
            sums = range(len(pattern) + 1)
            shapes |= {f"{stack}.dense.rows.{number}": (number + 1,) for number in sums}
            for number in sums:
                add(f"{stack}.dense.norms.{number}", width)
    add("target_embedding", vocabulary, width, bias=False)
    if config.share_embeddings != "all":
        add("source_embedding", vocabulary, width, bias=False)
    if config.positions == "learned":
        add("positions", config.max_length, width, bias=False)
    if config.token_types:
        add("types", config.token_types, width, bias=False)
    if config.norms_embeddings:
        add("embedding_norm", width)
    if config.target_positions:
        add("target_positions", config.max_length, width, bias=False)
        if config.norms_embeddings:
            add("target_embedding_norm", width)
    if config.head == "transform" and not classes:
        add("transform.dense", width, width)
        add("transform.norm", width)
    if config.halting:
        add("halting", config.encoder_layers, width)
    if classes:
        add("output", classes, 2 * width + 1, bias=False)
    else:
        if config.share_embeddings == "none":
            add("output", vocabulary, width, bias=False)
        if config.output_bias:
            shapes["output.bias"] = (vocabulary,)
    return shapes


def first_positions(pattern: Sequence[int]) -> list[int]:
    """Of the layers that share weights the first one each: the weights have its name."""
    return [position for position, own in enumerate(pattern) if own not in pattern[:position]]


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
        tags = [tag for tag in (pair.tag, pair.target_tag) if tag is not None]
        if (needed and not tags) or any(tokenizer.symbol_id(tag) is None for tag in tags):
            raise ValueError(f"the tokenizer has no tag for {pair.name}")

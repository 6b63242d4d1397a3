"""Encoders of the BERT family from Hugging Face checkpoints: our config, our tensors, their tokenizer.

First what such checkpoints call their parts and settings, and what they are here; then how a checkpoint is read.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.data.tokenizer import PretrainedTokenizer
from anydepth.errors import UserError
from anydepth.model.hf_translation import FAMILIES as TRANSLATION

TOKENIZER_FILE = "tokenizer.json"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
SPECIALS_ONLY = 5  # the size of the vocabulary that transformers invents where a checkpoint has none
EMBEDDING = "target_embedding.weight"
# Their names to ours.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}

T = TypeVar("T")


@dataclass(frozen=True)
class Family:
    """The names that a model type uses for the parts of layer {}, and where its positions begin."""

    query_key_value: tuple[str, str, str]
    parts: dict[str, str]  # ours to theirs
    after_padding: bool = False


BERT_QKV = (
    "encoder.layer.{}.attention.self.query",
    "encoder.layer.{}.attention.self.key",
    "encoder.layer.{}.attention.self.value",
)
BERT_PARTS = {
    "attention_out": "encoder.layer.{}.attention.output.dense",
    "attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "ffn_up": "encoder.layer.{}.intermediate.dense",
    "ffn_down": "encoder.layer.{}.output.dense",
    "ffn_norm": "encoder.layer.{}.output.LayerNorm",
}
ROBERTA = Family(BERT_QKV, BERT_PARTS, after_padding=True)
DISTILBERT = Family(
    (
        "transformer.layer.{}.attention.q_lin",
        "transformer.layer.{}.attention.k_lin",
        "transformer.layer.{}.attention.v_lin",
    ),
    {
        "attention_out": "transformer.layer.{}.attention.out_lin",
        "attention_norm": "transformer.layer.{}.sa_layer_norm",
        "ffn_up": "transformer.layer.{}.ffn.lin1",
        "ffn_down": "transformer.layer.{}.ffn.lin2",
        "ffn_norm": "transformer.layer.{}.output_layer_norm",
    },
)
FAMILIES = {
    "bert": Family(BERT_QKV, BERT_PARTS),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": DISTILBERT,
}
SUPPORTED = f"take an encoder of type {', '.join(FAMILIES)}, with absolute positions and gelu or relu"


def unsupported_reason(settings: Any) -> str | None:
    """Why an encoder with these settings cannot run here; None if it can."""
    if getattr(settings, "position_embedding_type", "absolute") != "absolute":
        return "has relative positions"
    if getattr(settings, "is_decoder", False) or getattr(settings, "add_cross_attention", False):
        return "is a decoder"
    if _activation(settings) not in ACTIVATIONS:
        return f"has the activation {_activation(settings)}"
    if FAMILIES[settings.model_type].after_padding and settings.pad_token_id is None:
        return "has no pad_token_id, after which its positions begin"
    return None


def _activation(settings: Any) -> str:
    return str(settings.activation if settings.model_type == "distilbert" else settings.hidden_act)


def convert_tensors(theirs: dict[str, Tensor], settings: Any) -> dict[str, Tensor]:
    """An encoder's tensors under our names."""
    family = FAMILIES[settings.model_type]
    first = settings.pad_token_id + 1 if family.after_padding else 0
    ours = {
        EMBEDDING: theirs["embeddings.word_embeddings.weight"],
        "positions.weight": theirs["embeddings.position_embeddings.weight"][first:],
    }
    if (types := theirs.get("embeddings.token_type_embeddings.weight")) is not None:
        ours["types.weight"] = types
    for kind in ("weight", "bias"):
        ours[f"embedding_norm.{kind}"] = theirs[f"embeddings.LayerNorm.{kind}"]
        for layer in range(settings.num_hidden_layers):
            prefix = f"encoder.layers.{layer}"
            qkv = [theirs[f"{part.format(layer)}.{kind}"] for part in family.query_key_value]
            ours[f"{prefix}.attention_qkv.{kind}"] = torch.cat(qkv)
            for our_part, their_part in family.parts.items():
                ours[f"{prefix}.{our_part}.{kind}"] = theirs[f"{their_part.format(layer)}.{kind}"]
    # Copies, so that the file can be closed and rows that were left out are freed.
    return {key: tensor.detach().float().clone() for key, tensor in ours.items()}


def make_config(name: str, settings: Any, tensors: dict[str, Tensor]) -> ModelConfig:
    """Our config for the encoder whose converted tensors these are."""
    distilbert = settings.model_type == "distilbert"
    types = tensors.get("types.weight")
    try:
        return ModelConfig.model_validate(
            {
                "width": settings.hidden_size,
                "heads": settings.num_attention_heads,
                "ffn": settings.hidden_dim if distilbert else settings.intermediate_size,
                "encoder_layers": settings.num_hidden_layers,
                "decoder_layers": 0,
                "norm": "post",
                "norm_epsilon": 1e-12 if distilbert else settings.layer_norm_eps,  # distilbert cannot set it
                "activation": ACTIVATIONS[_activation(settings)],
                "positions": "learned",
                "token_types": 0 if types is None else len(types),
                "dropout": settings.dropout if distilbert else settings.hidden_dropout_prob,
                "attention_dropout": (
                    settings.attention_dropout if distilbert else settings.attention_probs_dropout_prob
                ),
                "max_length": len(tensors["positions.weight"]),
                "share_embeddings": "all",
            }
        )
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "model"
        raise UserError(
            f"{name} has a size that anydepth does not support ({where}: {problem['msg']}): {SUPPORTED}"
        ) from error


@dataclass(frozen=True)
class Pretrained:
    """A checkpoint as it was read. Tensors have our names; embedding rows are in the checkpoint's order."""

    config: ModelConfig
    tensors: dict[str, Tensor]
    tokenizer_json: bytes
    vocabulary: int


def read_pretrained(name: Path | str) -> Pretrained:
    """Read an encoder from a folder (no network needed) or from the hub."""
    local = Path(name).exists()
    if not local:
        check_hub(str(name))
    with quiet_transformers() as transformers:
        settings = _read_settings(transformers, str(name), local)
        theirs = _read_weights(transformers, str(name), local, settings)
        tokenizer_json = _read_tokenizer(transformers, str(name), local)
    tensors = convert_tensors(theirs, settings)
    return Pretrained(make_config(str(name), settings, tensors), tensors, tokenizer_json, len(tensors[EMBEDDING]))


def check_hub(name: str) -> None:
    """A mistyped folder looks like a hub name: ask once, before the libraries retry for a long time."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
        HfApi().model_info(name, timeout=10)
    except Exception as error:  # whatever goes wrong, the advice is the same
        raise UserError(_not_there(name)) from error


def _not_there(name: str) -> str:
    return f"there is no folder {name}, and no such model on the hub: check the name and the network"


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """Import transformers, without its progress bars and warnings."""
    try:
        import huggingface_hub
        import transformers
    except ImportError as error:
        raise UserError("a checkpoint from Hugging Face needs transformers: pip install 'anydepth[bert]'") from error
    logs = (transformers.utils.logging, huggingface_hub.utils.logging)
    levels, had_bars = [log.get_verbosity() for log in logs], transformers.utils.logging.is_progress_bar_enabled()
    for log in logs:
        log.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.set_verbosity(level)
        if had_bars:
            transformers.utils.logging.enable_progress_bar()


def _attempt(read: Callable[[], T], complaint: str) -> T:
    """Transformers, safetensors and the hub share no exception type for what they cannot read."""
    try:
        return read()
    except Exception as error:
        raise UserError(complaint) from error


def _read_settings(transformers: Any, name: str, local: bool) -> Any:
    """The configuration of a supported encoder."""
    options = {"local_files_only": local, "trust_remote_code": False}
    complaint = f"{name} has no config.json with a model_type: give the folder of a Hugging Face checkpoint"
    if not local:
        complaint = _not_there(name)
    kind = _attempt(lambda: transformers.PretrainedConfig.get_config_dict(name, **options)[0]["model_type"], complaint)
    if kind in TRANSLATION:
        raise UserError(
            f"{name} is a translation model: make a model folder of it first, `anydepth import {name} --out …`"
        )
    if kind == "mpnet":
        raise UserError(f"{name} is a model of type mpnet, which has relative positions: {SUPPORTED}")
    if kind not in FAMILIES:
        raise UserError(f"{name} is a model of type {kind}: {SUPPORTED}")
    settings = _attempt(lambda: transformers.AutoConfig.from_pretrained(name, **options), complaint)
    if (reason := unsupported_reason(settings)) is not None:
        raise UserError(f"{name} {reason}: {SUPPORTED}")
    return settings


def _read_weights(transformers: Any, name: str, local: bool, settings: Any) -> dict[str, Tensor]:
    options = {} if settings.model_type == "distilbert" else {"add_pooling_layer": False}
    model, report = _attempt(
        lambda: transformers.AutoModel.from_pretrained(
            name, config=settings, local_files_only=local, output_loading_info=True, **options
        ),
        f"the weights of {name} are missing or damaged: copy the checkpoint again",
    )
    # Transformers would fill gaps with random numbers.
    if lacking := sorted(key for key in report["missing_keys"] if not key.endswith("position_ids")):
        raise UserError(f"the weights of {name} lack {lacking[0]}: take a checkpoint of the whole encoder")
    tensors: dict[str, Tensor] = model.state_dict()
    return tensors


def _read_tokenizer(transformers: Any, name: str, local: bool) -> bytes:
    """tokenizer.json as it is, or if there is none, one made from the checkpoint's other files.

    Transformers 5 rebuilds the tokenizers of these families, with defaults in place of parts of the file.
    """
    path = Path(name, TOKENIZER_FILE) if local else _download(name, TOKENIZER_FILE)
    if path is not None and path.exists():
        return path.read_bytes().strip()  # the first byte tells it from a sentencepiece file
    complaint = f"{name} has no tokenizer that the tokenizers library can read: give it a {TOKENIZER_FILE}"
    tokenizer = _attempt(
        lambda: (
            transformers.AutoTokenizer.from_pretrained(
                name, local_files_only=local, trust_remote_code=False
            ).backend_tokenizer
        ),
        complaint,
    )
    if tokenizer.get_vocab_size() <= SPECIALS_ONLY:
        raise UserError(complaint)
    written: str = tokenizer.to_str()
    return written.encode("utf-8")


def _download(name: str, file: str) -> Path | None:
    """A file of a model on the hub; None if it does not exist."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(hf_hub_download(name, file))
    except EntryNotFoundError:
        return None
    except Exception as error:  # the network has many ways to fail
        raise UserError(f"{file} of {name} cannot be downloaded from the hub: check the network") from error


def load_pretrained(name: Path | str) -> tuple[ModelConfig, dict[str, Tensor], PretrainedTokenizer]:
    """The config, tensors and tokenizer of a Hugging Face folder or hub name, with embedding rows in our token order.

    Rows without a subword, with which some checkpoints pad their tables, are left out.
    """
    found = read_pretrained(name)
    tokenizer = PretrainedTokenizer.from_bytes(found.tokenizer_json)
    if tokenizer.vocabulary_size > found.vocabulary:
        raise UserError(
            f"the tokenizer of {name} has {tokenizer.vocabulary_size} subwords, but its embedding has "
            f"{found.vocabulary} rows: take a checkpoint whose tokenizer fits"
        )
    tensors = found.tensors | {EMBEDDING: found.tensors[EMBEDDING][tokenizer.order]}
    return found.config, tensors, tokenizer


def is_pretrained(path: Path | str) -> bool:
    """Whether this is a Hugging Face folder or, if no such path exists, a possible hub name."""
    if not Path(path).exists():
        return HUB_NAME.fullmatch(str(path)) is not None
    try:
        content = json.loads(Path(path, "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "model_type" in content and not isinstance(content.get("format"), int)

"""Encoders of the BERT family from Hugging Face checkpoints: our config, our tensors, their tokenizer."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.errors import UserError
from anydepth.model.bert_family import EMBEDDING, FAMILIES, SUPPORTED, config_of, converted, refusal

TOKENIZER_FILE = "tokenizer.json"
SPECIALS_ALONE = 5  # the vocabulary that transformers makes up where a checkpoint has none

T = TypeVar("T")


@dataclass(frozen=True)
class Pretrained:
    """`tensors` are named as ours; the rows of the embedding are in the order of the checkpoint."""

    config: ModelConfig
    tensors: dict[str, Tensor]
    tokenizer_json: bytes
    vocabulary: int


def read_pretrained(name: Path | str) -> Pretrained:
    """The encoder in a folder, or of that name on the hub; a folder never needs the network."""
    local = Path(name).exists()
    if not local:
        _check_hub(str(name))
    with _quiet_transformers() as transformers:
        settings = _read_settings(transformers, str(name), local)
        theirs = _read_weights(transformers, str(name), local, settings)
        tokenizer_json = _read_tokenizer(transformers, str(name), local)
    tensors = converted(theirs, settings)
    return Pretrained(config_of(str(name), settings, tensors), tensors, tokenizer_json, len(tensors[EMBEDDING]))


def _check_hub(name: str) -> None:
    """A mistyped folder looks like a name on the hub: ask once, before the libraries try again and again."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
        HfApi().model_info(name, timeout=10)
    except Exception as error:  # whatever goes wrong, the way out is the same
        raise UserError(_not_there(name)) from error


def _not_there(name: str) -> str:
    return f"there is no folder {name}, and no such model to be had from the hub: check the name and the network"


@contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """The library, without its bars and warnings."""
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
    """Transformers, safetensors and the hub have no common type for what they cannot read."""
    try:
        return read()
    except Exception as error:
        raise UserError(complaint) from error


def _read_settings(transformers: Any, name: str, local: bool) -> Any:
    """The configuration of an encoder that we can run."""
    options = {"local_files_only": local, "trust_remote_code": False}
    complaint = f"{name} has no config.json with a model_type: give the folder of a Hugging Face checkpoint"
    if not local:
        complaint = _not_there(name)
    kind = _attempt(lambda: transformers.PretrainedConfig.get_config_dict(name, **options)[0]["model_type"], complaint)
    if kind not in FAMILIES:
        raise UserError(f"{name} is a model of type {kind}: {SUPPORTED}")
    settings = _attempt(lambda: transformers.AutoConfig.from_pretrained(name, **options), complaint)
    if (reason := refusal(settings)) is not None:
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
    # The library would fill gaps with random numbers.
    if lacking := sorted(key for key in report["missing_keys"] if not key.endswith("position_ids")):
        raise UserError(f"the weights of {name} lack {lacking[0]}: take a checkpoint of the whole encoder")
    tensors: dict[str, Tensor] = model.state_dict()
    return tensors


def _read_tokenizer(transformers: Any, name: str, local: bool) -> bytes:
    """Its tokenizer.json as it is; one made from its other files only where it has none.

    Transformers 5 builds the tokenizers of these families anew, with defaults in place of parts of the file.
    """
    path = Path(name, TOKENIZER_FILE) if local else _fetched(name, TOKENIZER_FILE)
    if path is not None and path.exists():
        return path.read_bytes().strip()  # a model folder tells it from one of sentencepiece by its first byte
    complaint = f"{name} has no tokenizer that the tokenizers library can read: give it a {TOKENIZER_FILE}"
    tokenizer = _attempt(
        lambda: (
            transformers.AutoTokenizer.from_pretrained(
                name, local_files_only=local, trust_remote_code=False
            ).backend_tokenizer
        ),
        complaint,
    )
    if tokenizer.get_vocab_size() <= SPECIALS_ALONE:
        raise UserError(complaint)
    written: str = tokenizer.to_str()
    return written.encode("utf-8")


def _fetched(name: str, file: str) -> Path | None:
    """A file of a model on the hub, if it has it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(hf_hub_download(name, file))
    except EntryNotFoundError:
        return None
    except Exception as error:  # the network has many ways to fail
        raise UserError(f"{file} of {name} cannot be fetched from the hub: check the network") from error

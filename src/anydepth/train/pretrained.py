"""Encoders from elsewhere, ready to be used here: the weights and the tokenizer in one numbering."""

import json
import re
from pathlib import Path

from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.data.pretrained_tokenizer import PretrainedTokenizer
from anydepth.errors import UserError
from anydepth.model.bert_family import EMBEDDING
from anydepth.model.hf import read_pretrained

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


def load_pretrained(name: Path | str) -> tuple[ModelConfig, dict[str, Tensor], PretrainedTokenizer]:
    """The encoder of a Hugging Face folder or hub name; the rows of its embedding are those of our numbers.

    Rows that the tokenizer has no sub-words for, with which some checkpoints fill up their tables, are left out.
    """
    found = read_pretrained(name)
    tokenizer = PretrainedTokenizer.from_bytes(found.tokenizer_json)
    if tokenizer.vocabulary_size > found.vocabulary:
        raise UserError(
            f"the tokenizer of {name} has {tokenizer.vocabulary_size} sub-words, but its embedding has "
            f"{found.vocabulary} rows: take a checkpoint whose tokenizer fits"
        )
    tensors = found.tensors | {EMBEDDING: found.tensors[EMBEDDING][tokenizer.order]}
    return found.config, tensors, tokenizer


def is_pretrained(path: Path | str) -> bool:
    """Whether this is a Hugging Face folder, or no path at all but what may be a name on the hub."""
    if not Path(path).exists():
        return HUB_NAME.fullmatch(str(path)) is not None
    try:
        content = json.loads(Path(path, "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "model_type" in content and not isinstance(content.get("format"), int)

"""Translation models of Hugging Face transformers: Marian, M2M100 and NLLB, mBART, Pegasus. Their settings and tensors,
and what they are here, in both directions.

Their sines are in the first half of the features and their cosines in the second; ours take turns. So features change
places, in everything that reads or writes the residual stream.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.errors import UserError

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "swish": "swish",
    "silu": "swish",
}
ROWS_AT_ONCE = 8192
NEVER = -50.0  # the output bias of what the model has no output for: low, and no outlier when logits are quantized


@dataclass(frozen=True)
class TranslationFamily:
    """What a model type has that is not in its config.json. `offset` is that of learned positions."""

    title: str
    architecture: str
    norm: str
    positions: str
    offset: int = 0
    embedding_norm: bool = False


FAMILIES = {
    "marian": TranslationFamily("Marian (OPUS-MT)", "MarianMTModel", "post", "sinusoidal"),
    "m2m_100": TranslationFamily("M2M100 or NLLB", "M2M100ForConditionalGeneration", "layer", "fairseq"),
    "mbart": TranslationFamily("mBART", "MBartForConditionalGeneration", "layer", "learned", 2, True),
    "pegasus": TranslationFamily("Pegasus", "PegasusForConditionalGeneration", "layer", "sinusoidal"),
}
PARTS = {  # of a layer: ours, and theirs one after the other
    "attention_qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention_out": ("self_attn.out_proj",),
    "attention_norm": ("self_attn_layer_norm",),
    "cross_query": ("encoder_attn.q_proj",),
    "cross_key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_out": ("encoder_attn.out_proj",),
    "cross_norm": ("encoder_attn_layer_norm",),
    "ffn_up": ("fc1",),
    "ffn_down": ("fc2",),
    "ffn_norm": ("final_layer_norm",),
}
OTHERS = {
    "encoder.norm": "model.encoder.layer_norm",
    "decoder.norm": "model.decoder.layer_norm",
    "embedding_norm": "model.encoder.layernorm_embedding",
    "target_embedding_norm": "model.decoder.layernorm_embedding",
    "positions": "model.encoder.embed_positions",
    "target_positions": "model.decoder.embed_positions",
}
TABLES = {  # where the matrix of subwords of each kind may be, as one that several share is stored once
    "source_embedding": ("model.encoder.embed_tokens.weight", "model.shared.weight"),
    "target_embedding": (
        "model.shared.weight",
        "model.decoder.embed_tokens.weight",
        "lm_head.weight",
        "model.encoder.embed_tokens.weight",
    ),
    "output": ("lm_head.weight",),
}
BIAS = "final_logits_bias"
READING = ("attention_qkv", "cross_query", "cross_key_value", "ffn_up")  # matrices whose inputs are the residual stream
OF_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(\w+)\.(weight|bias)")


def check_settings(name: str, settings: dict[str, Any]) -> TranslationFamily:
    """The family, if these models can run here."""
    kind = settings.get("model_type")
    if kind not in FAMILIES:
        raise UserError(
            f"{name} is a model of type {kind}, which cannot be imported: take one of type {', '.join(FAMILIES)}; an "
            "encoder of the BERT family needs no import, name it in init_from"
        )
    for ours, theirs in (("heads", "attention_heads"), ("feed-forward sizes", "ffn_dim")):
        sides = [settings.get(f"{side}_{theirs}") for side in ("encoder", "decoder")]
        if sides[0] != sides[1]:
            raise UserError(
                f"{name} has {ours} that differ, {sides[0]} in the encoder and {sides[1]} in the decoder, which "
                "anydepth does not have: take another model"
            )
    if settings.get("activation_function") not in ACTIVATIONS:
        raise UserError(
            f"{name} has the activation {settings.get('activation_function')}, which anydepth does not have: take a "
            f"model with one of {', '.join(ACTIVATIONS)}"
        )
    if settings.get("quantization_config"):
        raise UserError(f"the weights of {name} are quantized: take the model in float32, float16 or bfloat16")
    return FAMILIES[str(kind)]


def our_config(name: str, settings: dict[str, Any], *, output_bias: bool) -> ModelConfig:
    """The model config of one with these settings."""
    family = check_settings(name, settings)
    learned = family.positions == "learned"
    scaled = bool(settings.get("scale_embedding", False))
    shared = bool(settings.get("share_encoder_decoder_embeddings", True))
    tied = bool(settings.get("tie_word_embeddings", True))
    try:
        values = {
            "width": settings["d_model"],
            "heads": settings["encoder_attention_heads"],
            "ffn": settings["encoder_ffn_dim"],
            "encoder_layers": settings["encoder_layers"],
            "decoder_layers": settings["decoder_layers"],
            "norm": family.norm,
            "activation": ACTIVATIONS[settings["activation_function"]],
            "positions": family.positions,
            "scale_embeddings": None if scaled != learned else scaled,
            "embedding_norm": None if family.embedding_norm == (family.norm == "post") else family.embedding_norm,
            "target_positions": learned,
            "output_bias": output_bias,
            "dropout": settings.get("dropout", 0.1),
            "attention_dropout": settings.get("attention_dropout", 0.0),
            "share_embeddings": "none" if not tied else "all" if shared else "target",
            "max_length": settings["max_position_embeddings"],
        }
    except KeyError as error:
        raise UserError(f"the config.json of {name} lacks {error.args[0]}: copy the model again") from error
    try:
        return ModelConfig.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "model"
        raise UserError(
            f"{name} has a size that anydepth does not support ({where}: {problem['msg']}): take another model"
        ) from error


def their_names(ours: str) -> tuple[str, ...]:
    """Of the tensors that one of ours is made of, one after the other; not for matrices of subwords and their bias."""
    if layer := OF_LAYER.fullmatch(ours):
        stack, index, part, kind = layer.groups()
        return tuple(f"model.{stack}.layers.{index}.{theirs}.{kind}" for theirs in PARTS[part])
    part, _, kind = ours.rpartition(".")
    return (f"{OTHERS[part]}.{kind}",)


def feature_order(width: int) -> Tensor:
    """For each of our features the number of theirs."""
    return torch.arange(width).view(2, width // 2).t().reshape(-1)


def their_feature_order(width: int) -> Tensor:
    """For each of their features the number of ours."""
    return torch.arange(width).view(width // 2, 2).t().reshape(-1)


def reorder(ours: str, tensor: Tensor, order: Tensor | None) -> Tensor:
    """The tensor of this name of ours with the features of the residual stream in another order."""
    layer = OF_LAYER.fullmatch(ours)
    part = layer[3] if layer else ours.rpartition(".")[0]
    if order is None or ours == "output.bias":
        return tensor
    if part in READING or part in (*TABLES, "positions", "target_positions"):
        return tensor[:, order] if ours.endswith("weight") and tensor.ndim == 2 else tensor
    return tensor if part == "ffn_up" else tensor[order]


class TensorMaker:
    """Makes our tensors, one at a time, from those of a checkpoint."""

    def __init__(
        self,
        family: TranslationFamily,
        config: ModelConfig,
        read: Callable[[str], Tensor],
        names: Sequence[str],
        rows: tuple[Sequence[int], Sequence[int]],
    ) -> None:
        """`rows` are those of the subwords in the tables of source and target; -1: there is none."""
        self.family, self.config, self._read, self._names = family, config, read, frozenset(names)
        self._rows = rows
        self._order = None if family.positions == "learned" else feature_order(config.width)

    def __call__(self, ours: str) -> Iterator[Tensor]:
        """In parts along its first dimension: the tables of subwords are large."""
        part = ours.rpartition(".")[0]
        if ours == "output.bias":
            yield self._bias()
        elif part in TABLES:
            source, target = self._rows
            # In a table for both sides, a subword of the source that the model does not know is there as unknown.
            of_source = part == "source_embedding" or self.config.share_embeddings == "all"
            rows = torch.tensor(source if of_source else target)
            whole = self._read(self.table_name(part))
            for some in torch.split(rows, ROWS_AT_ONCE):
                found = whole[some.clamp(min=0)]
                found[some < 0] = 0
                yield reorder(ours, found, self._order)
        else:
            parts = [self._read(name) for name in their_names(ours)]
            found = torch.cat(parts) if len(parts) > 1 else parts[0]
            if part in ("positions", "target_positions"):
                found = found[self.family.offset : self.family.offset + self.config.max_length]
            yield reorder(ours, found, self._order)

    def table_name(self, part: str) -> str:
        places = TABLES[part]
        if self.config.share_embeddings == "target" and part == "target_embedding":
            places = ("model.decoder.embed_tokens.weight", "lm_head.weight")
        name = next((one for one in places if one in self._names), None)
        if name is None:
            raise KeyError(places[0])
        return name

    def _bias(self) -> Tensor:
        rows = torch.tensor(self._rows[1])
        there = BIAS in self._names
        found = self._read(BIAS).reshape(-1)[rows.clamp(min=0)] if there else torch.zeros(len(rows))
        found[rows < 0] = NEVER
        return found

"""What checkpoints of the BERT family call their parts and settings, and what they are here."""

from dataclasses import dataclass
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.errors import UserError

EMBEDDING = "target_embedding.weight"
# Theirs to ours.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}


@dataclass(frozen=True)
class Family:
    """What a kind of checkpoint calls the parts of layer {}, and where its positions begin."""

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


def refusal(settings: Any) -> str | None:
    """What keeps us from running an encoder of these settings, if anything does."""
    if getattr(settings, "position_embedding_type", "absolute") != "absolute":
        return "has relative positions"
    if getattr(settings, "is_decoder", False) or getattr(settings, "add_cross_attention", False):
        return "is a decoder"
    if _activation(settings) not in ACTIVATIONS:
        return f"has the activation {_activation(settings)}"
    if FAMILIES[settings.model_type].after_padding and settings.pad_token_id is None:
        return "has no pad_token_id, which its positions begin after"
    return None


def _activation(settings: Any) -> str:
    return str(settings.activation if settings.model_type == "distilbert" else settings.hidden_act)


def converted(theirs: dict[str, Tensor], settings: Any) -> dict[str, Tensor]:
    """The tensors of an encoder under our names."""
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
            place = f"encoder.layers.{layer}"
            qkv = [theirs[f"{part.format(layer)}.{kind}"] for part in family.query_key_value]
            ours[f"{place}.attention_qkv.{kind}"] = torch.cat(qkv)
            for our_part, their_part in family.parts.items():
                ours[f"{place}.{our_part}.{kind}"] = theirs[f"{their_part.format(layer)}.{kind}"]
    # Of their own memory, so that the rows left out go and nothing of the file stays open.
    return {key: tensor.detach().float().clone() for key, tensor in ours.items()}


def config_of(name: str, settings: Any, tensors: dict[str, Tensor]) -> ModelConfig:
    """Our settings for the encoder that `tensors` were converted from."""
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
                "positions": "learnt",
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
        raise UserError(f"{name} has a size that anydepth has not ({where}: {problem['msg']}): {SUPPORTED}") from error

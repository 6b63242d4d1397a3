"""A sub-network in the format of CTranslate2, which knows one depth per model.

Layer weights and ReZero's are taken into the last matrix of each branch, and layers that share their parameters become
copies. What may never be generated has a bias no other output can beat, so that users of the folder need no option.
"""

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from numpy.typing import NDArray

from anydepth.config.model import Activation as ActivationName
from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.exportable import check_exportable
from anydepth.engines.shortlist import VMAP, Shortlist
from anydepth.model import Transformer
from anydepth.model.stack import Stack

NEVER = -1e4  # within the range of float16
ACTIVATIONS: dict[ActivationName, Activation] = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu-tanh": Activation.GELUTanh,
}
QUANTIZATIONS = tuple(sorted({"int8", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32"}))


def vocabulary_of(tokenizer: Tokenizer) -> list[str]:
    """The names that CTranslate2 has for our token ids: sentencepiece's own."""
    return tokenizer.pieces(range(tokenizer.vocabulary_size))


def convert(model: Transformer, sub: SubNetwork, names: list[str]) -> TransformerSpec:
    """`names` are those of the token ids, see `vocabulary_of`."""
    config = model.config
    check_exportable(config, sub, "CTranslate2")
    after = config.norm == "post"
    spec = TransformerSpec.from_config(
        (len(sub.encoder), len(sub.decoder)),
        config.heads,
        pre_norm=not after,
        activation=ACTIVATIONS[config.activation],
        layernorm_embedding=after,
    )
    for side, stack, table, chosen, weights in (
        (spec.encoder, model.encoder, model.source_embedding, sub.encoder, sub.encoder_weights),
        (spec.decoder, model.decoder, model.target_embedding, sub.decoder, sub.decoder_weights),
    ):
        _embeddings(side, model, table)
        if not after:
            _norm(side.layer_norm, stack.norm)
        for place, layer in enumerate(chosen):
            weight = _weight(stack, layer, 1.0 if weights is None else weights[place])
            _layer(side.layer[place], stack.layers[layer], weight)
    spec.decoder.projection.weight = _array(model.output.weight)
    bias = np.zeros(model.vocabulary, np.float32)
    bias[: Tokenizer.EOS] = NEVER
    spec.decoder.projection.bias = bias
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = names[Tokenizer.UNK : Tokenizer.EOS + 1]
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    return spec


def write(
    spec: TransformerSpec,
    folder: Path,
    quantization: str | None = None,
    shortlist: Shortlist | None = None,
    names: list[str] | None = None,
) -> None:
    """`folder` is there and empty. A shortlist goes with the model as `vmap.txt`, of these names of the token ids."""
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))
    if shortlist is not None and names is not None:
        (folder / VMAP).write_text(shortlist.vmap(names), "utf-8")


def available() -> frozenset[str]:
    """The types that this CPU computes in; a folder in another is changed into one of these when it is loaded."""
    return frozenset(ctranslate2.get_supported_compute_types("cpu"))


def _embeddings(side: Any, model: Transformer, table: torch.nn.Embedding) -> None:
    target = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
    target.weight = _array(table.weight)
    side.scale_embeddings = model.positions is None
    places = model.positions_pd if model.positions is None else model.positions.weight
    if model.types is not None:
        places = places + model.types.weight[0]
    side.position_encodings.encodings = _array(places)
    if model.embedding_norm is not None:
        _norm(side.layernorm_embedding, model.embedding_norm)


def _weight(stack: Stack, layer: int, own: float) -> float:
    return own if stack.scales is None else own * float(stack.scales[layer].detach())


def _layer(target: Any, layer: Any, weight: float) -> None:
    _norm(target.self_attention.layer_norm, layer.attention_norm)
    _linear(target.self_attention.linear[0], layer.attention_qkv)
    _linear(target.self_attention.linear[1], layer.attention_out, weight)
    if hasattr(layer, "cross_norm"):
        _norm(target.attention.layer_norm, layer.cross_norm)
        _linear(target.attention.linear[0], layer.cross_query)
        _linear(target.attention.linear[1], layer.cross_key_value)
        _linear(target.attention.linear[2], layer.cross_out, weight)
    _norm(target.ffn.layer_norm, layer.ffn_norm)
    _linear(target.ffn.linear_0, layer.ffn_up)
    _linear(target.ffn.linear_1, layer.ffn_down, weight)


def _norm(target: Any, norm: Any) -> None:
    target.gamma, target.beta = _array(norm.weight), _array(norm.bias)


def _linear(target: Any, linear: torch.nn.Linear, weight: float = 1.0) -> None:
    target.weight, target.bias = _array(linear.weight * weight), _array(linear.bias * weight)


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.detach().float().cpu().contiguous().numpy().copy()
    return found

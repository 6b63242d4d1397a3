"""A model as the core reads it: int8 matrices with a scale for each output, half-precision embeddings, the rest floats.

The order of everything follows from the header; csrc/model.cpp reads it. Numbers are little-endian. At the end is a
CRC-32 of all before it.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.stack import Stack

MAGIC, VERSION = b"ANYDEPTH", 1
MOST_FFN = 131_072  # sums of more products would not fit in 32 bits
NORMS = ("layer", "post", "none")
ACTIVATIONS = ("relu", "gelu", "gelu-tanh")
RESIDUALS = ("plain", "rezero", "dlcl")


def check_runs(config: ModelConfig, sub: SubNetwork | None = None) -> None:
    """Refuse, with the reason, what only torch can run."""
    if config.decoder_layers == 0:
        raise UserError("the native engine is for models that translate; this one is an encoder alone: use torch")
    if config.halting:
        raise UserError('words of this model halt by a unit that the native engine does not have: use engine="torch"')
    if config.ffn > MOST_FFN:
        raise UserError(f'the native engine takes feed-forward blocks of up to {MOST_FFN:,}: use engine="torch"')
    if sub is not None and sub.by_word and config.residual == "dlcl":
        raise UserError('the native engine cannot run words at their own depths with dlcl: use engine="torch"')


def packed(model: Transformer) -> bytes:
    """The whole model, for every depth."""
    check_runs(model.config)
    with torch.no_grad():
        body = b"".join(_parts(model))
    return body + struct.pack("<I", zlib.crc32(body))


def _parts(model: Transformer) -> Iterator[bytes]:
    config = model.config
    sinusoidal = model.positions is None
    positions = model.positions_pd if model.positions is None else model.positions.weight
    if model.types is not None:
        positions = positions + model.types.weight[0]
    yield MAGIC
    yield _ints(VERSION, config.width, config.heads, config.ffn, model.vocabulary)
    yield _ints(NORMS.index(config.norm), ACTIVATIONS.index(config.activation))
    yield struct.pack("<ff", config.norm_epsilon, math.sqrt(config.width) if sinusoidal else 1.0)
    yield _ints(len(positions))
    shared = model.source_embedding is model.target_embedding
    yield _array(model.source_embedding.weight, np.float16)
    yield _ints(int(shared))
    if not shared:
        yield _array(model.target_embedding.weight, np.float16)
    yield _array(positions)
    if model.embedding_norm is not None:
        yield from _norm(model.embedding_norm)
    yield from _stack(model.encoder, config)
    yield from _stack(model.decoder, config)
    yield from _matrix(model.output.weight, None)
    tied = model.output.weight is model.target_embedding.weight
    yield _ints(int(tied))
    if not tied:
        yield _array(model.output.weight, np.float16)


def _stack(stack: Stack, config: ModelConfig) -> Iterator[bytes]:
    own = stack.distinct
    yield _ints(len(stack.layers), len(own), RESIDUALS.index(config.residual))
    yield _ints(*(own.index(layer) for layer in stack.layers))
    for layer in own:
        yield from _layer(layer)
    if isinstance(stack.norm, nn.LayerNorm):
        yield from _norm(stack.norm)
    if stack.scales is not None:
        yield _array(stack.scales)
    if stack.dense is not None:
        for row in stack.dense.rows:
            yield _array(row)
        for norm in stack.dense.norms:
            yield from _norm(norm)


def _layer(layer: nn.Module) -> Iterator[bytes]:
    """Norms and matrices in the order in which they run."""
    parts = ["attention_norm", "attention_qkv", "attention_out"]
    if hasattr(layer, "cross_norm"):
        parts += ["cross_norm", "cross_query", "cross_key_value", "cross_out"]
    for name in (*parts, "ffn_norm", "ffn_up", "ffn_down"):
        part = getattr(layer, name)
        if isinstance(part, nn.Linear):
            yield from _matrix(part.weight, part.bias)
        elif part is not None:
            yield from _norm(part)


def _norm(norm: Any) -> Iterator[bytes]:
    yield _array(norm.weight)
    yield _array(norm.bias)


def _matrix(weight: Tensor, bias: Tensor | None) -> Iterator[bytes]:
    """Symmetric: the largest of each output's weights is 127 times its scale."""
    values = weight.detach().float().cpu()
    scales = values.abs().amax(dim=1) / 127
    safe = torch.where(scales > 0, scales, torch.ones_like(scales))
    yield _array(scales)
    yield _ints(int(bias is not None))
    if bias is not None:
        yield _array(bias)
    yield _array((values / safe[:, None]).round().clamp(-127, 127), np.int8)


def _ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _array(tensor: Tensor, kind: type = np.float32) -> bytes:
    values = tensor.detach().float().cpu().contiguous().numpy()
    if kind is np.float16:
        values = values.clip(-65504, 65504)
    return values.astype(np.dtype(kind).newbyteorder("<")).tobytes()

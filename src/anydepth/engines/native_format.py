"""A model as the core runs it: int8 matrices with a scale for each output, embeddings in 16 bits, the rest floats.

`packed` gives a model file (artifact/model_file.py). All arrays of a section begin at a multiple of 64 bytes, in the
order in which csrc/model.cpp reads them; the header says what is there. Only packing needs PyTorch.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anydepth.artifact.model_file import CLASSIFIES, LINE, VERSION, FileSection, Kind, build_model_file
from anydepth.engines.base import check_native

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anydepth.engines.shortlist import Shortlist
    from anydepth.model import Transformer
    from anydepth.model.stack import Stack

TILE, QUAD = 16, 4  # outputs, and inputs of each, that lie together in a packed matrix
REMAINDERS = 254
Array = NDArray[Any]


def packed(
    model: "Transformer",
    header: dict[str, Any] | None = None,
    tokenizer: bytes | None = None,
    shortlist: "Shortlist | None" = None,
    word_depths: bytes | None = None,
    tags: Sequence[tuple[str, str, int | None]] = (),
) -> bytes:
    """The whole model, for every depth.

    `header` is what else the header has: config.json and depths.json of the model folder. `tags` are the language
    pairs, each with the token that a source begins with, or None.
    """
    check_native(model.config, classifies=model.classes > 0)
    return assemble(_core(model), _sections(model, shortlist), header, tokenizer, word_depths, tags)


def assemble(
    core: dict[str, Any],
    weights: Sequence[FileSection],
    header: dict[str, Any] | None = None,
    tokenizer: bytes | None = None,
    word_depths: bytes | None = None,
    tags: Sequence[tuple[str, str, int | None]] = (),
) -> bytes:
    """The same of weights that are packed already."""
    texts = ((Kind.TOKENIZER, tokenizer), (Kind.WORD_DEPTHS, word_depths))
    before = [FileSection(kind, 0, data) for kind, data in texts if data is not None]
    pairs = [{"source": source, "target": target, "tag": tag} for source, target, tag in tags]
    version = CLASSIFIES if core.get("classes") else VERSION
    return build_model_file({"core": {**core, "pairs": pairs}, **(header or {})}, [*before, *weights], version)


def _sections(model: "Transformer", shortlist: "Shortlist | None") -> list[FileSection]:
    sections = [FileSection(Kind.EMBEDDINGS, 0, _joined(_embeddings(model)))]
    sections.append(FileSection(Kind.OUTPUT, 0, _joined(_classes(model) if model.classes else _output(model))))
    encoder, decoder = model.encoder.distinct, model.decoder.distinct
    for index in range(max(len(encoder), len(decoder))):
        for kind, own in ((Kind.ENCODER_LAYER, encoder), (Kind.DECODER_LAYER, decoder)):
            if index < len(own):
                sections.append(FileSection(kind, index, _joined(_layer(own[index], model.config.width))))
    if shortlist is not None:  # last: nothing has to wait for it
        sections.append(FileSection(Kind.SHORTLIST, 0, _joined(_shortlist(shortlist))))
    return sections


def _core(model: "Transformer") -> dict[str, Any]:
    """What the core needs to know of the model."""
    config = model.config
    positions = model.positions_pd if model.positions is None else model.positions.weight
    return {
        "width": config.width,
        "heads": config.heads,
        "ffn": config.ffn,
        "vocabulary": model.vocabulary,
        "positions": len(positions),
        "max_length": config.max_length,
        "norm": config.norm,
        "norm_epsilon": config.norm_epsilon,
        "activation": config.activation,
        "residual": config.residual,
        "scale_embeddings": model.positions is None,
        "shared_target": model.source_embedding is model.target_embedding,
        "tied_output": model.output.weight is model.target_embedding.weight,
        "encoder": _pattern(model.encoder),
        "decoder": _pattern(model.decoder),
        **({"classes": model.classes} if model.classes else {}),
        **({"halting": config.halting_confidence} if model.classes and config.halting else {}),
    }


def _pattern(stack: "Stack") -> list[int]:
    own = stack.distinct
    return [own.index(layer) for layer in stack.layers]


def _embeddings(model: "Transformer") -> Iterator[Array]:
    """Tables that are the output matrix are not stored twice."""
    for table in dict.fromkeys((model.source_embedding, model.target_embedding)):
        if table.weight is not model.output.weight:
            yield _half(table.weight)
    positions = model.positions_pd if model.positions is None else model.positions.weight
    if model.types is not None:
        positions = positions + model.types.weight[0]
    yield _padded(_floats(positions), TILE)
    if model.embedding_norm is not None:
        yield from _norm(model.embedding_norm)
    for stack in (model.encoder,) if model.classes else (model.encoder, model.decoder):
        if hasattr(stack.norm, "weight"):
            yield from _norm(stack.norm)
        if stack.scales is not None:
            yield _floats(stack.scales)
        if stack.dense is not None:
            for row in stack.dense.rows:
                yield _floats(row)
            for norm in stack.dense.norms:
                yield from _norm(norm)


def _output(model: "Transformer") -> Iterator[Array]:
    yield from _matrix(model.output.weight, None)
    yield _remainders(model.output.weight)


def _classes(model: "Transformer") -> Iterator[Array]:
    """In floats: this layer is small, and decides. The last column of the matrix is its bias."""
    weight = _floats(model.output.weight)
    yield weight[:, :-1]
    yield weight[:, -1]
    if model.halting is not None:
        yield _floats(model.halting.weight)
        yield _floats(model.halting.bias)


def _shortlist(shortlist: "Shortlist") -> Iterator[Array]:
    yield np.array([len(shortlist.always), len(shortlist.outputs)], np.uint32)
    for values in (shortlist.always, shortlist.offsets, shortlist.outputs):
        yield np.asarray(values, np.int32)


def _layer(layer: "nn.Module", width: int) -> Iterator[Array]:
    """Norms and matrices in the order in which they run."""
    parts = ["attention_norm", "attention_qkv", "attention_out"]
    if hasattr(layer, "cross_norm"):
        parts += ["cross_norm", "cross_query", "cross_key_value", "cross_out"]
    for name in (*parts, "ffn_norm", "ffn_up", "ffn_down"):
        part: Any = getattr(layer, name)
        if part is None:
            continue
        if part.weight.ndim == 2:
            yield from _matrix(part.weight, part.bias)
        else:
            yield from _norm(part)


def _norm(norm: Any) -> Iterator[Array]:
    yield _padded(_floats(norm.weight), TILE)
    yield _padded(_floats(norm.bias), TILE)


def _matrix(weight: "Tensor", bias: "Tensor | None") -> Iterator[Array]:
    """Symmetric: the largest of each output's weights is 127 times its scale. Scales, sums, bias and tiles."""
    scales, whole = _quantized(_floats(weight))
    outputs = len(whole)
    yield _padded(scales, TILE)
    yield _padded(whole.sum(axis=1, dtype=np.int64).astype(np.float32) * scales, TILE)
    yield _padded(np.zeros(outputs, np.float32) if bias is None else _floats(bias), TILE)
    square = _padded(_padded(whole, QUAD).T, TILE).T  # inputs to a multiple of QUAD, outputs to one of TILE
    blocks, quads = len(square) // TILE, square.shape[1] // QUAD
    yield square.reshape(blocks, TILE, quads, QUAD).transpose(0, 2, 1, 3)


def _quantized(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    scales = np.abs(values).max(axis=1) / np.float32(127)
    safe = np.where(scales > 0, scales, np.float32(1))
    return scales, np.clip(np.rint(values / safe[:, None]), -127, 127).astype(np.int8)


def _remainders(weight: "Tensor") -> NDArray[np.int8]:
    """What int8 leaves of each weight, in 1/254 of its step: with both, a weight has 16 bits."""
    values = _floats(weight)
    scales, whole = _quantized(values)
    safe = np.where(scales > 0, scales, np.float32(1))
    left = values.astype(np.float64) / safe[:, None] - whole
    return np.clip(np.rint(left * REMAINDERS), -127, 127).astype(np.int8)


def _padded(values: Array, multiple: int) -> Array:
    """With zeros at the end of the last dimension."""
    more = -values.shape[-1] % multiple
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, more)]) if more else values


def _floats(tensor: "Tensor") -> NDArray[np.float32]:
    values: NDArray[np.float32] = tensor.detach().float().cpu().contiguous().numpy()
    return values


def _half(tensor: "Tensor") -> NDArray[np.float16]:
    return _floats(tensor).clip(-65504, 65504).astype(np.float16)


def _joined(arrays: Iterator[Array]) -> bytes:
    """One after the other, each from a multiple of LINE on."""
    parts: list[bytes] = []
    for array in arrays:
        if parts:
            parts.append(bytes(-len(parts[-1]) % LINE))
        parts.append(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return b"".join(parts)

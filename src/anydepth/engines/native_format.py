"""A model as the core runs it: int8 matrices with a scale for each output, embeddings in 16 bits, the rest floats.
The feed-forward matrices may have four bits for each weight instead.

`packed` gives a model file (artifact/model_file.py). All arrays of a section begin at a multiple of 64 bytes, in the
order in which csrc/model.cpp reads them; the header says what is there. PyTorch is not needed.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anydepth.artifact.arrays import Floats32, ModelArrays
from anydepth.artifact.folder import first_positions
from anydepth.artifact.model_file import (
    CLASSIFIES,
    INT4,
    LINE,
    SINUSOIDAL,
    VERSION,
    FileSection,
    Kind,
    build_model_file,
)
from anydepth.config import ModelConfig
from anydepth.engines.base import check_native
from anydepth.tensors import sinusoids

if TYPE_CHECKING:
    from anydepth.engines.shortlist import Shortlist
    from anydepth.model import Transformer

TILE, QUAD = 16, 4  # outputs, and inputs of each, that lie together in a packed matrix
REMAINDERS = 254
GROUP, FACTOR = 32, 15  # of int4: inputs that share a factor, and the largest one
LEAST, MOST = -8, 7  # of int4
Array = NDArray[Any]


def packed(
    model: "ModelArrays | Transformer",
    header: dict[str, Any] | None = None,
    tokenizer: bytes | None = None,
    shortlist: "Shortlist | None" = None,
    word_depths: bytes | None = None,
    tags: Sequence[tuple[str, str, int | None]] = (),
    *,
    int4: bool = False,
) -> bytes:
    """The whole model, for every depth.

    `header` is what else the header has: config.json and depths.json of the model folder. `tags` are the language
    pairs, each with the token that a source begins with, or None. With `int4` the feed-forward matrices have four bits
    for each weight.
    """
    weights = model if isinstance(model, ModelArrays) else ModelArrays.of_model(model)
    check_native(weights.config, classifies=weights.classes > 0)
    core = {**_core(weights), **({"int4": True} if int4 else {})}
    return assemble(core, _sections(weights, shortlist, int4), header, tokenizer, word_depths, tags)


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
    newer = (("int4", INT4), ("sinusoidal", SINUSOIDAL), ("classes", CLASSIFIES))
    version = next((version for key, version in newer if core.get(key)), VERSION)
    return build_model_file({"core": {**core, "pairs": pairs}, **(header or {})}, [*before, *weights], version)


def _sections(weights: ModelArrays, shortlist: "Shortlist | None", int4: bool) -> list[FileSection]:
    config = weights.config
    sections = [FileSection(Kind.EMBEDDINGS, 0, _joined(_embeddings(weights)))]
    sections.append(FileSection(Kind.OUTPUT, 0, _joined(_classes(weights) if weights.classes else _output(weights))))
    encoder, decoder = first_positions(config.encoder_pattern), first_positions(config.decoder_pattern)
    for index in range(max(len(encoder), len(decoder))):
        for kind, stack, own in (
            (Kind.ENCODER_LAYER, "encoder", encoder),
            (Kind.DECODER_LAYER, "decoder", decoder),
        ):
            if index < len(own):
                data = _joined(_layer(weights, f"{stack}.layers.{own[index]}", stack == "decoder", int4))
                sections.append(FileSection(kind, index, data))
    if shortlist is not None:  # last: nothing has to wait for it
        sections.append(FileSection(Kind.SHORTLIST, 0, _joined(_shortlist(shortlist))))
    return sections


def _core(weights: ModelArrays) -> dict[str, Any]:
    """What the core needs to know of the model."""
    config = weights.config
    learned = config.positions == "learned"
    return {
        "width": config.width,
        "heads": config.heads,
        "ffn": config.ffn,
        "vocabulary": weights.vocabulary,
        "positions": config.max_length if learned else config.max_length + 1,
        **({"sinusoidal": True} if _computes_positions(config) else {}),
        "max_length": config.max_length,
        "norm": config.norm,
        "norm_epsilon": config.norm_epsilon,
        "activation": config.activation,
        "residual": config.residual,
        "scale_embeddings": config.scales_embeddings,
        **({} if config.embedding_norm is None else {"embedding_norm": config.embedding_norm}),
        "shared_target": config.share_embeddings == "all",
        "tied_output": _is_tied(weights),
        "encoder": config.encoder_pattern,
        "decoder": config.decoder_pattern,
        **({"classes": weights.classes} if weights.classes else {}),
        **({"halting": config.halting_confidence} if weights.classes and config.halting else {}),
    }


def _is_tied(weights: ModelArrays) -> bool:
    """Whether the output matrix is the table of the target's subwords."""
    return not weights.classes and weights.config.share_embeddings != "none"


def _computes_positions(config: ModelConfig) -> bool:
    """Whether the core computes them. With token types, the first of these is part of the table."""
    return config.positions == "sinusoidal" and not config.token_types


def _embeddings(weights: ModelArrays) -> Iterator[Array]:
    """Tables that are the output matrix are not stored twice."""
    config = weights.config
    if config.share_embeddings != "all":
        yield _half(weights["source_embedding.weight"])
    if not _is_tied(weights):
        yield _half(weights["target_embedding.weight"])
    if not _computes_positions(config):
        learned = config.positions == "learned"
        fairseq = config.positions == "fairseq"
        positions = weights["positions.weight"] if learned else sinusoids(config.max_length + 1, config.width, fairseq)
        if config.token_types:
            positions = positions + weights["types.weight"][0]
        yield _padded(positions, TILE)
    if config.norms_embeddings:
        yield from _norm(weights, "embedding_norm")
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    for stack in ("encoder",) if weights.classes else ("encoder", "decoder"):
        if config.norm != "post":
            yield from _norm(weights, f"{stack}.norm")
        if config.residual == "rezero":
            yield weights[f"{stack}.scales"]
        if config.residual == "dlcl":
            sums = range(layers[stack] + 1)
            for number in sums:
                yield weights[f"{stack}.dense.rows.{number}"]
            for number in sums:
                yield from _norm(weights, f"{stack}.dense.norms.{number}")


def _output(weights: ModelArrays) -> Iterator[Array]:
    weight = weights["target_embedding.weight" if _is_tied(weights) else "output.weight"]
    yield from _matrix(weight, weights["output.bias"] if weights.config.output_bias else None)
    yield _remainders(weight)


def _classes(weights: ModelArrays) -> Iterator[Array]:
    """In floats: this layer is small, and decides. The last column of the matrix is its bias."""
    weight = weights["output.weight"]
    yield weight[:, :-1]
    yield weight[:, -1]
    if weights.config.halting:
        yield weights["halting.weight"]
        yield weights["halting.bias"]


def _shortlist(shortlist: "Shortlist") -> Iterator[Array]:
    yield np.array([len(shortlist.always), len(shortlist.outputs)], np.uint32)
    for values in (shortlist.always, shortlist.offsets, shortlist.outputs):
        yield np.asarray(values, np.int32)


def _layer(weights: ModelArrays, layer: str, crosses: bool, int4: bool) -> Iterator[Array]:
    """Norms and matrices in the order in which they run."""
    parts = ["attention_norm", "attention_qkv", "attention_out"]
    if crosses:
        parts += ["cross_norm", "cross_query", "cross_key_value", "cross_out"]
    for part in (*parts, "ffn_norm", "ffn_up", "ffn_down"):
        name = f"{layer}.{part}"
        if not part.endswith("_norm"):
            pack = _matrix_int4 if int4 and part.startswith("ffn_") else _matrix
            yield from pack(weights[f"{name}.weight"], weights[f"{name}.bias"])
        elif weights.config.norm != "none":
            yield from _norm(weights, name)


def _norm(weights: ModelArrays, name: str) -> Iterator[Array]:
    yield _padded(weights[f"{name}.weight"], TILE)
    yield _padded(weights[f"{name}.bias"], TILE)


def _matrix(weight: Floats32, bias: Floats32 | None) -> Iterator[Array]:
    """Symmetric: the largest of each output's weights is 127 times its scale. Scales, sums, bias and tiles."""
    scales, whole = _quantized(weight)
    outputs = len(whole)
    yield _padded(scales, TILE)
    yield _padded(whole.sum(axis=1, dtype=np.int64).astype(np.float32) * scales, TILE)
    yield _padded(np.zeros(outputs, np.float32) if bias is None else bias, TILE)
    square = _padded(_padded(whole, QUAD).T, TILE).T  # inputs to a multiple of QUAD, outputs to one of TILE
    blocks, quads = len(square) // TILE, square.shape[1] // QUAD
    yield square.reshape(blocks, TILE, quads, QUAD).transpose(0, 2, 1, 3)


def _quantized(values: Floats32) -> tuple[Floats32, NDArray[np.int8]]:
    scales = np.abs(values).max(axis=1) / np.float32(127)
    safe = np.where(scales > 0, scales, np.float32(1))
    return scales, np.clip(np.rint(values / safe[:, None]), -127, 127).astype(np.int8)


def _matrix_int4(weight: Floats32, bias: Floats32 | None) -> Iterator[Array]:
    """Scales, sums, bias, factors and weights: an output has a scale, GROUP inputs of it share a factor, and a weight
    is scale times factor times four bits. So scale times an integer of at most 120, as in int8."""
    scales, factors, whole = _quantized_int4(weight)
    outputs, groups = factors.shape
    integers = whole.reshape(outputs, groups, GROUP) * factors[:, :, None]
    yield _padded(scales, TILE)
    yield _padded(integers.sum(axis=(1, 2), dtype=np.int64).astype(np.float32) * scales, TILE)
    yield _padded(np.zeros(outputs, np.float32) if bias is None else bias, TILE)
    tiles = -(-outputs // TILE)
    yield _padded(factors.T, TILE).T.reshape(tiles, TILE, groups).transpose(0, 2, 1)
    square = _padded(whole.T, TILE).T.reshape(tiles, TILE, -1, 2, QUAD).transpose(0, 2, 3, 1, 4) - LEAST
    yield (square[:, :, 0] | square[:, :, 1] << 4).astype(np.uint8)


def _quantized_int4(values: Floats32) -> tuple[Floats32, NDArray[np.int8], NDArray[np.int8]]:
    """A scale for each output, factors [outputs, groups], and whole weights [outputs, inputs], padded to groups.

    The largest weight of a group is to be LEAST times its factor, which may be negative; of that factor and its two
    neighbours the one with the least error is taken. model/layers.py has the same for training.
    """
    groups = _padded(values, GROUP).reshape(len(values), -1, GROUP)
    ends = np.take_along_axis(groups, np.abs(groups).argmax(axis=-1, keepdims=True), axis=-1)
    unit = np.abs(ends).max(axis=1, keepdims=True) / np.float32(-LEAST * FACTOR)
    unit = np.where(unit > 0, unit, np.float32(1))
    nearest = np.rint(ends / (LEAST * unit))
    factors, whole, least = np.zeros_like(ends), np.zeros_like(groups), np.full_like(ends, np.inf)
    for change in (0, -1, 1):
        factor = np.clip(nearest + np.float32(change), -FACTOR, FACTOR)
        step = np.where(factor == 0, np.float32(1), factor * unit)
        found = np.clip(np.rint(groups / step), LEAST, MOST) * (factor != 0)
        error = np.square(found * factor * unit - groups).sum(axis=-1, keepdims=True)
        better = error < least
        factors, whole = np.where(better, factor, factors), np.where(better, found, whole)
        least = np.minimum(error, least)
    return unit[:, 0, 0], factors[:, :, 0].astype(np.int8), whole.reshape(len(values), -1).astype(np.int8)


def _remainders(values: Floats32) -> NDArray[np.int8]:
    """What int8 leaves of each weight, in 1/254 of its step: with both, a weight has 16 bits."""
    scales, whole = _quantized(values)
    safe = np.where(scales > 0, scales, np.float32(1))
    left = values.astype(np.float64) / safe[:, None] - whole
    return np.clip(np.rint(left * REMAINDERS), -127, 127).astype(np.int8)


def _padded(values: Array, multiple: int) -> Array:
    """With zeros at the end of the last dimension."""
    more = -values.shape[-1] % multiple
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, more)]) if more else values


def _half(values: Floats32) -> NDArray[np.float16]:
    return values.clip(-65504, 65504).astype(np.float16)


def _joined(arrays: Iterator[Array]) -> bytes:
    """One after the other, each from a multiple of LINE on."""
    parts: list[bytes] = []
    for array in arrays:
        if parts:
            parts.append(bytes(-len(parts[-1]) % LINE))
        parts.append(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return b"".join(parts)

"""Packing works on NumPy arrays by name: what it takes has to be what PyTorch's model has."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from anydepth.artifact.arrays import ModelArrays
from anydepth.artifact.folder import parameter_shapes
from anydepth.artifact.model import LoadedModel, load_model
from anydepth.artifact.model_file import LINE, Kind, ModelFile
from anydepth.artifact.saving import ModelContent, save
from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu
from anydepth.engines.native_format import QUAD, TILE, packed
from anydepth.engines.packed import NAME, native_model
from anydepth.errors import UserError
from anydepth.files import file_sha256
from anydepth.model import Transformer

GOLDEN = Path(__file__).parents[1] / "golden" / "model"
SIZES = {"width": 40, "heads": 4, "ffn": 52, "encoder_layers": 3, "decoder_layers": 2, "max_length": 30}
BERT = {"norm": "post", "activation": "gelu", "positions": "learned", "token_types": 2, "norm_epsilon": 1e-12}
TRANSLATORS = {
    "plain": {},
    "no norms": {"norm": "none", "residual": "rezero"},
    "dlcl": {"residual": "dlcl"},
    "post-norm": {"norm": "post"},
    "shared layers": {"encoder_shared": (1, 2, 1), "decoder_shared": "all"},
    "target table": {"share_embeddings": "target"},
    "three tables": {"share_embeddings": "none", "residual": "rezero"},
    "BERT": BERT,
}
ENCODERS = {
    "plain": {},
    "BERT": BERT,
    "halting": {**BERT, "halting": True},
    "shared layers": {"encoder_shared": "all", "residual": "dlcl"},
}


def random_model(vocabulary: int, classes: int = 0, **changes: object) -> Transformer:
    torch.manual_seed(5)
    model = Transformer(ModelConfig(**SIZES | changes), vocabulary, classes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def every_model() -> Iterator[Transformer]:
    for options in TRANSLATORS.values():
        yield random_model(50, **options)
    for options in ENCODERS.values():
        yield random_model(50, 3, decoder_layers=0, **options)
    yield random_model(50, decoder_layers=0, head="transform", **BERT)


def test_names_and_shapes_are_those_of_pytorch():
    for model in every_model():
        expected = [(name, tuple(value.shape)) for name, value in model.named_parameters()]
        found = parameter_shapes(model.config, model.vocabulary, model.classes)
        assert list(found.items()) == expected  # in the same order: the fingerprint goes by it


def make_folder(folder: Path, dtype: torch.dtype, labels: tuple[str, ...] = (), **options: object) -> Path:
    tokenizer = load_model(GOLDEN, defer=True).tokenizer
    sizes = {"decoder_layers": 0} if labels else {}
    model = random_model(tokenizer.vocabulary_size, len(labels), **{**sizes, **options})
    tensors = {name: value.detach().to(dtype) for name, value in model.named_parameters()}
    menu = DepthMenu.of([model.full])
    content = ModelContent(model.config, tensors, tokenizer, menu, ("fr", "en"), labels=labels, max_tokens=20)
    save(folder, content, {})
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("labels", "options"), [((), TRANSLATORS["dlcl"]), (("a", "b", "c"), BERT)])
def test_a_folder_is_packed_as_the_model_in_pytorch(tmp_path, dtype, labels, options):
    folder = make_folder(tmp_path / "model", dtype, labels, **options)
    in_torch, stored = load_model(folder), load_model(folder, defer=True)
    assert packed(stored.arrays) == packed(in_torch.model)
    assert stored.fingerprint == in_torch.fingerprint
    assert not stored.weights.is_in_memory
    for name, value in in_torch.model.named_parameters():
        assert stored.arrays[name].dtype == np.float32
        np.testing.assert_array_equal(stored.arrays[name], value.detach().numpy())


class Section:
    """Reads arrays of a section one after the other."""

    def __init__(self, file: ModelFile, kind: Kind, index: int = 0) -> None:
        self.data, self.place = file.read(kind, index), 0

    def take(self, dtype: type, *shape: int) -> np.ndarray:
        self.place += -self.place % LINE
        found = np.frombuffer(self.data, dtype, math.prod(shape), self.place).reshape(shape)
        self.place += found.nbytes
        return found

    def vector(self, size: int) -> np.ndarray:
        return self.take(np.float32, size + -size % TILE)[:size]

    def matrix(self, outputs: int, inputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The scale of each output, the bias, and the weights that the integers stand for."""
        scales, sums, bias = (self.vector(outputs) for _ in range(3))
        blocks, quads = -(-outputs // TILE), -(-inputs // QUAD)
        tiles = self.take(np.int8, blocks, quads, TILE, QUAD).transpose(0, 2, 1, 3)
        whole = tiles.reshape(blocks * TILE, quads * QUAD)[:outputs, :inputs]
        np.testing.assert_allclose(sums, whole.sum(axis=1) * scales, rtol=1e-6, atol=1e-6)
        return scales, bias, whole * scales[:, None]


@pytest.mark.parametrize("options", TRANSLATORS.values(), ids=TRANSLATORS)
def test_packed_weights_are_those_of_pytorch_within_half_a_step(tmp_path, options):
    model = random_model(50, **options)
    path = tmp_path / "file"
    path.write_bytes(packed(model))
    file = ModelFile.open(path)
    output = Section(file, Kind.OUTPUT)
    assert_close(output.matrix(50, 40), model.output.weight, None)
    for kind, stack in ((Kind.ENCODER_LAYER, model.encoder), (Kind.DECODER_LAYER, model.decoder)):
        for index, layer in enumerate(stack.distinct):
            section, names = Section(file, kind, index), ["attention_norm", "attention_qkv", "attention_out"]
            if kind == Kind.DECODER_LAYER:
                names += ["cross_norm", "cross_query", "cross_key_value", "cross_out"]
            for name in (*names, "ffn_norm", "ffn_up", "ffn_down"):
                part = getattr(layer, name)
                if isinstance(part, nn.Linear):
                    assert_close(section.matrix(*part.weight.shape), part.weight, part.bias)
                elif part is not None:
                    for value in (part.weight, part.bias):
                        np.testing.assert_array_equal(section.vector(40), value.detach().numpy())
            assert section.place == len(section.data)


def assert_close(found: tuple[np.ndarray, ...], weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    scales, found_bias, values = found
    assert (np.abs(values - weight.detach().numpy()) <= scales[:, None] * 0.5001).all()
    np.testing.assert_array_equal(found_bias, 0 if bias is None else bias.detach().numpy())


def test_positions_and_tables_are_those_of_pytorch(tmp_path):
    """The core adds what is here to the embeddings: the first token type is in it. Mere sinusoids are not stored."""
    for more in ({}, {"token_types": 2}, BERT):
        options = {"share_embeddings": "none", **more}
        model = random_model(50, **options)
        (tmp_path / "file").write_bytes(packed(model))
        section = Section(ModelFile.open(tmp_path / "file"), Kind.EMBEDDINGS)
        for table in (model.source_embedding, model.target_embedding):
            half = table.weight.detach().numpy().astype(np.float16)
            np.testing.assert_array_equal(section.take(np.float16, 50, 40), half)
        learned = model.positions is not None
        if more:
            positions = model.positions.weight if learned else model.positions_pd
            expected = (positions + model.types.weight[0]).detach().numpy()
            rows = section.take(np.float32, len(expected), 48)
            np.testing.assert_array_equal(rows[:, :40], expected)
            assert not rows[:, 40:].any()
        if model.config.norm == "layer":  # what comes next
            np.testing.assert_array_equal(section.vector(40), model.encoder.norm.weight.detach().numpy())


def test_weights_in_memory_are_taken_where_there_are_any(tmp_path):
    """They may have been changed since they were read."""
    folder = make_folder(tmp_path / "model", torch.float32)
    loaded = load_model(folder)
    with torch.no_grad():
        loaded.model.encoder.layers[0].ffn_up.bias += 1
    changed = LoadedModel(loaded.model, loaded.tokenizer, loaded.menu)
    assert loaded.fingerprint == changed.fingerprint != load_model(folder, defer=True).fingerprint
    assert packed(loaded.arrays) == packed(ModelArrays.of_model(loaded.model))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tensors: tensors["encoder.norm.bias"].fill(np.nan), "encoder.norm.bias has values that are not finite"),
        (lambda tensors: tensors.pop("encoder.norm.bias"), r"does not fit config\.json"),
        (
            lambda tensors: tensors.update({"encoder.norm.bias": np.zeros(40, np.int32)}),
            "encoder.norm.bias has the type I32",
        ),
    ],
)
def test_weights_that_cannot_be_used_are_refused(tmp_path, change, reason):
    folder = make_folder(tmp_path / "model", torch.float32)
    path = folder / "model.safetensors"
    before, tensors = file_sha256(path), load_file(path)
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(UserError, match=r"is damaged \(model\.safetensors is not what was saved\)"):
        native_model(load_model(folder, defer=True))
    config = (folder / "config.json").read_text("utf-8")
    (folder / "config.json").write_text(config.replace(before, file_sha256(path)), "utf-8")
    with pytest.raises(UserError, match=reason):
        native_model(load_model(folder, defer=True))
    assert not (folder / NAME).exists()

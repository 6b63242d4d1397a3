"""Recurrent stacking: one layer's weights at several places of a stack."""

import pytest
import torch
from cached import assert_cached_equals_uncached
from conftest import load_weights, run_recipe, toy_pairs
from pydantic import ValidationError

import anydepth
from anydepth.config import ModelConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer

SIZES = {"width": 32, "heads": 4, "ffn": 48, "encoder_layers": 4, "decoder_layers": 3, "max_length": 32}
PATTERNS = [
    {"encoder_shared": "all", "decoder_shared": "all"},
    {"encoder_shared": (1, 1, 2, 2), "decoder_shared": (1, 2, 1)},
]
SHORT = ["train.steps=8", "train.checkpoint_every=4", "train.valid_every=8", "train.log_every=2", "train.warmup=2"]
SHARED = ["model.encoder_shared=all", "model.decoder_shared=[1, 1]"]


@pytest.fixture
def batch() -> Batch:
    return Batch.from_rows([[5, 6, 7, 8], [9, 10], [11, 12, 13]], [[20, 21, 22], [23, 24, 25, 26], [27]])


def shared_model(pattern: dict[str, object]) -> Transformer:
    torch.manual_seed(1)
    return Transformer(ModelConfig(**SIZES, **pattern), 50).eval()


@pytest.mark.parametrize("pattern", PATTERNS)
@torch.no_grad()
def test_a_shared_layer_equals_layers_with_copies_of_its_weights(pattern, batch):
    shared = shared_model(pattern)
    unshared = Transformer(ModelConfig(**SIZES), 50).eval()
    unshared.load_state_dict(shared.state_dict())  # state_dict names a shared layer at each of its places
    for entry in DepthMenu.every_prefix(4, 3):
        inputs = (batch.source, batch.target_in, entry.subnetwork, batch.source_padding)
        torch.testing.assert_close(shared(*inputs), unshared(*inputs), rtol=0, atol=0)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_application_has_a_cache_of_its_own(pattern, batch):
    model = shared_model(pattern)
    for sub in [entry.subnetwork for entry in DepthMenu.every_prefix(4, 3)] + [SubNetwork((1, 3), (0, 2))]:
        assert_cached_equals_uncached(model, batch, sub)


def parameters(sub: SubNetwork, **changes: object) -> int:
    base = ModelConfig(width=512, heads=8, ffn=2048, encoder_layers=6, decoder_layers=6, **changes)
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(base, 2**15).used_parameters(sub))


def test_table_4_follows_from_the_config():
    """Transformer base, 32k, embeddings tied: 0.40; and 36 models against one tied one: 25.2 and 14.3 times."""
    deepest, everything = SubNetwork.prefix(6, 6), DepthMenu.every_prefix(6, 6)
    recurrent = {"encoder_shared": "all", "decoder_shared": "all"}
    one = parameters(deepest)
    assert round(parameters(deepest, **recurrent) / one, 2) == 0.40
    separate = sum(parameters(entry.subnetwork) for entry in everything)
    separate_recurrent = sum(parameters(entry.subnetwork, **recurrent) for entry in everything)
    assert separate / one == pytest.approx(25.16, rel=0.03)
    assert separate_recurrent / one == pytest.approx(14.33, rel=0.01)


def test_parameters_of_every_depth_count_a_shared_layer_once():
    recurrent = {"encoder_shared": "all", "decoder_shared": "all"}
    assert parameters(SubNetwork.prefix(1, 1), **recurrent) == parameters(SubNetwork.prefix(6, 6), **recurrent)
    assert parameters(SubNetwork.prefix(6, 1), **recurrent) == parameters(SubNetwork.prefix(1, 1))


def test_the_gradient_of_a_shared_layer_is_the_sum_over_its_places(batch):
    shared = shared_model(PATTERNS[0])
    unshared = Transformer(ModelConfig(**SIZES), 50).eval()
    unshared.load_state_dict(shared.state_dict())
    for model in (shared, unshared):
        model(batch.source, batch.target_in, model.full, batch.source_padding).square().mean().backward()
    for name, value in shared.encoder.layers[0].named_parameters():
        places = [dict(layer.named_parameters())[name].grad for layer in unshared.encoder.layers]
        torch.testing.assert_close(value.grad, torch.stack(places).sum(0), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [((1, 1, 1), "each of 4 layers"), ((2, 1, 1, 1), "in the order"), ((1, 1, 3, 3), "in the order"), ("some", "all")],
)
def test_a_pattern_that_does_not_fit_is_refused(pattern, words):
    with pytest.raises(ValidationError, match=words):
        ModelConfig(**SIZES, encoder_shared=pattern)


@pytest.mark.parametrize(
    "objective",
    [
        "{name: vanilla}",
        "{name: tied-multi, mode: exact}",
        "{name: flexible, encoder_tasks: 1}",
        "{name: layerdrop, encoder_p: 0.5, decoder_p: 0.5}",
    ],
)
def test_every_objective_trains_shared_layers_and_saves_them_once(toy_recipe, tmp_path, objective):
    run_recipe(toy_recipe, tmp_path / "run", *SHORT, *SHARED, f"objective={objective}")
    layers = {name.split(".")[2] for name in load_weights(tmp_path / "run") if ".layers." in name}
    assert layers == {"0"}
    translator = anydepth.load(tmp_path / "run", engine="torch")
    for entry in translator.menu:
        assert len(translator.translate(["le chat dort."], depth=entry.name)) == 1


def test_a_resumed_run_of_shared_layers_is_the_uninterrupted_one(toy_recipe, tmp_path):
    run_recipe(toy_recipe, tmp_path / "parts", *SHORT, *SHARED, "train.steps=4", "train.schedule=inverse-sqrt")
    run_recipe(toy_recipe, tmp_path / "parts", *SHORT, *SHARED, "train.schedule=inverse-sqrt")
    run_recipe(toy_recipe, tmp_path / "again", *SHORT, *SHARED, "train.schedule=inverse-sqrt")
    for name, value in load_weights(tmp_path / "again").items():
        torch.testing.assert_close(load_weights(tmp_path / "parts")[name], value, rtol=0, atol=0)


@pytest.mark.slow
def test_one_layer_applied_twice_learns_the_toy_language_at_every_depth(toy_recipe, tmp_path):
    run_recipe(toy_recipe, tmp_path / "run", *SHARED, "model.dropout=0")
    translator, pairs = anydepth.load(tmp_path / "run", engine="torch"), toy_pairs(40, seed=77)
    for entry in translator.menu:
        outputs = translator.translate([source for source, _ in pairs], depth=entry.name)
        right = sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True))
        assert right >= 30, f"{entry.name}: {right} of 40"

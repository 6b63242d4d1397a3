import pytest
import torch
import torch.nn.functional as F

from anydepth.config import LayerDropConfig, ModelConfig
from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.model import Transformer
from anydepth.objectives import make_objective
from anydepth.objectives.layerdrop import LayerDrop

CONFIG = ModelConfig(width=16, heads=2, ffn=24, encoder_layers=6, decoder_layers=3, dropout=0.0)
ROWS = ([[5, 6, 7, 8], [9, 10]], [[20, 21, 22], [23, 24, 25, 26]])


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CONFIG, 40)


def layerdrop(seed: int = 1, **options) -> LayerDrop:
    objective = make_objective(LayerDropConfig(name="layerdrop", **options), CONFIG, 0.1, seed)
    assert isinstance(objective, LayerDrop)
    return objective


def loss_alone(model, batch, sub):
    logits = model(batch.source, batch.target_in, sub, batch.source_padding)
    return F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=0, label_smoothing=0.1)


def test_the_loss_is_that_of_the_drawn_sub_network_and_the_others_get_zero_gradients(model):
    objective, batch = layerdrop(encoder_p=0.5, decoder_p=0.5), Batch.from_rows(*ROWS, place=(0, 3))
    for step in range(6):
        sub = objective.sample(batch, step)
        expected = loss_alone(model, batch, sub)
        model.zero_grad()
        loss = objective(model, batch, step)
        torch.testing.assert_close(loss.total, expected)
        loss.total.backward()
        for stack, used in ((model.encoder, sub.encoder), (model.decoder, sub.decoder)):
            for index, layer in enumerate(stack.layers):
                total = sum(float(p.grad.abs().sum()) for p in layer.parameters())
                assert (total > 0) == (index in used)


def test_each_layer_is_left_out_with_its_chance():
    objective = layerdrop(encoder_p=0.25, decoder_p=0.5)
    draws = [
        objective.sample(Batch.from_rows(*ROWS, place=(0, number)), step) for step in range(400) for number in (0, 1)
    ]
    for layer in range(6):
        share = sum(layer not in sub.encoder for sub in draws) / len(draws)
        assert abs(share - 0.25) < 4 * (0.25 * 0.75 / len(draws)) ** 0.5
    all_gone = 0.5**3  # then one of the three stays
    for layer in range(3):
        share = sum(layer not in sub.decoder for sub in draws) / len(draws)
        assert abs(share - (0.5 - all_gone / 3)) < 4 * 0.5 / len(draws) ** 0.5
    assert min(len(sub.decoder) for sub in draws) == 1


def test_draws_follow_seed_step_and_place_of_the_batch():
    objective = layerdrop(encoder_p=0.5, decoder_p=0.5)
    here, there = Batch.from_rows(*ROWS, place=(0, 1)), Batch.from_rows([[5]], [[6]], place=(0, 1))
    others = [Batch.from_rows(*ROWS, place=place) for place in ((0, 2), (1, 1))]  # (1, 1): when a step spans two epochs
    assert [objective.sample(here, s) for s in range(20)] == [objective.sample(there, s) for s in range(20)]
    for other in others:
        assert [objective.sample(here, s) for s in range(20)] != [objective.sample(other, s) for s in range(20)]
    assert [objective.sample(here, s) for s in range(20)] != [layerdrop(2).sample(here, s) for s in range(20)]


def test_without_dropping_it_is_the_vanilla_loss(model):
    objective, batch = layerdrop(encoder_p=0, decoder_p=0), Batch.from_rows(*ROWS)
    torch.testing.assert_close(objective(model, batch, 1).total, loss_alone(model, batch, model.full))


def test_the_menu_has_every_depth_with_its_layers_spread_from_the_first():
    menu = layerdrop().menu()
    assert len(menu) == 6 * 3
    assert menu["6-3"].subnetwork == SubNetwork.prefix(6, 3)
    assert menu["3-2"].subnetwork == SubNetwork((0, 2, 4), (0, 1))
    assert menu["4-1"].subnetwork == SubNetwork((0, 1, 3, 4), (0,))  # floor(i * 6 / 4)
    assert menu["1-1"].subnetwork == SubNetwork((0,), (0,))

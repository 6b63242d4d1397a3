"""The unit that learns which exit is the first to be right."""

import pytest
import torch
import torch.nn.functional as F

from anydepth.config import HaltingConfig, ModelConfig
from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.model import Transformer
from anydepth.objectives import OBJECTIVES, make_objective
from anydepth.objectives.halting import first_right_exit

LAYERS = 3
PLAIN = ModelConfig(width=16, heads=2, ffn=24, encoder_layers=LAYERS, decoder_layers=0, dropout=0.0, max_length=32)
CONFIG = OBJECTIVES["halting"].adapt_model(HaltingConfig(name="halting"), PLAIN)


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    made = Transformer(CONFIG, 40, classes=3)
    with torch.no_grad():  # exits that do not agree
        made.output.weight.mul_(10)
    return made


@pytest.fixture(params=["padded", "alike"])
def batch(request) -> Batch:
    short = [9, 10] if request.param == "padded" else [9, 10, 14, 15]
    return Batch.from_rows(
        [[5, 6, 7, 8], short, [11, 12, 13, 4], [16, 17, 18, 19]], [[0], [2], [1], [1]], labelled=True
    )


def objective(unit: float):
    return make_objective(HaltingConfig(name="halting", unit=unit), CONFIG, 0.1, seed=1, classifies=True)


def test_the_first_right_exit_by_hand():
    logits_ebc = torch.tensor(
        [
            [[2.0, 1.0], [2.0, 1.0], [1.0, 2.0], [2.0, 1.0]],
            [[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [2.0, 1.0]],
            [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [2.0, 1.0]],
        ]
    )
    label_b = torch.tensor([0, 1, 1, 1])
    # at once; from the second on; at once, though not at the second; never, which is the last
    assert first_right_exit(logits_ebc, label_b).tolist() == [0, 1, 0, 2]


def exits(model: Transformer, batch: Batch) -> list[torch.Tensor]:
    states = model.encode(batch.source, SubNetwork.prefix(LAYERS, 0), batch.source_padding)
    return [model.output(model.read_out(state, batch.source_padding)) for state in states]


@pytest.mark.parametrize("unit", [1.0, 0.5, 0.0])
def test_the_loss_by_hand(model, batch, unit):
    loss = objective(unit)(model, batch, step=1)
    of_exits = exits(model, batch)
    expected = sum(F.cross_entropy(logits, batch.labels, label_smoothing=0.1) for logits in of_exits) / LAYERS
    first = model.encode(batch.source, SubNetwork.prefix(1, 0), batch.source_padding)[0]
    of_tokens, wanted = [], []
    for row, label in enumerate(batch.labels):
        right = [number for number, logits in enumerate(of_exits) if logits[row].argmax() == label]
        for place, token in enumerate(batch.source[row]):
            if token != 0:
                of_tokens.append(model.halting(first[row, place]))
                wanted.append(right[0] if right else LAYERS - 1)
    assert len(set(wanted)) > 1
    of_unit = unit * F.cross_entropy(torch.stack(of_tokens), torch.tensor(wanted))
    torch.testing.assert_close(loss.parts["unit"], of_unit.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss.weighted(1, 1), expected + of_unit, rtol=1e-5, atol=1e-6)


def test_every_parameter_has_a_gradient_and_the_unit_teaches_the_first_layer(model, batch):
    objective(1.0)(model, batch, step=1).weighted(1, 1).backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("decoder."))
    with_unit = model.encoder.layers[0].ffn_up.weight.grad.clone()
    assert model.halting.weight.grad.abs().sum() > 0
    model.zero_grad()
    objective(0.0)(model, batch, step=1).weighted(1, 1).backward()
    assert model.halting.weight.grad.eq(0).all()
    assert not torch.allclose(model.encoder.layers[0].ffn_up.weight.grad, with_unit)


def test_it_asks_for_a_unit_and_offers_every_exit():
    assert CONFIG.halting
    assert objective(1.0).menu().names == ["1-0", "2-0", "3-0", "3-0-words"]
    assert objective(1.0).menu().default.name == "3-0-words"

"""Gates: weights of layers that are tensors, because they are being learnt."""

import pytest
import torch
from torch import nn

from anydepth.config import ModelConfig
from anydepth.depth import SubNetwork
from anydepth.model import Transformer
from anydepth.model.layers import Layer
from anydepth.model.stack import Stack

CONFIG = ModelConfig(width=16, heads=2, ffn=32, encoder_layers=3, decoder_layers=4, dropout=0.0)
FULL = SubNetwork.prefix(3, 4)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    return Transformer(CONFIG, vocabulary=40).eval()


def logits(model, sub=FULL, encoder=None, decoder=None):
    generator = torch.Generator().manual_seed(4)
    source, target = (torch.randint(4, 40, (2, length), generator=generator) for length in (5, 6))
    memory = model.memory(model.encode(source, sub, gates=encoder)[-1])
    return model.output(model.features(model.decode(target, memory, sub, gates=decoder)[-1]))


def test_gates_of_one_are_the_plain_model(model):
    gated = logits(model, encoder=torch.ones(3).unbind(), decoder=torch.ones(4).unbind())
    torch.testing.assert_close(gated, logits(model), rtol=0, atol=0)


def test_gates_of_zero_leave_layers_out(model):
    encoder, decoder = torch.tensor([1.0, 0, 1]), torch.tensor([0, 1.0, 1, 0])
    gated = logits(model, encoder=encoder.unbind(), decoder=decoder.unbind())
    torch.testing.assert_close(gated, logits(model, SubNetwork((0, 2), (1, 2))), rtol=0, atol=1e-5)


def test_gates_take_the_place_of_fixed_weights(model):
    values = (0.5, 0.25, 1.0, 0.75)
    fixed = SubNetwork(FULL.encoder, FULL.decoder, None, values)
    gated = logits(model, fixed, decoder=torch.tensor(values).unbind())
    torch.testing.assert_close(gated, logits(model, fixed), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(logits(model, fixed, decoder=torch.ones(4).unbind()), gated)


class Adds(Layer):
    """A layer whose only branch is a constant, for arithmetic by hand."""

    def __init__(self, branch):
        super().__init__(ModelConfig.model_construct(width=8, heads=1, ffn=8, dropout=0.0))
        self.branch = nn.Parameter(branch)

    def forward(self, x, weight):
        return self.join(x, self.branch, weight, None)


def test_a_gate_scales_its_branch_and_learns_from_it():
    """x = 1 + 0.25 * 4 + 0.5 * 2 = 3; d(x^2)/d(gate) = 2 x branch: 24, 12; d(x^2)/d(branch) = 2 x gate: 1.5, 3."""
    branches = iter([torch.tensor([4.0]), torch.tensor([2.0])])
    stack = Stack(lambda _: Adds(next(branches)), (0, 1), ModelConfig.model_construct(width=8))
    gates = torch.tensor([0.25, 0.5], requires_grad=True)
    states = stack(torch.tensor([1.0]), (0, 1), gates.unbind())
    assert [state.item() for state in states] == [2.0, 3.0]
    (states[-1] ** 2).sum().backward()
    assert gates.grad.tolist() == [24.0, 12.0]
    assert [float(layer.branch.grad) for layer in stack.layers] == [1.5, 3.0]

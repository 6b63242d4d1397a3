"""Dense connections (DLCL): what a layer reads is a learnt sum of all that ran before it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from anydepth.config import LayerDropConfig, ModelConfig
from anydepth.data import Batch
from anydepth.model import Transformer
from anydepth.model.stack import Stack
from anydepth.objectives import make_objective

ROWS = ((2.0,), (0.5, 3.0), (-1.0, 0.25, 4.0))  # W


class Adds(nn.Module):
    """A layer that adds a constant to what it reads."""

    def __init__(self, branch: torch.Tensor) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x, weight):
        return x + weight * self.branch


@pytest.fixture
def stack() -> Stack:
    branches = iter([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])])
    stack = Stack(lambda _: Adds(next(branches)), (0, 1), ModelConfig.model_construct(width=2, residual="dlcl"))
    with torch.no_grad():
        for row, values in zip(stack.dense.rows, ROWS, strict=True):
            row.copy_(torch.tensor(values))
        for place, norm in enumerate(stack.dense.norms):
            norm.weight.fill_(place + 1.0)  # one LN for each: of two numbers it gives -1 and 1, or 1 and -1, times this
    return stack


def test_two_layers_by_hand(stack):
    """With d = (1, -1): LN_0(5, 1) = d. The first layer reads 2 d = (2, -2), and gives y_1 = (3, -2): LN_1 = 2 d.

    The first exit is 0.5 d + 3 * 2 d = 6.5 d, which the second layer reads: y_2 = (6.5, -4.5), LN_2 = 3 d.
    The second exit is -d + 0.25 * 2 d + 4 * 3 d = 11.5 d.
    """
    first, second = stack(torch.tensor([5.0, 1.0]), (0, 1))
    torch.testing.assert_close(first, torch.tensor([6.5, -6.5]), atol=1e-4, rtol=0)
    torch.testing.assert_close(second, torch.tensor([11.5, -11.5]), atol=1e-4, rtol=0)


def test_a_layer_that_is_left_out_is_left_out_of_the_sums(stack):
    """The second layer alone reads 2 d, gives (2, 0), LN_2 = 3 d; its exit is -d + 4 * 3 d = 11 d."""
    (only,) = stack(torch.tensor([5.0, 1.0]), (1,))
    torch.testing.assert_close(only, torch.tensor([11.0, -11.0]), atol=1e-4, rtol=0)


def test_gradients_of_the_rows_are_the_normed_outputs(stack):
    states = stack(torch.tensor([5.0, 1.0]), (0, 1))
    states[-1][0].backward()
    torch.testing.assert_close(stack.dense.rows[2].grad, torch.tensor([1.0, 2.0, 3.0]), atol=1e-4, rtol=0)


def test_it_starts_as_the_mean():
    stack = Stack(lambda _: Adds(torch.zeros(8)), (0, 0, 0), ModelConfig.model_construct(width=8, residual="dlcl"))
    assert [row.tolist() for row in stack.dense.rows] == [
        [pytest.approx(1 / (k + 1))] * (k + 1) for k in range(4)
    ]  # a row for each place, though the layers are one
    x = torch.randn(2, 3, 8)
    for state in stack(x, (0, 1, 2)):  # nothing is added, and the norm of a normed x is itself
        torch.testing.assert_close(state, F.layer_norm(x, (8,)), atol=1e-4, rtol=1e-4)


def test_mixed_precision_does_not_round_the_stream():
    torch.manual_seed(1)
    model = Transformer(ModelConfig(width=16, heads=2, ffn=24, residual="dlcl", dropout=0.0), 40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = model.encode(torch.tensor([[5, 6, 3]]), model.full)
    assert {state.dtype for state in states} == {torch.float32}


def test_layers_that_a_step_leaves_out_have_gradient_zero_in_dense_connections_too():
    config = ModelConfig(width=16, heads=2, ffn=24, encoder_layers=6, decoder_layers=3, dropout=0.0, residual="dlcl")
    torch.manual_seed(1)
    model = Transformer(config, 40)
    drop = LayerDropConfig(name="layerdrop", encoder_p=0.5, decoder_p=0.5)
    objective = make_objective(drop, config, 0.1, 1)
    batch = Batch.from_rows([[5, 6, 7, 8], [9, 10]], [[20, 21, 22], [23, 24, 25, 26]], place=(0, 3))
    outputs = objective.forward_outputs(model, batch, 1)
    objective(model, batch, 1).total.backward()
    for stack, used in zip((model.encoder, model.decoder), outputs.layers, strict=True):
        assert 0 < len(used) < len(stack.layers)
        for index in range(len(stack.layers)):
            row, norm = stack.dense.rows[index + 1], stack.dense.norms[index + 1]
            assert bool(row.grad.any()) == (index in used)
            assert bool(norm.weight.grad.any()) == (index in used)

import pytest
import torch

from anydepth.config import TrainConfig
from anydepth.train.optim import learning_rate, make_optimiser


def test_inverse_sqrt_by_hand():
    config = TrainConfig(rate=0.004, warmup=100, schedule="inverse-sqrt", steps=10_000)
    assert learning_rate(1, config) == pytest.approx(0.00004)
    assert learning_rate(100, config) == pytest.approx(0.004)
    assert learning_rate(400, config) == pytest.approx(0.002)


def test_linear_would_reach_zero_after_the_last_step():
    config = TrainConfig(rate=0.004, warmup=100, schedule="linear", steps=299)
    assert learning_rate(50, config) == pytest.approx(0.002)
    assert learning_rate(200, config) == pytest.approx(0.002)
    assert learning_rate(299, config) == pytest.approx(0.00002)


def test_no_warmup():
    assert learning_rate(2, TrainConfig(rate=0.1, warmup=0, schedule="linear", steps=9)) == pytest.approx(0.08)
    assert learning_rate(4, TrainConfig(rate=0.1, warmup=0)) == pytest.approx(0.05)


def test_only_matrices_decay():
    named = {"matrix": torch.nn.Parameter(torch.ones(2, 2)), "bias": torch.nn.Parameter(torch.ones(2))}
    optimiser = make_optimiser(named, TrainConfig(weight_decay=0.5))
    for parameter in named.values():
        parameter.grad = torch.zeros_like(parameter)
    for group in optimiser.param_groups:
        group["lr"] = 0.1
    optimiser.step()
    assert named["matrix"].tolist() == [[pytest.approx(0.95)] * 2] * 2
    assert named["bias"].tolist() == [1, 1]

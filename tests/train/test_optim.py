import pytest
import torch

from anydepth.config import TrainConfig
from anydepth.objectives.base import ParameterGroup
from anydepth.train.optim import learning_rate, make_optimisers, optimiser_tensors, restore_optimisers


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
    (all_of_them,) = make_optimisers(named, [], TrainConfig(weight_decay=0.5))
    for parameter in named.values():
        parameter.grad = torch.zeros_like(parameter)
    all_of_them.set_rate(0.1)
    all_of_them.optimiser.step()
    assert named["matrix"].tolist() == [[pytest.approx(0.95)] * 2] * 2
    assert named["bias"].tolist() == [1, 1]


def test_a_group_has_a_rate_a_pace_and_a_norm_of_its_own():
    """The rate falls as that of all else does: at half of train.rate it is half of its own."""
    named = {"weight": torch.nn.Parameter(torch.ones(2, 2)), "gate": torch.nn.Parameter(torch.zeros(2))}
    rest, gates = make_optimisers(named, [ParameterGroup(("gate",), 0.04, 3)], TrainConfig(rate=0.01))
    assert (list(rest.named), list(gates.named)) == (["weight"], ["gate"])
    assert [step for step in range(1, 8) if gates.is_due(step)] == [3, 6]
    named["weight"].grad, named["gate"].grad = torch.full((2, 2), 100.0), torch.tensor([3.0, -4.0])
    assert gates.norm().item() == pytest.approx(5.0)
    gates.clip(1.0, gates.norm())
    assert named["gate"].grad.tolist() == pytest.approx([0.6, -0.8], abs=1e-5)
    gates.set_rate(0.005)
    gates.optimiser.step()
    assert named["gate"].tolist() == pytest.approx([-0.02, 0.02], rel=1e-5)
    kept = {name: value.clone() for name, value in optimiser_tensors([rest, gates]).items()}
    assert set(kept) == {"gate/step", "gate/exp_avg", "gate/exp_avg_sq"}
    again = make_optimisers(named, [ParameterGroup(("gate",), 0.04, 3)], TrainConfig(rate=0.01))
    restore_optimisers(again, kept)
    assert torch.equal(optimiser_tensors(again)["gate/exp_avg"], kept["gate/exp_avg"])

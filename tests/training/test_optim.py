import pytest
import torch

from anydepth.config import TrainConfig
from anydepth.objectives.base import ParameterGroup
from anydepth.training.optim import (
    Muon,
    learning_rate_at,
    make_optimizers,
    optimizer_tensors,
    orthogonalise,
    restore_optimizers,
)


def test_inverse_sqrt_by_hand():
    config = TrainConfig(learning_rate=0.004, warmup=100, schedule="inverse-sqrt", steps=10_000)
    assert learning_rate_at(1, config) == pytest.approx(0.00004)
    assert learning_rate_at(100, config) == pytest.approx(0.004)
    assert learning_rate_at(400, config) == pytest.approx(0.002)


def test_linear_would_reach_zero_after_the_last_step():
    config = TrainConfig(learning_rate=0.004, warmup=100, schedule="linear", steps=299)
    assert learning_rate_at(50, config) == pytest.approx(0.002)
    assert learning_rate_at(200, config) == pytest.approx(0.002)
    assert learning_rate_at(299, config) == pytest.approx(0.00002)


def test_stable_then_decaying():
    config = TrainConfig(learning_rate=0.004, warmup=100, schedule="wsd", decay=0.2, steps=1000)
    assert [learning_rate_at(step, config) for step in (50, 100, 500, 800)] == pytest.approx(
        [0.002, 0.004, 0.004, 0.004]
    )
    assert learning_rate_at(901, config) == pytest.approx(0.002)
    assert learning_rate_at(1000, config) == pytest.approx(0.00002)


def test_no_warmup():
    assert learning_rate_at(2, TrainConfig(learning_rate=0.1, warmup=0, schedule="linear", steps=9)) == pytest.approx(
        0.08
    )
    assert learning_rate_at(4, TrainConfig(learning_rate=0.1, warmup=0)) == pytest.approx(0.05)


def test_only_matrices_decay():
    named = {"matrix": torch.nn.Parameter(torch.ones(2, 2)), "bias": torch.nn.Parameter(torch.ones(2))}
    (all_of_them,) = make_optimizers(named, [], TrainConfig(weight_decay=0.5))
    for parameter in named.values():
        parameter.grad = torch.zeros_like(parameter)
    all_of_them.set_learning_rate(0.1)
    all_of_them.optimizer.step()
    assert named["matrix"].tolist() == [[pytest.approx(0.95)] * 2] * 2
    assert named["bias"].tolist() == [1, 1]


def test_a_group_has_a_rate_a_pace_and_a_norm_of_its_own():
    """The rate falls as that of all else does: at half of train.learning_rate it is half of its own."""
    named = {"weight": torch.nn.Parameter(torch.ones(2, 2)), "gate": torch.nn.Parameter(torch.zeros(2))}
    rest, gates = make_optimizers(named, [ParameterGroup(("gate",), 0.04, 3)], TrainConfig(learning_rate=0.01))
    assert (list(rest.named), list(gates.named)) == (["weight"], ["gate"])
    assert [step for step in range(1, 8) if gates.is_due(step)] == [3, 6]
    named["weight"].grad, named["gate"].grad = torch.full((2, 2), 100.0), torch.tensor([3.0, -4.0])
    assert gates.norm().item() == pytest.approx(5.0)
    gates.clip(1.0, gates.norm())
    assert named["gate"].grad.tolist() == pytest.approx([0.6, -0.8], abs=1e-5)
    gates.set_learning_rate(0.005)
    gates.optimizer.step()
    assert named["gate"].tolist() == pytest.approx([-0.02, 0.02], rel=1e-5)
    kept = {name: value.clone() for name, value in optimizer_tensors([rest, gates]).items()}
    assert set(kept) == {"gate/step", "gate/exp_avg", "gate/exp_avg_sq"}
    again = make_optimizers(named, [ParameterGroup(("gate",), 0.04, 3)], TrainConfig(learning_rate=0.01))
    restore_optimizers(again, kept)
    assert torch.equal(optimizer_tensors(again)["gate/exp_avg"], kept["gate/exp_avg"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_singular_values_come_near_one(dtype):
    torch.manual_seed(1)
    matrices = torch.randn(3, 40, 16) * torch.tensor([1e-3, 1.0, 1e3]).view(3, 1, 1)
    values = torch.linalg.svdvals(orthogonalise(matrices, dtype))
    assert values.min() > 0.6
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    alignment = ((left @ right) * orthogonalise(matrices, dtype)).sum((1, 2)) / 16
    assert alignment.min() > 0.8  # with the nearest orthogonal matrix


def test_muon_takes_the_steps_of_pytorchs():
    """Which orthogonalises in bfloat16, hence the tolerance."""
    torch.manual_seed(2)
    start, gradients = torch.randn(24, 16), torch.randn(5, 24, 16)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    muon = Muon({"encoder.layers.0.ffn_up.weight": ours}, momentum=0.9, weight_decay=0.1)
    reference = torch.optim.Muon([theirs], lr=0.02, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for group in muon.param_groups:
            group["lr"] = 0.02
        muon.step()
        reference.step()
    moved = (theirs - start).detach()
    assert ((ours - start).detach() - moved).norm() / moved.norm() < 0.02


def test_stacked_matrices_are_orthogonalised_one_by_one():
    torch.manual_seed(3)
    parts = [torch.randn(8, 8) for _ in range(3)]
    whole = torch.nn.Parameter(torch.zeros(24, 8))
    apart = [torch.nn.Parameter(torch.zeros(8, 8)) for _ in range(3)]
    named = {"encoder.layers.0.attention_qkv.weight": whole}
    named |= {f"encoder.layers.{i}.attention_out.weight": part for i, part in enumerate(apart)}
    whole.grad = torch.cat(parts)
    for parameter, gradient in zip(apart, parts, strict=True):
        parameter.grad = gradient
    muon = Muon(named, momentum=0.9, weight_decay=0.0)
    for group in muon.param_groups:
        group["lr"] = 1.0
    muon.step()
    torch.testing.assert_close(whole.detach(), torch.cat([part.detach() for part in apart]))


def test_muon_is_for_matrices_inside_layers_and_adam_for_the_rest():
    config = TrainConfig(optimizer="muon", learning_rate=0.01, muon_factor=3.0, precision="float32")
    named = {
        "encoder.layers.0.ffn_up.weight": torch.nn.Parameter(torch.ones(4, 2)),
        "encoder.layers.0.ffn_up.bias": torch.nn.Parameter(torch.ones(4)),
        "target_embedding.weight": torch.nn.Parameter(torch.ones(5, 2)),
    }
    muon, adam = make_optimizers(named, [], config)
    assert list(muon.named) == ["encoder.layers.0.ffn_up.weight"]
    assert isinstance(adam.optimizer, torch.optim.AdamW)
    assert muon.optimizer.dtype == torch.float32
    in_half = make_optimizers(named, [], config.model_copy(update={"precision": "bfloat16"}))
    assert in_half[0].optimizer.dtype == torch.bfloat16
    muon.set_learning_rate(0.01)
    assert muon.optimizer.param_groups[0]["lr"] == pytest.approx(0.03)
    for parameter in named.values():
        parameter.grad = torch.ones_like(parameter)
    for one in (muon, adam):
        one.optimizer.step()
    kept = {name: value.clone() for name, value in optimizer_tensors([muon, adam]).items()}
    again = make_optimizers(named, [], config)
    restore_optimizers(again, kept)
    assert optimizer_tensors(again).keys() == kept.keys()
    assert all(torch.equal(value, kept[name]) for name, value in optimizer_tensors(again).items())

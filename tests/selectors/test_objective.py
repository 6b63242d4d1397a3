"""The two losses of a selector, against values worked out by hand."""

import math

import numpy as np
import pytest
import torch

from anydepth.selectors.data import SelectorData, best_depths, label_shares
from anydepth.selectors.network import PAPER, SelectorConfig
from anydepth.selectors.objective import LEVEL_WEIGHT, DepthLabels, DepthValues, comparison_objective, make_objective

ONES = torch.ones(1)


def logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


def test_all_depths_with_the_best_chrf_are_labels():
    chrf = torch.tensor([[30.0, 50.0, 50.0], [20.0, 10.0, 0.0], [7.0, 7.0, 7.0]])
    assert best_depths(chrf).tolist() == [[0, 1, 1], [1, 0, 0], [1, 1, 1]]
    shares = label_shares(SelectorData([[5, 3]] * 3, chrf.numpy(), 2))
    torch.testing.assert_close(shares, torch.tensor([2 / 3, 2 / 3, 2 / 3]))


def test_equations_3_and_4_by_hand():
    """Probabilities 0.8, 0.4, 0.1; labels 1, 1, 0; shares 0.75, 0.5, 0.1; alpha 2, beta 2, lambda 0.3."""
    logits = torch.tensor([[logit(0.8), logit(0.4), logit(0.1)]])
    chrf = torch.tensor([[50.0, 50.0, 10.0]])
    loss = DepthLabels(torch.tensor([0.75, 0.5, 0.1]), 2.0, 2.0, 0.3).compute_loss(logits, chrf, ONES)
    bce = -(0.25**2 * math.log(0.8) + 0.5**2 * math.log(0.4) + math.log(0.9)) / 3
    precision, recall = 1.2 / 1.3, 1.2 / 2
    f_beta = 5 * precision * recall / (4 * precision + recall)
    assert float(loss.parts["bce"]) == pytest.approx(bce, rel=1e-5)
    assert float(loss.parts["f_beta"]) == pytest.approx(f_beta, rel=1e-5)
    assert float(loss.total) == pytest.approx(0.3 * bce + 0.7 * (1 - f_beta), rel=1e-5)


def test_the_gradient_of_the_labels_by_hand():
    """One sentence, probability p of the only label and q of the other depth; alpha 0, beta 1, lambda 0.5."""
    p, q = 0.7, 0.2
    logits = torch.tensor([[logit(p), logit(q)]], requires_grad=True)
    objective = DepthLabels(torch.tensor([0.5, 0.5]), 0.0, 1.0, 0.5)
    objective.compute_loss(logits, torch.tensor([[9.0, 1.0]]), ONES).total.backward()
    below = 1 + p + q  # F = 2 p / below
    bce = [-(1 - p) / 2, q / 2]
    f_beta = [(2 / below - 2 * p / below**2) * p * (1 - p), -2 * p / below**2 * q * (1 - q)]
    expected = [0.5 * a - 0.5 * b for a, b in zip(bce, f_beta, strict=True)]
    torch.testing.assert_close(logits.grad, torch.tensor([expected]))


def test_certain_outputs_give_finite_losses_and_gradients():
    logits = torch.tensor([[200.0, -200.0], [-200.0, 200.0], [-200.0, -200.0]], requires_grad=True)
    chrf = torch.tensor([[9.0, 1.0]] * 3)
    loss = DepthLabels(torch.tensor([1.0, 0.0]), 0.5, 0.5, 0.5).compute_loss(logits, chrf, torch.ones(3))
    loss.total.backward()
    assert torch.isfinite(loss.total.detach())
    assert torch.isfinite(logits.grad).all()


def test_chrf_is_learnt_as_level_and_differences_by_hand():
    """Deepest in the middle; two sentences that count 1 and 3."""
    chrf = torch.tensor([[40.0, 50.0, 45.0], [60.0, 62.0, 62.0]])
    output = torch.tensor([[-8.0, 47.0, -5.0], [0.0, 62.0, 1.0]])
    objective = DepthValues(1, torch.tensor([10.0, 4.0, 30.0]))
    loss = objective.compute_loss(output, chrf, torch.tensor([1.0, 3.0]))
    difference = (1 * (2**2 + 0) + 3 * (2**2 + 1**2)) / 4 / 40
    level = (1 * 3**2 + 3 * 0) / 4 / 4
    assert float(loss.parts["difference"]) == pytest.approx(difference)
    assert float(loss.parts["level"]) == pytest.approx(level)
    assert float(loss.total) == pytest.approx(difference + LEVEL_WEIGHT * level)


def test_the_mean_of_the_training_data_has_a_loss_of_one():
    rng = np.random.default_rng(1)
    sources = [[5] * int(length) + [3] for length in rng.integers(1, 9, 50)]
    data = SelectorData(sources, rng.uniform(0, 100, (50, 3)).astype(np.float32), 2)
    weight = torch.from_numpy(data.weights_n("values")).float()
    objective = make_objective(SelectorConfig(kind="values"), data)
    chrf = torch.from_numpy(data.quality_nk)
    split = torch.cat([chrf[:, :2] - chrf[:, 2:], chrf[:, 2:]], dim=1)
    mean = (weight[:, None] * split).sum(0) / weight.sum()
    loss = objective.compute_loss(mean.expand(50, 3), chrf, weight)
    assert float(loss.parts["difference"]) == pytest.approx(1, rel=1e-4)
    assert float(loss.parts["level"]) == pytest.approx(1, rel=1e-4)


def test_depths_that_never_differ_give_a_finite_loss():
    data = SelectorData([[5, 3]] * 4, np.full((4, 3), 50, np.float32), 2)
    objective = make_objective(SelectorConfig(kind="values"), data)
    loss = objective.compute_loss(torch.ones(4, 3), torch.from_numpy(data.quality_nk), torch.ones(4))
    assert math.isfinite(float(loss.total))


def test_the_yardstick_is_the_same_whatever_alpha_beta_and_lambda():
    chrf = np.array([[1, 2, 3], [3, 2, 1], [1, 1, 0]], np.float32)
    data = SelectorData([[5, 3]] * 3, chrf, 2)
    output = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    configs = [PAPER.model_copy(update={"alpha": a, "beta": b, "mix": m}) for a, b, m in ((0, 1, 0.5), (1, 2, 0.9))]
    rows = (output, torch.from_numpy(chrf), torch.ones(3))
    own = [float(make_objective(config, data).compute_loss(*rows).total) for config in configs]
    measured = [float(comparison_objective(config, data).compute_loss(*rows).total) for config in configs]
    assert own[0] != pytest.approx(own[1])
    assert measured == [own[0], own[0]]


def test_the_yardstick_of_values_is_their_differences():
    data = SelectorData([[5, 3]] * 3, np.array([[1, 2, 3], [3, 2, 1], [1, 1, 0]], np.float32), 2)
    loss = comparison_objective(SelectorConfig(kind="values"), data).compute_loss(
        torch.ones(3, 3), torch.from_numpy(data.quality_nk), torch.ones(3)
    )
    assert loss.total == loss.parts["difference"]

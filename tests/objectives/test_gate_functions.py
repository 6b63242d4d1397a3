"""The arithmetic of gates, by hand."""

import math

import pytest
import torch

from anydepth.objectives.gates import (
    aggregated_prior,
    annealed,
    beta_prior,
    chosen_layers,
    divergence,
    logistic_noise,
    mean_gate,
    off_target,
    ramp,
    sample,
)


def test_a_sample_is_a_sigmoid_with_logistic_noise():
    """u = 1/2 is no noise; u = 3/4 adds ln 3: with a logit of ln 3 the gate is 9 / (9 + 1), at tau 2 3 / (3 + 1)."""
    noise = logistic_noise(torch.tensor([0.5, 0.75], dtype=torch.float64))
    assert noise.tolist() == pytest.approx([0.0, math.log(3)])
    logits = torch.full((2,), math.log(3), dtype=torch.float64)
    assert sample(logits, noise, 1.0).tolist() == pytest.approx([0.75, 0.9])
    assert sample(logits, noise, 2.0)[1].item() == pytest.approx(0.75)


def test_noise_at_the_ends_is_finite():
    assert logistic_noise(torch.tensor([0.0, 1.0], dtype=torch.float64)).isfinite().all()


def test_hard_samples_are_0_or_1_and_have_the_gradient_of_soft_ones():
    logits = torch.tensor([1.0, -1.0], requires_grad=True)
    hard = sample(logits, torch.zeros(2), 1.0, hard=True)
    assert hard.tolist() == [1.0, 0.0]
    (3 * hard).sum().backward()
    q = torch.sigmoid(logits.detach())
    torch.testing.assert_close(logits.grad, 3 * q * (1 - q))


def test_the_mean_gate_is_that_of_the_samples_not_the_probability():
    """At tau 1 the mean is s (s - 1 - ln s) / (s - 1)^2 with s = e^a: 0.67604 for ln 3; sigmoid gives 0.75."""
    logit = torch.tensor([math.log(3.0), 0.0, -math.log(3.0)])
    closed = 3 * (3 - 1 - math.log(3)) / (3 - 1) ** 2
    assert mean_gate(logit, 1.0).tolist() == pytest.approx([closed, 0.5, 1 - closed], abs=2e-4)
    generator = torch.Generator().manual_seed(1)
    for tau in (0.2, 1.0, 5.0):
        noise = logistic_noise(torch.rand(200_000, generator=generator, dtype=torch.float64))
        assert mean_gate(logit[:1], tau).item() == pytest.approx(sample(logit[:1], noise, tau).mean().item(), abs=3e-3)


def test_the_divergence_has_both_terms():
    """0.75 ln(0.75 / 0.5) + 0.25 ln(0.25 / 0.5) = 0.13081; against 0.6, 0.75 ln 1.25 + 0.25 ln 0.625 = 0.04986."""
    logit = torch.tensor([math.log(3.0)])
    assert divergence(logit, 0.5).item() == pytest.approx(0.13081, abs=1e-5)
    assert divergence(logit, beta_prior(3, 2)).item() == pytest.approx(0.04986, abs=1e-5)
    assert divergence(torch.tensor([40.0, -40.0]), 0.5).tolist() == pytest.approx([math.log(2)] * 2)


def test_the_gradient_of_the_divergence():
    """d KL / d a = q (1 - q) (a - logit of p): 0.1875 ln 3 for q = 0.75 and p = 0.5."""
    logit = torch.tensor([math.log(3.0)], requires_grad=True)
    divergence(logit, 0.5).sum().backward()
    assert logit.grad.item() == pytest.approx(0.1875 * math.log(3), abs=1e-6)


def test_the_aggregated_prior_is_the_mean_and_takes_no_gradient():
    logits = torch.tensor([[math.log(3.0), 50.0], [-math.log(3.0), 50.0]], requires_grad=True)
    prior = aggregated_prior(logits)
    assert prior.tolist() == pytest.approx([0.5, 1.0], abs=1e-5)
    assert not prior.requires_grad
    assert divergence(logits, prior).isfinite().all()


def test_distance_from_the_target():
    """|0.2 + 0.9 + 0.5 - 2| = 0.4; of two pairs the mean: |1.6 / 2 + 2.4 / 2 - 2| = 0."""
    samples = torch.tensor([[0.2, 0.9, 0.5]], requires_grad=True)
    off = off_target(samples, 2)
    assert off.item() == pytest.approx(0.4)
    off.backward()
    assert samples.grad.tolist() == [[-1.0, -1.0, -1.0]]
    assert off_target(torch.tensor([[0.2, 0.9, 0.5], [0.8, 0.8, 0.8]]), 2).item() == pytest.approx(0.0, abs=1e-6)


def test_which_layers_are_chosen():
    logits = torch.tensor([0.3, -0.2, 0.3, 0.1])
    assert chosen_layers(logits, None) == (0, 2, 3)
    assert chosen_layers(logits, 1) == (0,)
    assert chosen_layers(logits, 2) == (0, 2)
    assert chosen_layers(logits, 4) == (0, 1, 2, 3)
    assert chosen_layers(torch.tensor([-3.0, -1.0, -2.0]), None) == (1,)
    assert chosen_layers(torch.zeros(3), None) == (0,)


def test_annealing_rises_from_zero_and_is_never_negative():
    assert [ramp(step, 10, 20) for step in (1, 10, 20, 30, 99)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert [annealed(step, 4.0, 1.0, 10) for step in (0, 5, 10, 50)] == pytest.approx([4.0, 2.0, 1.0, 1.0])

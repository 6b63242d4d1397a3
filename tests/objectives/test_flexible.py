from typing import get_args

import pytest
import torch
import torch.nn.functional as F

from anydepth.config import FlexibleConfig, ModelConfig
from anydepth.data import Batch
from anydepth.depth.assignment import STRATEGIES, assign
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.objectives import make_objective
from anydepth.objectives.flexible import Flexible

CONFIG = ModelConfig(width=16, heads=2, ffn=24, encoder_layers=6, decoder_layers=4, dropout=0.0)


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CONFIG, 40)


@pytest.fixture
def batch() -> Batch:
    return Batch.from_rows([[5, 6, 7, 8], [9, 10], [11, 12, 13]], [[20, 21, 22], [23, 24, 25, 26], [27]])


def flexible(config: ModelConfig = CONFIG, **options) -> Flexible:
    objective = make_objective(FlexibleConfig(name="flexible", **options), config, 0.1, seed=1)
    assert isinstance(objective, Flexible)
    return objective


def loss_of_task(model, batch, sub):
    """Lines 8 and 9 of Algorithm 1, for one task."""
    logits = model(batch.source, batch.target_in, sub, batch.source_padding)
    return F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=0, label_smoothing=0.1)


def gradients(model, loss):
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(model.parameters(), found, strict=True)]


def test_the_documented_strategies_are_the_real_ones():
    assert set(get_args(FlexibleConfig.model_fields["strategy"].annotation)) == set(STRATEGIES)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_loss_is_the_mean_over_all_tasks_with_its_gradients(model, batch, strategy):
    objective = flexible(strategy=strategy)
    subs = [entry.subnetwork for entry in objective.menu()]
    assert len(subs) == 4 * 3
    naive = sum(loss_of_task(model, batch, sub) for sub in subs) / len(subs)
    loss = objective(model, batch, step=1)
    torch.testing.assert_close(loss.total, naive, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(gradients(model, loss.total), gradients(model, naive), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_the_menu_of_a_12_6_model_has_24_depths_with_the_layers_of_the_strategy():
    menu = flexible(CONFIG.model_copy(update={"encoder_layers": 12, "decoder_layers": 6})).menu()
    assert menu.names == [f"{n}-{m}" for n in (1, 2, 3, 4, 6, 12) for m in (1, 2, 3, 6)]
    assert menu.deepest.name == "12-6"
    assert menu["4-2"].subnetwork.encoder == (1, 5, 7, 11)  # layers 2, 6, 8, 12
    assert menu["4-2"].subnetwork.decoder == assign("optimal", 6).layers(2)


@pytest.mark.parametrize(
    ("sides", "names"),
    [("encoder", ["1-4", "2-4", "3-4", "6-4"]), ("decoder", ["6-1", "6-2", "6-4"])],
)
def test_one_side_alone(model, batch, sides, names):
    objective = flexible(sides=sides)
    assert objective.menu().names == names
    naive = sum(loss_of_task(model, batch, entry.subnetwork) for entry in objective.menu()) / len(names)
    torch.testing.assert_close(objective(model, batch, step=1).total, naive, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_drawn_tasks_are_a_product_of_depths_and_estimate_the_whole_loss_without_bias(model, batch):
    """Every pair of draws of one encoder and one decoder depth comes up, and on average equally often."""
    sampled, whole = flexible(encoder_tasks=2, decoder_tasks=1), flexible()
    steps = 600
    with torch.no_grad():
        totals = torch.stack([sampled(model, batch, step).total for step in range(steps)])
        expected = whole(model, batch, 0).total
    assert abs(float(totals.mean() - expected)) < 4 * float(totals.std()) / steps**0.5
    assert len({round(float(total), 5) for total in totals}) == 6 * 3  # 2 of 4 encoder depths, 1 of 3 decoder depths


def test_draws_depend_on_seed_and_step_alone(model, batch):
    sampled = flexible(encoder_tasks=2, decoder_tasks=1)
    other = Batch.from_rows([[5, 6]], [[20, 21]])
    for step in range(20):
        ran = [tuple(sampled._sample(side, step)) for side in (0, 1)]
        sampled(model, other, step)
        assert ran == [tuple(sampled._sample(side, step)) for side in (0, 1)]
    assert len({tuple(sampled._sample(0, step)) for step in range(20)}) > 1


def test_layers_of_tasks_not_drawn_get_a_gradient_of_zero(model, batch):
    sampled = flexible(encoder_tasks=1, decoder_tasks=1)
    seen_zero = 0
    for step in range(8):
        used = set(sampled._sample(0, step)[0])
        model.zero_grad()
        sampled(model, batch, step).total.backward()
        for index, layer in enumerate(model.encoder.layers):
            total = sum(float(p.grad.abs().sum()) for p in layer.parameters())
            assert (total > 0) == (index in used)
            seen_zero += index not in used
    assert seen_zero


def test_a_prime_depth_is_warned_of():
    prime = CONFIG.model_copy(update={"encoder_layers": 7})
    assert len(flexible(prime).warnings(100)) == 1
    assert "prime" in flexible(prime).warnings(100)[0]
    assert flexible(prime, sides="decoder").warnings(100) == []
    assert flexible().warnings(100) == []


def test_some_depths_with_weights_of_their_own(model, batch):
    """The loss is the weighted mean over the tasks that are named; layers are chosen for these depths alone."""
    weights = {"6-4": 3.0, "1-2": 0.5}
    objective = flexible(encoder_depths=[6, 1, 3], decoder_depths=[2, 4], task_weights=weights)
    assert objective.menu().names == ["1-2", "1-4", "3-2", "3-4", "6-2", "6-4"]
    assert objective.menu()["3-2"].subnetwork.encoder == assign("optimal", 6, [1, 3, 6]).layers(3)
    counts = [weights.get(entry.name, 1.0) for entry in objective.menu()]
    losses = [loss_of_task(model, batch, entry.subnetwork) for entry in objective.menu()]
    naive = sum(count * loss for count, loss in zip(counts, losses, strict=True)) / sum(counts)
    loss = objective(model, batch, step=1)
    torch.testing.assert_close(loss.total, naive, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(gradients(model, loss.total), gradients(model, naive), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_weights_of_sampled_tasks_have_no_bias():
    """Over all choices of one encoder and one decoder depth of three, what a task counts is its share on average."""
    objective = flexible(encoder_depths=[1, 3, 6], encoder_tasks=1, decoder_tasks=1, task_weights={"6-4": 3.0})
    found = {(n, m): objective._weights([n], [m]).item() / 9 for n in (1, 3, 6) for m in (1, 2, 4)}
    assert found[6, 4] == pytest.approx(3 / 11)
    assert found[1, 2] == pytest.approx(1 / 11)
    assert sum(found.values()) == pytest.approx(1)


def test_depths_and_tasks_that_do_not_exist_are_refused():
    with pytest.raises(UserError, match=r"objective\.decoder_depths: 3 does not divide 4 layers: choose from 1, 2, 4"):
        flexible(decoder_depths=[3])
    with pytest.raises(UserError, match=r"there is no task 6-3; there are: 1-1, 1-2"):
        flexible(task_weights={"6-3": 2.0})
    for words, options in (
        ("encoder_depths has no effect where sides is decoder", {"sides": "decoder", "encoder_depths": [1]}),
        ("names a depth twice", {"encoder_depths": [2, 2]}),
    ):
        with pytest.raises(ValueError, match=words):
            flexible(**options)


def test_layers_that_no_task_trains_are_named():
    (warning,) = flexible(strategy="head", encoder_depths=[1, 3]).warnings(1)
    assert "no task uses encoder layer 4, 5, 6" in warning
    assert flexible(encoder_depths=[1, 6]).warnings(1) == []

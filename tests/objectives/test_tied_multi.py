import numpy as np
import pytest
import torch
import torch.nn.functional as F

from anydepth.config import ModelConfig, TiedMultiConfig, VanillaConfig
from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.model import Transformer
from anydepth.objectives import make_objective
from anydepth.objectives.tied_multi import TiedMulti

CONFIG = ModelConfig(width=16, heads=2, ffn=24, encoder_layers=3, decoder_layers=2, dropout=0.0)
RULES = ["uniform", "linear", "deepest"]
SOURCES, TARGETS = [[5, 6, 7, 8], [9, 10], [11, 12, 13]], [[20, 21, 22], [23, 24, 25, 26], [27]]
EXITS = ["one", "two", "sandwich"]


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CONFIG, 40)


@pytest.fixture
def batch() -> Batch:
    return Batch.from_rows(SOURCES, TARGETS)


def tied_multi(smoothing: float = 0.1, **options) -> TiedMulti:
    objective = make_objective(TiedMultiConfig(name="tied-multi", **options), CONFIG, smoothing, seed=1)
    assert isinstance(objective, TiedMulti)
    return objective


def loss_of_exit(model: Transformer, batch: Batch, n: int, m: int, smoothing: float) -> torch.Tensor:
    """Algorithm 1 read literally, for one (n, m)."""
    logits = model(batch.source, batch.target_in, SubNetwork.prefix(n, m), batch.source_padding)
    return F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=0, label_smoothing=smoothing)


def test_weights_by_hand():
    uniform = tied_multi(weights="uniform").weights()
    np.testing.assert_allclose(uniform, np.full((3, 2), 1 / 6))
    linear = tied_multi(weights="linear").weights()
    np.testing.assert_allclose(linear, np.array([[1, 2], [2, 4], [3, 6]]) / 18)
    deepest = tied_multi(weights="deepest", deepest_share=0.4).weights()
    np.testing.assert_allclose(deepest, [[0.12, 0.12], [0.12, 0.12], [0.12, 0.4]])
    both = tied_multi(weights="deepest", deepest_share=0.4, shallowest_share=0.2).weights()
    np.testing.assert_allclose(both, [[0.2, 0.1], [0.1, 0.1], [0.1, 0.4]])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"weights": "linear", "shallowest_share": 0.2}, "has no effect where weights is linear"),
        ({"weights": "deepest", "shallowest_share": 0.5}, "leave nothing for the other exits"),
    ],
)
def test_shares_that_cannot_be(options, says):
    with pytest.raises(ValueError, match=says):
        TiedMultiConfig(name="tied-multi", **options)


@pytest.mark.parametrize("rule", RULES)
def test_exact_equals_the_double_loop_with_its_gradients(model, batch, rule):
    objective = tied_multi(mode="exact", weights=rule)
    weights = objective.weights()
    naive = sum(weights[n - 1, m - 1] * loss_of_exit(model, batch, n, m, 0.1) for n in (1, 2, 3) for m in (1, 2))
    parameters = list(model.parameters())
    expected = torch.autograd.grad(naive, parameters)
    loss = objective(model, batch, step=1)
    torch.testing.assert_close(loss.total, naive, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(torch.autograd.grad(loss.total, parameters), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "exits", "rule"),
    [
        *(("sampled", "one", rule) for rule in RULES),
        ("sampled-encoder", "one", "linear"),
        ("sampled", "sandwich", "deepest"),
    ],
)
@pytest.mark.slow
def test_sampling_estimates_the_exact_loss_without_bias(model, batch, mode, exits, rule):
    """The mean over many steps, and the mean gradient, come to the exact ones as the number of samples grows."""
    exact = tied_multi(mode="exact", weights=rule)
    sampled = tied_multi(mode=mode, encoder_exits=exits, weights=rule)
    matrix = model.decoder.layers[0].ffn_up.weight
    loss = exact(model, batch, step=0)
    target = torch.autograd.grad(loss.total, matrix)[0]
    steps = 400
    totals, gradient = [], torch.zeros_like(target)
    for step in range(steps):
        one = sampled(model, batch, step)
        totals.append(float(one.total.detach()))
        gradient += torch.autograd.grad(one.total, matrix)[0] / steps
    standard_error = np.std(totals) / steps**0.5
    assert abs(np.mean(totals) - float(loss.total.detach())) < 4 * standard_error
    assert float((gradient - target).norm() / target.norm()) < 0.2


def sampled_exits(objective, batch, step):
    n_cb, _ = objective._sample_encoder(batch, step)
    return n_cb[0], objective._sample_decoder(batch, step, n_cb)[0].view(batch.target_out.shape)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("exits", EXITS)
def test_the_loss_is_that_of_the_exits_that_were_sampled(model, batch, exits, rule):
    """By its definition: for each sentence, the exits that it sampled with their weights, one forward pass for each."""
    objective = tied_multi(mode="sampled-encoder", encoder_exits=exits, weights=rule)
    given_nm = objective.weights() / objective.weights().sum(axis=1, keepdims=True)
    for step in range(3):
        n_cb, weight_cb = objective._sample_encoder(batch, step)
        torch.testing.assert_close(weight_cb.sum(0), torch.ones(3))
        wanted = torch.zeros(())
        for b in range(3):
            one = Batch.from_rows([SOURCES[b]], [TARGETS[b]])
            for n, weight in zip(n_cb[:, b].tolist(), weight_cb[:, b].tolist(), strict=True):
                for m in (1, 2):
                    share = weight * given_nm[n, m - 1] * one.target_tokens / batch.target_tokens
                    wanted = wanted + share * loss_of_exit(model, one, n + 1, m, 0.1)
        torch.testing.assert_close(objective(model, batch, step).total, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("exits", EXITS)
def test_what_an_encoder_exit_counts_is_its_weight_in_expectation(exits, rule):
    objective = tied_multi(encoder_exits=exits, weights=rule)
    many = Batch.from_rows([[5]] * 20_000, [[6]] * 20_000)
    n_cb, weight_cb = objective._sample_encoder(many, 3)
    found = np.zeros(3)
    np.add.at(found, n_cb.numpy().flatten(), weight_cb.numpy().flatten() / 20_000)
    np.testing.assert_allclose(found, objective.weights().sum(axis=1), atol=0.01)
    if exits == "sandwich":
        assert (n_cb[0] == 2).all()
        assert (n_cb[1] < 2).all()
    if exits == "two" and rule != "deepest":  # which has more than half of it
        assert (n_cb[0] != n_cb[1]).all()


def test_several_encoder_exits_where_there_is_no_choice(model, batch):
    alone = CONFIG.model_copy(update={"encoder_layers": 1})
    options = TiedMultiConfig(name="tied-multi", mode="sampled-encoder", encoder_exits="sandwich")
    torch.manual_seed(2)
    found, exact = (
        make_objective(one, alone, 0.1, seed=1)(Transformer(alone, 40), batch, 3).parts["nll"].shape
        for one in (options, TiedMultiConfig(name="tied-multi", mode="exact"))
    )
    assert found == exact == ()
    assert make_objective(options, CONFIG, 0.1, seed=1).warnings(1) == []
    exactly = TiedMultiConfig(name="tied-multi", mode="exact", encoder_exits="two")
    assert "objective.encoder_exits has no effect" in make_objective(exactly, CONFIG, 0.1, seed=1).warnings(1)[0]


@pytest.mark.slow
def test_two_encoder_exits_vary_less_than_one(model, batch):
    def spread(exits):
        objective = tied_multi(mode="sampled-encoder", encoder_exits=exits)
        return np.std([float(objective(model, batch, step).total.detach()) for step in range(200)])

    assert max(spread("two"), spread("sandwich")) < spread("one")


@pytest.mark.slow
def test_all_decoder_exits_vary_less_than_sampled_ones(model, batch):
    def spread(mode):
        objective = tied_multi(mode=mode)
        return np.std([float(objective(model, batch, step).total.detach()) for step in range(200)])

    assert spread("sampled-encoder") < spread("sampled")


def test_all_decoder_exits_of_a_given_encoder_exit(model, batch):
    """With one encoder exit nothing is left to sample, and the loss is the exact one."""
    one = CONFIG.model_copy(update={"encoder_layers": 1})
    torch.manual_seed(2)
    model = Transformer(one, 40)
    losses = [
        make_objective(TiedMultiConfig(name="tied-multi", mode=mode, weights="linear"), one, 0.1, seed=1)(
            model, batch, 3
        )
        for mode in ("exact", "sampled-encoder")
    ]
    torch.testing.assert_close(losses[1].total, losses[0].total)
    torch.testing.assert_close(losses[1].parts["nll"], losses[0].parts["nll"])


def test_exits_follow_the_weights():
    objective = tied_multi(weights="linear")
    batch = Batch.from_rows([[5]] * 400, [[6] * 19] * 400)
    counts = np.zeros((3, 2))
    for step in range(5):
        n_b, m_bt = sampled_exits(objective, batch, step)
        np.add.at(counts, (n_b[:, None].expand(m_bt.shape).numpy(), m_bt.numpy()), 1)
    np.testing.assert_allclose(counts / counts.sum(), objective.weights(), atol=0.02)


def test_draws_do_not_depend_on_the_rest_of_the_batch():
    objective = tied_multi()
    rows = [[5, 6]] * 6
    whole = sampled_exits(objective, Batch.from_rows(rows, rows, np.arange(6)), step=3)
    half = sampled_exits(objective, Batch.from_rows(rows[:3], rows[:3], np.array([4, 0, 2])), step=3)
    assert half[0].tolist() == [whole[0][i].item() for i in (4, 0, 2)]
    assert half[1].tolist() == [whole[1][i].tolist() for i in (4, 0, 2)]


def test_menus():
    assert tied_multi().menu().names == ["1-1", "1-2", "2-1", "2-2", "3-1", "3-2"]
    vanilla = make_objective(VanillaConfig(), CONFIG, 0.1, seed=1)
    assert vanilla.menu().names == ["3-2"]


def test_vanilla_is_the_loss_of_the_deepest_exit(model, batch):
    vanilla = make_objective(VanillaConfig(), CONFIG, 0.1, seed=1)
    torch.testing.assert_close(vanilla(model, batch, 1).total, loss_of_exit(model, batch, 3, 2, 0.1))

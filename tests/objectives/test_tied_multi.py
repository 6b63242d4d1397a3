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


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CONFIG, 40)


@pytest.fixture
def batch() -> Batch:
    return Batch.from_rows([[5, 6, 7, 8], [9, 10], [11, 12, 13]], [[20, 21, 22], [23, 24, 25, 26], [27]])


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


@pytest.mark.parametrize(("mode", "rule"), [*(("sampled", rule) for rule in RULES), ("sampled-encoder", "linear")])
@pytest.mark.slow
def test_sampling_estimates_the_exact_loss_without_bias(model, batch, mode, rule):
    """The mean over many steps, and the mean gradient, come to the exact ones as the number of samples grows."""
    exact, sampled = tied_multi(mode="exact", weights=rule), tied_multi(mode=mode, weights=rule)
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
    n_b = objective._sample_encoder(batch, step)
    return n_b, objective._sample_decoder(batch, step, n_b).view(batch.target_out.shape)


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

"""Latent depth on a real small model: the loss and who learns from it."""

import math

import pytest
import torch

from anydepth.config import LatentConfig, ModelConfig
from anydepth.data import Batch
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.objectives import make_objective
from anydepth.objectives.vanilla import Vanilla

MODEL = ModelConfig(width=16, heads=2, ffn=32, encoder_layers=2, decoder_layers=4, dropout=0.0)


def latent(pairs=("",), model=MODEL, **options):
    return make_objective(LatentConfig(name="latent", **options), model, 0.1, 1, pairs)


@pytest.fixture
def model():
    torch.manual_seed(1)
    return Transformer(MODEL, 40)


def batch(language=0, place=(0, 0)):
    made = Batch.from_rows([[5, 6, 7], [8, 9]], [[10, 11], [12, 13, 14]], place=place)
    made.language = language
    return made


def test_gates_of_nearly_one_are_the_vanilla_loss(model):
    objective = latent()
    for logits in objective.logits.values():
        logits.data.fill_(1000.0)
    wanted = Vanilla(None, MODEL, 0.1, 1)(model, batch(), 1)
    assert objective(model, batch(), 1).parts["nll"].item() == pytest.approx(wanted.parts["nll"].item(), rel=1e-6)


def test_the_loss_adds_up(model):
    """At step 5 of an annealing of 10, beta and lambda count half."""
    objective = latent(prior=(3, 1), beta=2.0, decoder_target=1, anneal_steps=10, **{"lambda": 0.5})
    loss = objective(model, batch(), 5)
    q, p = 0.5, 0.75
    kl = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))
    assert loss.parts["kl/encoder"].item() == pytest.approx(2 * kl, abs=1e-6)  # the sum over layers (Eq. 4)
    assert loss.parts["kl/decoder"].item() == pytest.approx(4 * kl, abs=1e-6)
    assert loss.parts["depth/decoder"].item() == pytest.approx(2.0)
    samples = torch.tensor(objective.report()["samples"]["decoder"]["all"])
    assert loss.parts["lk/decoder"].item() == pytest.approx(abs(float(samples.sum()) - 1), abs=1e-3)
    assert "lk/encoder" not in loss.parts
    bare = latent(prior=(3, 1), beta=0.0)(model, batch(), 5)
    added = 0.5 * 2.0 * 6 * kl + 0.5 * 0.5 * loss.parts["lk/decoder"].item()
    assert loss.total.item() == pytest.approx(bare.total.item() + added, rel=1e-5)


def test_only_the_last_inner_step_teaches_the_gates(model):
    objective = latent(inner_steps=3)
    for step in (1, 2, 3):
        loss = objective(model, batch(), step).total
        objective.zero_grad()
        model.zero_grad()
        loss.backward()
        learns = objective.logits["decoder"].grad is not None and objective.logits["decoder"].grad.abs().sum() > 0
        assert learns == (step == 3)
        assert model.decoder.layers[0].ffn_down.weight.grad.abs().sum() > 0
    (group,) = objective.groups()
    assert (set(group.names), group.every) == ({"logits.encoder", "logits.decoder"}, 3)


def test_the_gradient_of_a_gate_is_that_of_the_loss(model):
    """Against differences, on one logit of each side."""
    objective = latent(inner_steps=1, beta=0.7, decoder_target=2, anneal_steps=1)

    def loss():
        return objective(model, batch(), 7).total

    loss().backward()
    for side, place in (("encoder", 1), ("decoder", 2)):
        logit = objective.logits[side].data
        values = []
        for change in (0.02, -0.02):
            logit[0, place] += change
            values.append(loss().item())
            logit[0, place] -= change
        numeric = (values[0] - values[1]) / 0.04
        assert objective.logits[side].grad[0, place].item() == pytest.approx(numeric, rel=0.02)


def test_each_pair_has_gates_of_its_own(model):
    objective = latent(("en-fr", "en-es"), inner_steps=1, sides="decoder", beta=0.0)
    objective(model, batch(language=1), 1).total.backward()
    gradient = objective.logits["decoder"].grad
    assert gradient[0].abs().sum() == 0
    assert gradient[1].abs().min() > 0
    assert "encoder" not in objective.logits
    shared = latent(("en-fr", "en-es"), gates="shared")
    assert shared.logits["decoder"].shape == (1, 4)
    shared(model, batch(language=1), 1)


def test_each_batch_has_samples_of_its_own(model):
    """They follow from its place in the data, whichever process or resumed run comes to it."""
    objective = latent(("a-b", "a-c"))

    def drawn(place):
        objective(model, batch(place=place), 1)
        return objective.report()["samples"]

    assert drawn((0, 1)) == drawn((0, 1))
    assert drawn((0, 1)) != drawn((0, 2))
    assert drawn((0, 1)) != drawn((1, 1))
    assert drawn((0, 1))["decoder"]["a-b"] != drawn((0, 1))["decoder"]["a-c"]


def test_samples_may_be_0_or_1(model):
    objective = latent(samples="straight-through", inner_steps=1)
    objective(model, batch(), 1).total.backward()
    assert set(objective.report()["samples"]["decoder"]["all"]) == {0.0, 1.0}
    assert objective.logits["decoder"].grad.abs().min() > 0


def test_the_loss_of_two_pairs_adds_up(model):
    """The KL is that of the batch's pair against the mean of both, the distance from K that of their mean."""
    objective = latent(
        ("a-b", "a-c"), sides="decoder", prior="aggregated", decoder_target=1, anneal_from=10, anneal_steps=10
    )
    ln3 = math.log(3.0)
    objective.logits["decoder"].data = torch.tensor([[ln3, 0.0, 0.0, 0.0], [-ln3, 0.0, 0.0, ln3]])
    loss = objective(model, batch(language=1), 15)
    # Layer 1: 0.25 against the mean of 0.75 and 0.25; layer 4: 0.75 against the mean of 0.5 and 0.75.
    first = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    fourth = 0.75 * math.log(0.75 / 0.625) + 0.25 * math.log(0.25 / 0.375)
    assert loss.parts["kl/decoder"].item() == pytest.approx(first + fourth, abs=1e-6)
    assert loss.parts["depth/decoder"].item() == pytest.approx(0.25 + 0.5 + 0.5 + 0.75)
    one, other = (sum(objective.report()["samples"]["decoder"][pair]) for pair in ("a-b", "a-c"))
    assert loss.parts["lk/decoder"].item() == pytest.approx(abs((one + other) / 2 - 1), abs=1e-3)
    early = objective(model, batch(language=1), 10)  # the ramp begins after this one: nothing is added yet
    added = 0.5 * (loss.parts["kl/decoder"] + 0.1 * loss.parts["lk/decoder"]).item()
    same_tau = latent(("a-b", "a-c"), sides="decoder", beta=0.0)
    same_tau.logits["decoder"].data = objective.logits["decoder"].data
    assert loss.total.item() == pytest.approx(same_tau(model, batch(language=1), 15).total.item() + added, rel=1e-5)
    assert early.total.item() == pytest.approx(same_tau(model, batch(language=1), 10).total.item(), rel=1e-6)


def test_samples_get_nearer_to_0_or_1_as_the_temperature_falls(model):
    objective = latent(tau=4.0, tau_end=0.1, tau_steps=100)

    def spread(steps):
        found = []
        for step in steps:
            objective(model, batch(), step)
            found += objective.report()["samples"]["decoder"]["all"]
        return sum(abs(z - 0.5) for z in found) / len(found)

    assert spread(range(1, 11)) < 0.15
    assert spread(range(100, 110)) > 0.4


def test_the_temperature_stays_unless_it_is_told_to_fall(model):
    objective = latent(tau_steps=10)
    for step in (1, 1000):
        objective(model, batch(), step)
        assert objective.report()["tau"] == 5.0
    samples = torch.tensor([latent_samples(objective, model, place) for place in range(200)])
    assert samples.mean().item() == pytest.approx(0.5, abs=0.02)
    assert samples.std().item() == pytest.approx(0.09, abs=0.01)  # 0.38 at tau 0.5


def latent_samples(objective, model, place):
    objective._sample(batch(place=(0, place)), 1)
    return objective.report()["samples"]["decoder"]["all"]


def test_hard_and_soft_follow_the_gates(model):
    objective = latent(sides="decoder", decoder_target=2, tau=1.0, tau_end=1.0)
    objective.logits["decoder"].data = torch.tensor([[math.log(3.0), -1.0, 0.5, -2.0]])
    assert objective.hard(0).decoder == (0, 2)
    assert objective.hard(0).encoder == (0, 1)
    soft = objective.soft(0, step=9)
    assert (soft.decoder, soft.encoder_weights) == ((0, 1, 2, 3), None)
    assert soft.decoder_weights[0] == pytest.approx(0.67604, abs=1e-3)
    assert objective.validated().names == ["hard", "soft"]


def test_soft_is_the_mean_of_the_samples_at_the_present_temperature():
    logits = torch.tensor([[math.log(3.0), 0.0, 0.0, 0.0]])
    falling = latent(sides="decoder", tau=1.0, tau_end=0.2, tau_steps=10)
    hard = latent(sides="decoder", tau=1.0, tau_end=0.2, tau_steps=10, samples="straight-through")
    for objective in (falling, hard):
        objective.logits["decoder"].data = logits
    for step, wanted in ((0, 0.67604), (10, 0.7442)):
        assert falling.soft(0, step).decoder_weights[0] == pytest.approx(wanted, abs=1e-3)
        assert hard.soft(0, step).decoder_weights[0] == pytest.approx(0.75)  # how often they are 1


@torch.no_grad()
def test_soft_of_several_pairs_stays_in_the_menu(model):
    objective = latent(("en-fr", "en-es"), finish="soft", sides="decoder")
    objective.logits["decoder"].data = torch.tensor([[1.0, -1, -1, 1], [-1.0, -1, -1, 1]])
    done = finished(model, objective)
    assert done.menu.names == ["en-fr:2-4-soft", "en-es:2-4-soft"]
    weights = [entry.subnetwork.decoder_weights for entry in done.menu]
    assert weights[0][0] > 0.5 > weights[1][0]
    assert all(torch.equal(done.tensors[name], p) for name, p in model.named_parameters())


def finished(model, objective):
    tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
    return objective.finish(tensors, step=10)


def compute_logits(done, sub=None):
    model = Transformer(done.config, 40).eval()
    model.load_state_dict(done.tensors, strict=False)
    made = batch()
    return model(made.source, made.target_in, sub or model.full, made.source_padding)


def gated_logits(model, encoder, decoder):
    """The full model with these gates."""
    made = batch()
    states = model.encode(made.source, model.full, made.source_padding, gates=torch.tensor(encoder).unbind())
    gates = torch.tensor(decoder).unbind()
    states = model.decode(made.target_in, model.memory(states[-1]), model.full, made.source_padding, gates=gates)
    return model.output(model.features(states[-1]))


def random_model(norm):
    """With norms that differ from each other, so that none can be left out unnoticed."""
    torch.manual_seed(1)
    model = Transformer(MODEL.model_copy(update={"norm": norm}), 40).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("norm", ["layer", "none"])
@torch.no_grad()
def test_pruned_equals_gated_with_zeros(norm):
    model = random_model(norm)
    objective = latent(model=model.config, encoder_target=1, decoder_target=2)
    objective.logits["decoder"].data = torch.tensor([[0.4, -1.0, 0.5, -2.0]])
    objective.logits["encoder"].data = torch.tensor([[-0.1, 0.1]])
    done = finished(model, objective)
    assert done.menu.names == ["1-2", "2-4-soft"]
    hard = done.menu["1-2"].subnetwork
    gated = gated_logits(model, [0.0, 1.0], [1.0, 0.0, 1.0, 0.0])
    cut_out = done.cut_out[""]
    assert (cut_out.config.encoder_layers, cut_out.config.decoder_layers) == (1, 2)
    assert sum(t.numel() for t in cut_out.tensors.values()) < sum(t.numel() for t in done.tensors.values())
    for found in (compute_logits(done, hard), compute_logits(cut_out)):
        torch.testing.assert_close(found, gated, rtol=0, atol=1e-5)


@torch.no_grad()
def test_no_layer_of_a_post_norm_model_is_removed():
    """Its norms would go with it, and gated and pruned would differ."""
    model = random_model("post")
    for finish in ("both", "hard"):
        with pytest.raises(UserError, match=r"none can be removed: set objective\.finish=soft"):
            latent(model=model.config, finish=finish)
    objective = latent(model=model.config, finish="soft", decoder_target=2)
    objective.logits["decoder"].data = torch.tensor([[0.4, -1.0, 0.5, -2.0]])
    assert objective.validated().names == ["soft"]
    soft = objective.soft(0, step=10)
    done = finished(model, objective)
    assert (done.menu.names, done.cut_out) == (["2-4"], {})
    wanted = gated_logits(model, soft.encoder_weights, soft.decoder_weights)
    torch.testing.assert_close(compute_logits(done), wanted, rtol=0, atol=1e-5)
    two = latent(("a-b", "a-c"), model=model.config, finish="soft")
    assert finished(model, two).cut_out == {}


def test_fixed_gates_are_a_control(model):
    """Every branch counts half, in training and in the finished model, and there is nothing to learn."""
    objective = latent(fixed=0.5, sides="decoder")
    assert (list(objective.parameters()), objective.groups()) == ([], [])
    assert objective.warnings(10) == []
    loss = objective(model, batch(), 7)
    assert set(loss.parts) == {"nll"}
    loss.total.backward()
    assert model.decoder.layers[3].ffn_down.weight.grad.abs().sum() > 0
    assert objective.report()["samples"] == {"decoder": {"all": [0.5] * 4}}
    assert objective.validated().names == ["soft"]
    with torch.no_grad():
        done = finished(model.eval(), objective)
        assert (done.menu.names, done.cut_out, done.notes) == (["2-4"], {}, ())
        wanted = gated_logits(model, [1.0, 1.0], [0.5] * 4)
        torch.testing.assert_close(compute_logits(done), wanted, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="gates that are fixed do not learn: leave out beta, decoder_target"):
        latent(fixed=0.5, beta=0.3, decoder_target=2)
    with pytest.raises(ValueError, match="choose no layers"):
        latent(fixed=0.5, finish="hard")


@torch.no_grad()
def test_a_choice_that_means_little_is_told(model):
    objective = latent(sides="decoder", decoder_target=2)
    objective.logits["decoder"].data = torch.tensor([[0.3, -0.3, 0.1, -2.0]])
    (note,) = finished(model, objective).notes
    assert "the gates of the decoder have not settled: 75% of them" in note
    objective.logits["decoder"].data = torch.tensor([[3.0, -3.0, 0.1, -2.0]])
    assert finished(model, objective).notes == ()


@torch.no_grad()
def test_soft_folds_into_the_weights_of_one_language(model):
    both, soft = latent(), latent(finish="soft")
    for objective in (both, soft):
        objective.logits["decoder"].data = torch.tensor([[0.4, -1.0, 0.5, -2.0]])
    folded, weighted = finished(model, soft), finished(model, both)
    assert folded.menu.names == ["2-4"]
    wanted = compute_logits(weighted, weighted.menu["2-4-soft"].subnetwork)
    torch.testing.assert_close(compute_logits(folded), wanted, rtol=0, atol=1e-5)
    assert not torch.allclose(wanted, compute_logits(weighted), atol=1e-3)


@torch.no_grad()
def test_hard_alone_leaves_out_what_no_pair_runs(model):
    objective = latent(("en-fr", "en-es"), finish="hard", sides="decoder")
    objective.logits["decoder"].data = torch.tensor([[1.0, -1, -1, 1], [-1.0, -1, -1, 1]])
    done = finished(model, objective)
    assert done.config.decoder_layers == 2
    assert done.menu.names == ["en-fr:2-2", "en-es:2-1"]
    assert done.menu["en-es:2-1"].subnetwork.decoder == (1,)
    assert set(done.cut_out) == {"en-fr", "en-es"}
    assert finished(model, latent(finish="hard")).cut_out == {}  # of one pair the model itself is that
    cut_out = done.cut_out["en-es"]
    torch.testing.assert_close(compute_logits(done, done.menu["en-es:2-1"].subnetwork), compute_logits(cut_out))


@torch.no_grad()
def test_layers_that_share_weights_are_cut_out_too():
    torch.manual_seed(2)
    config = MODEL.model_copy(update={"decoder_shared": (1, 2, 2, 1)})
    model = Transformer(config, 40)
    objective = latent(model=config, sides="decoder")
    objective.logits["decoder"].data = torch.tensor([[-1.0, 1, 1, 1]])
    done = finished(model, objective)
    cut_out = done.cut_out[""]
    assert cut_out.config.decoder_shared == (1, 1, 2)
    torch.testing.assert_close(compute_logits(done, done.menu["2-3"].subnetwork), compute_logits(cut_out))


def test_what_makes_no_sense_is_refused():
    for words, options in (
        ("aggregated is the mean over language pairs", {"prior": "aggregated"}),
        ("decoder_target cannot be 5", {"decoder_target": 5}),
        ("set model.residual to plain", {"model": MODEL.model_copy(update={"residual": "rezero"})}),
    ):
        with pytest.raises(UserError, match=words):
            latent(**options)
    with pytest.raises(ValueError, match="encoder_target has no effect"):
        latent(sides="decoder", encoder_target=1)
    for prior in ([1], "foo", [0, 1], 3):
        with pytest.raises(ValueError, match="`aggregated` or two positive numbers"):
            latent(prior=prior)
    two = ("a-b", "a-c")
    with pytest.raises(UserError, match=r"one set of gates for them \(objective.gates\)"):
        latent(two, prior="aggregated", gates="shared")
    alone = MODEL.model_copy(update={"decoder_layers": 0})
    with pytest.raises(UserError, match="the model has no decoder"):
        latent(model=alone, sides="decoder")
    shared = MODEL.model_copy(update={"decoder_shared": "all"})
    with pytest.raises(UserError, match=r"set it to both, or model\.decoder_shared to none"):
        latent(model=shared, finish="soft")
    latent(model=shared, finish="soft", sides="encoder")


def test_what_a_user_should_know_is_said():
    in_time = {"tau": 2.0, "tau_end": 0.5, "tau_steps": 100, "anneal_steps": 50, "anneal_from": 50}
    assert latent(**in_time).warnings(100) == []
    assert "objective.lambda has no effect" in latent(**in_time, **{"lambda": 0.5}).warnings(100)[0]
    still_rising, still_warm = latent(**in_time).warnings(99)
    assert "still rising" in still_rising
    assert "objective.tau_steps is 100, train.steps 99" in still_warm
    assert "comes down to 0.51 and not 0.5" in still_warm

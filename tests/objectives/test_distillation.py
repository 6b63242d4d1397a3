"""A teacher's part in the loss of every objective, against plain computations of the same."""

from typing import get_args

import pytest
import torch
import torch.nn.functional as F

from anydepth.config import FlexibleConfig, LayerDropConfig, MapName, ModelConfig, TeacherConfig, TiedMultiConfig
from anydepth.config import VanillaConfig as Vanilla
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.depth.maps import MAPS, layer_map
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.objectives import make_distillation, make_objective

STUDENT = ModelConfig(width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=2, dropout=0.0)
LARGE = ModelConfig(width=24, heads=3, ffn=32, encoder_layers=6, decoder_layers=6, dropout=0.1)
DEEP = STUDENT.model_copy(update={"encoder_layers": 4, "decoder_layers": 3})


@pytest.fixture
def batch() -> Batch:
    return Batch.from_rows([[5, 6, 7, 8], [9, 10], [11, 12, 13]], [[20, 21, 22], [23, 24, 25, 26], [27]])


def transformer(config: ModelConfig, seed: int = 1) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(config, 40)


def taught(objective, student: ModelConfig, teacher: Transformer | None, **options):
    made = make_objective(objective, student, 0.1, seed=1)
    config = TeacherConfig(model="self" if teacher is None else "elsewhere", **{"method": "ckd", **options})
    known = None
    if teacher is not None:
        known = teacher, DepthMenu.every_prefix(teacher.config.encoder_layers, teacher.config.decoder_layers)
    made.teaching = make_distillation(config, known, made)
    return made


def real(batch: Batch):
    return batch.source != 0, batch.target_out != 0


def plain(model, batch, sub):
    """Label-smoothed cross-entropy, log-probabilities at the real target tokens, and states, one sub-network."""
    logits = model(batch.source, batch.target_in, sub, batch.source_padding)[real(batch)[1]]
    target = batch.target_out[real(batch)[1]]
    return F.cross_entropy(logits, target, label_smoothing=0.1), logits


def of_layers(objective, side, states, teacher_states, mask):
    """Eq. 3, with the objective's own projections."""
    total = 0.0
    for own, match in objective.teaching.matches[side][str(len(states))].items():
        target = match.fused({layer: one[mask] for layer, one in enumerate(teacher_states, 1)})
        state = states[int(own) - 1][mask]
        if match.project is not None and match.onto_student:
            target = match.project(target)
        elif match.project is not None:
            state = match.project(state)
        if match.by_direction:
            total = total + (2 - 2 * F.cosine_similarity(state, target, dim=-1)).mean()
        else:
            total = total + ((state - target) ** 2).mean()
    return total


def gradients(loss, *modules):
    parameters = [p for module in modules for p in module.parameters()]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def assert_same(loss, expected, *modules):
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for mine, other in zip(gradients(loss, *modules), gradients(expected, *modules), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


SQUARE = {"project": "teacher", "distance": "square"}


def test_the_documented_maps_are_the_real_ones():
    assert set(get_args(MapName)) == set(MAPS)


@pytest.mark.parametrize(
    ("name", "depth", "form"),
    [*((name, "5-4", {}) for name in MAPS), *((name, None, SQUARE) for name in list(MAPS)[:2])],
)
def test_the_whole_loss_of_a_plain_student(batch, name, depth, form):
    """(1 - eta - lambda) CE + eta KD + lambda CKD, from a wider and deeper teacher, at a depth of it."""
    model, teacher = transformer(STUDENT), transformer(LARGE, 2)
    shares = {"eta": 0.2, "lambda": 0.3}
    objective = taught(Vanilla(), STUDENT, teacher, map=name, depth=depth, temperature=1.5, **shares, **form)
    sub = SubNetwork.prefix(*(int(part) for part in (depth or "6-6").split("-")))
    loss = objective(model, batch, 1)

    teacher.eval()
    with torch.no_grad():
        q = (plain(teacher, batch, sub)[1] / 1.5).softmax(-1)
        shown = teacher.encode(batch.source, sub, batch.source_padding)
    ce, logits = plain(model, batch, model.full)
    kd = 1.5**2 * F.cross_entropy(logits / 1.5, q)
    ckd = of_layers(
        objective, "encoder", model.encode(batch.source, model.full, batch.source_padding), shown, real(batch)[0]
    )
    assert_same(loss.weighted(1, 1), 0.5 * ce + 0.2 * kd + 0.3 * ckd, model, objective)
    for part, expected in (("ce", ce), ("kd", kd), ("ckd", ckd)):
        torch.testing.assert_close(loss.parts[part], expected.detach())
    for own, layers in layer_map(name, len(sub.encoder), 2).items():
        assert objective.teaching.matches["encoder"]["2"][str(own)].layers == layers


def test_rkd_matches_outputs_alone_and_has_nothing_to_train(batch):
    model, teacher = transformer(STUDENT), transformer(LARGE, 2).eval()
    objective = taught(Vanilla(), STUDENT, teacher, method="rkd")
    assert list(objective.parameters()) == []
    ce, logits = plain(model, batch, model.full)
    q = plain(teacher, batch, teacher.full)[1].softmax(-1).detach()
    loss = objective(model, batch, 1)
    assert_same(loss.weighted(1, 1), 0.9 * ce + 0.1 * F.cross_entropy(logits, q), model)
    assert set(loss.parts) == {"nll", "ce", "kd"}


def test_pkd_with_attention_and_the_decoder_side(batch):
    model, teacher = transformer(STUDENT), transformer(LARGE, 2)
    objective = taught(Vanilla(), STUDENT, teacher, method="pkd", attention=True, sides="both", eta=0.0)
    loss = objective(model, batch, 1)
    assert set(loss.parts) == {"nll", "ce", "pkd", "attention"}
    teacher.eval()
    source, target = real(batch)
    states = model.encode(batch.source, model.full, batch.source_padding, with_attention=True)
    with torch.no_grad():
        shown = teacher.encode(batch.source, teacher.full, batch.source_padding, with_attention=True)
        of_decoder = teacher.decode(batch.target_in, teacher.memory(shown[-1]), teacher.full, batch.source_padding)
    decoded = model.decode(batch.target_in, model.memory(states[-1]), model.full, batch.source_padding)
    layers = of_layers(objective, "encoder", states, shown, source)
    layers = layers + of_layers(objective, "decoder", decoded, of_decoder, target)
    attention = 0.0
    for own, other in ((0, 2), (1, 5)):  # heads differ, so their means are compared
        q, p = shown.attention[other].mean(1), states.attention[own].mean(1)
        apart = torch.where(q > 0, q * (q.clamp(min=1e-30).log() - p.clamp(min=1e-30).log()), 0.0).sum(-1)
        attention = attention + apart[source].mean()
    ce = plain(model, batch, model.full)[0]
    assert_same(loss.weighted(1, 1), 0.3 * ce + 0.7 * (layers + attention), model, objective)


@pytest.mark.parametrize("sides", ["encoder", "decoder", "both"])
@pytest.mark.parametrize("weights", ["uniform", "linear"])
def test_self_distillation_of_all_exits_equals_the_double_loop(batch, sides, weights):
    """The deepest exit learns from the references alone, and no gradient reaches it as a teacher."""
    model = transformer(DEEP)
    exact = TiedMultiConfig(name="tied-multi", mode="exact", weights=weights)
    objective = taught(exact, DEEP, None, sides=sides, eta=0.2, **{"lambda": 0.3})
    source, target = real(batch)
    with torch.no_grad():
        q = plain(model, batch, model.full)[1].softmax(-1)
        shown = model.encode(batch.source, model.full, batch.source_padding)
        of_decoder = model.decode(batch.target_in, model.memory(shown[-1]), model.full, batch.source_padding)
    total = 0.0
    for n in range(1, 5):
        for m in range(1, 4):
            sub = SubNetwork.prefix(n, m)
            ce, logits = plain(model, batch, sub)
            states = model.encode(batch.source, sub, batch.source_padding)
            decoded = model.decode(batch.target_in, model.memory(states[-1]), sub, batch.source_padding)
            whole = {"encoder": n == 4, "decoder": m == 3, "both": n == 4 and m == 3}
            eta, share = (0.0 if whole["both"] else 0.2), (0.0 if whole[sides] else 0.3)
            layers = torch.zeros(())
            if sides != "decoder" and n < 4:
                layers = layers + of_layers(objective, "encoder", states, shown, source)
            if sides != "encoder" and m < 3:
                layers = layers + of_layers(objective, "decoder", decoded, of_decoder, target)
            loss = (1 - eta - share) * ce + eta * F.cross_entropy(logits, q) + 0.3 * layers
            total = total + float(objective.weights()[n - 1, m - 1]) * loss
    assert_same(objective(model, batch, 1).weighted(1, 1), total, model, objective)
    assert model.training


@pytest.mark.parametrize(("sides", "exits"), [("encoder", "one"), ("decoder", "one"), ("decoder", "sandwich")])
@pytest.mark.slow
def test_sampled_exits_estimate_the_same_without_bias(batch, sides, exits):
    """Also where what a decoder exit counts depends on the encoder exit that it goes with: `deepest` is no product."""
    model = transformer(DEEP)
    exact, sampled = (
        taught(
            TiedMultiConfig(name="tied-multi", mode=mode, encoder_exits=exits, weights="deepest", deepest_share=0.8),
            DEEP,
            None,
            method="pkd",
            eta=0.3,
            sides=sides,
        )
        for mode in ("exact", "sampled")
    )
    with torch.no_grad():
        losses = [sampled(model, batch, step) for step in range(1, 401)]
        expected = exact(model, batch, 1)
    for found, wanted in (
        (torch.stack([loss.weighted(1, 1) for loss in losses]), expected.weighted(1, 1)),
        (torch.stack([loss.parts["pkd"] for loss in losses]), expected.parts["pkd"]),
    ):
        assert abs(float(found.mean() - wanted)) <= 4 * float(found.std()) / 400**0.5 + 1e-6


def test_drawn_depths_leave_the_projections_of_others_with_zero_gradients(batch):
    model = transformer(DEEP)
    layerdrop = taught(LayerDropConfig(name="layerdrop", encoder_p=0.5), DEEP, transformer(LARGE, 2))
    flexible = taught(FlexibleConfig(name="flexible", encoder_tasks=1, decoder_tasks=1), DEEP, transformer(LARGE, 2))
    for objective in (layerdrop, flexible):
        ran = set()
        for step in range(1, 9):
            objective.zero_grad()
            objective(model, batch, step).weighted(1, 1).backward()
            depths = {
                depth
                for depth, matches in objective.teaching.matches["encoder"].items()
                if sum(float(p.grad.abs().sum()) for p in matches.parameters()) > 0
            }
            assert len(depths) == 1
            ran |= depths
        assert len(ran) > 1


def test_the_teacher_is_frozen_and_no_part_of_what_is_trained_or_stored(batch):
    model, teacher = transformer(STUDENT), transformer(LARGE, 2)
    objective = taught(Vanilla(), STUDENT, teacher)
    first, second = (objective(model, batch, 1).weighted(1, 1) for _ in range(2))
    assert torch.equal(first, second)  # its dropout of 0.1 is off
    assert not any(p.requires_grad for p in teacher.parameters())
    names = [f"teaching.matches.encoder.2.{layer}.project.{kind}" for layer in (1, 2) for kind in ("weight", "bias")]
    assert list(objective.state_dict()) == names
    assert torch.equal(next(taught(Vanilla(), STUDENT, teacher).parameters()), next(objective.parameters()))


def test_before_it_begins_a_teacher_changes_nothing(batch):
    model, teacher = transformer(STUDENT), transformer(LARGE, 2)
    objective, alone = (
        taught(Vanilla(), STUDENT, teacher, start_step=5),
        make_objective(Vanilla(), STUDENT, 0.1, seed=1),
    )
    before = objective(model, batch, 5)
    assert torch.equal(before.weighted(1, 1), alone(model, batch, 5).weighted(1, 1))
    assert all(float(g.abs().sum()) == 0 for g in gradients(before.weighted(1, 1), objective))
    assert "ckd" in objective(model, batch, 6).parts


def test_explicit_maps(batch):
    teacher = transformer(LARGE, 2)
    objective = taught(Vanilla(), STUDENT, teacher, map={2: (4, 6)})
    assert {key: match.layers for key, match in objective.teaching.matches["encoder"]["2"].items()} == {"2": (4, 6)}
    assert torch.isfinite(objective(transformer(STUDENT), batch, 1).weighted(1, 1))
    for wrong, words in (
        ({1: (1, 7)}, r"of the encoder, .*teacher layer 7, but the teacher has 6 layers"),
        ({3: (1,)}, r"student layer 3, but the student has 2 layers"),
        ({}, r"teacher\.map is empty"),
    ):
        with pytest.raises(UserError, match=words):
            taught(Vanilla(), STUDENT, teacher, map=wrong)
    with pytest.raises(UserError, match="student of one depth"):
        taught(TiedMultiConfig(name="tied-multi"), DEEP, teacher, map={1: (1, 3)})


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UserError, match="several depths"):
        taught(Vanilla(), STUDENT, None)
    with pytest.raises(UserError, match=r"teacher\.depth: the teacher has no depth 7-7"):
        taught(Vanilla(), STUDENT, transformer(LARGE), depth="7-7")
    decoder_only = FlexibleConfig(name="flexible", sides="decoder")
    with pytest.raises(UserError, match="the encoder has only one depth"):
        taught(decoder_only, DEEP, None)
    taught(decoder_only, DEEP, None, sides="decoder")
    for options, words in (
        ({"eta": 0.5, "lambda": 0.6}, r"more than 1, and 0\.5 \+ 0\.6 is"),
        ({"eta": 0.0, "lambda": 1.0}, "nothing trains the outputs"),
        ({"lambda": True}, "cannot be true or false"),
        ({"map": {1: "first"}}, "choose from last"),
        ({"map": {0: [1]}}, "choose from last"),
        ({"map": ["last"]}, "choose from last"),
        ({"temperature": float("inf")}, "finite"),
        ({"method": "pkd", "map": "overlap"}, "use method: ckd"),
        ({"method": "pkd", "map": {1: (1, 2)}}, "use method: ckd"),
        ({"method": "pkd", "fusion": "mean"}, "nothing to combine"),
    ):
        with pytest.raises(ValueError, match=words):
            TeacherConfig(model="elsewhere", **options)
    assert TeacherConfig(model="self", method="pkd", map={1: 3, "2": 6}).map == {1: (3,), 2: (6,)}
    assert (TeacherConfig(model="self").method, TeacherConfig(model="elsewhere").method) == ("rkd", "ckd")
    for options, idle in (
        ({"method": "rkd", "map": "skip", "lambda": 0.9}, ["map", "lambda"]),
        ({"fusion": "attention", "map": "skip"}, ["map"]),
        ({"fusion": "attention", "map": {2: [4, 6]}}, []),
        ({"eta": 0.0, "temperature": 2.0}, ["temperature"]),
        ({"lambda": 0.0, "fusion": "mean"}, ["fusion"]),
        ({"sides": "decoder", "attention": True}, ["attention"]),
        ({"map": "skip", "depth": "6-6"}, []),
    ):
        assert TeacherConfig(model="elsewhere", **options).idle_keys() == idle
    assert TeacherConfig(model="self", depth="6-6", map="skip").idle_keys() == ["map", "depth"]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_gives_about_the_same_gradients(batch, kind):
    """Of the student and of the projections, with shared layers too; a teacher that is the student itself is cast as
    well, which must not cost the student its gradients."""
    shared = DEEP.model_copy(update={"encoder_shared": (1, 1, 2, 2)})
    for config, teacher in ((STUDENT, transformer(LARGE, 2)), (shared, None)):
        model = transformer(config)
        objective = taught(TiedMultiConfig(name="tied-multi", mode="exact"), config, teacher, attention=True)
        whole = gradients(objective(model, batch, 1).weighted(1, 1), model, objective)
        with torch.autocast("cpu", dtype=kind):
            half = gradients(objective(model, batch, 1).weighted(1, 1), model, objective)
        one, other = (torch.cat([g.flatten() for g in found]) for found in (whole, half))
        assert float((one - other).norm() / one.norm()) < 0.05


def test_pkd_projects_if_asked_to(batch):
    """The control for ckd: widths agree and one layer is matched with one, and there is a projection all the same."""
    model, teacher = transformer(STUDENT), transformer(DEEP, 2)
    plainly = taught(Vanilla(), STUDENT, teacher, method="pkd")
    assert list(plainly.teaching.parameters()) == []
    objective = taught(Vanilla(), STUDENT, teacher, method="pkd", always_project=True)
    matches = objective.teaching.matches["encoder"]["2"]
    assert {own: tuple(match.project.weight.shape) for own, match in matches.items()} == {"1": (16, 16), "2": (16, 16)}
    loss = objective(model, batch, 1)
    teacher.eval()
    with torch.no_grad():
        shown = teacher.encode(batch.source, teacher.full, batch.source_padding)
    states = model.encode(batch.source, model.full, batch.source_padding)
    expected = of_layers(objective, "encoder", states, shown, real(batch)[0])
    torch.testing.assert_close(loss.parts["pkd"], expected.detach())
    idle = TeacherConfig(model="elsewhere", method="rkd", always_project=True).idle_keys()
    assert idle == ["always_project"]


@pytest.mark.parametrize("method", ["rkd", "pkd", "ckd"])
@pytest.mark.parametrize("norms", [("post", "post"), ("layer", "post"), ("post", "layer")])
def test_a_post_norm_student_or_teacher(batch, method, norms):
    """Against plain computations; there is no norm after the last layer of a post-norm stack."""
    own, other = (
        config.model_copy(update={"norm": norm}) for config, norm in zip((STUDENT, LARGE), norms, strict=True)
    )
    model, teacher = transformer(own), transformer(other, 2)
    objective = taught(Vanilla(), own, teacher, method=method, eta=0.2, **{"lambda": 0.3})
    loss = objective(model, batch, 1)
    teacher.eval()
    with torch.no_grad():
        q = plain(teacher, batch, teacher.full)[1].softmax(-1)
        shown = teacher.encode(batch.source, teacher.full, batch.source_padding)
    ce, logits = plain(model, batch, model.full)
    expected = 0.8 * ce + 0.2 * F.cross_entropy(logits, q)
    if method != "rkd":
        states = model.encode(batch.source, model.full, batch.source_padding)
        expected = expected - 0.3 * ce + 0.3 * of_layers(objective, "encoder", states, shown, real(batch)[0])
    assert_same(loss.weighted(1, 1), expected, model, objective)

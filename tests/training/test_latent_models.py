"""Runs with latent depth: gates with an optimizer of their own, exact resume, and what they finish in."""

import shutil

import pytest
import torch
from conftest import load_weights, made_once, run_recipe, toy_pairs
from safetensors.torch import load_file

import anydepth
from anydepth.objectives.gates import mean_gate
from anydepth.training.checkpoint import load_tensors
from anydepth.training.run_log import read_log

pytestmark = pytest.mark.slow

DEEP = ["model.encoder_layers=2", "model.decoder_layers=4"]
SHORT = ["train.checkpoint_every=1", "train.average=1", "train.valid_every=100", "train.log_every=1", "train.warmup=4"]
LATENT = "objective={name: latent, gate_learning_rate: 0.02, inner_steps: 2, anneal_steps: 10, decoder_target: 2}"
FALLING = LATENT.replace("}", ", tau: 2.0, tau_end: 0.5, tau_steps: 50}")


def gates_at(run, step):
    return load_tensors(run, step, "objective")


def test_gates_have_an_optimizer_and_a_pace_of_their_own(toy_recipe, tmp_path):
    """Adam's first step is the rate, whatever the gradient: at update 2 of a warm-up of 4, half of 0.02."""
    run_recipe(toy_recipe, tmp_path / "run", *DEEP, *SHORT, LATENT, "train.steps=4", "train.average=4")
    at = [gates_at(tmp_path / "run", step)["logits.decoder"] for step in (1, 2, 3, 4)]
    assert at[0].abs().max() == 0
    torch.testing.assert_close(at[1].abs(), torch.full((1, 4), 0.01), rtol=1e-3, atol=0)
    assert torch.equal(at[1], at[2])
    assert not torch.equal(at[2], at[3])


def test_interrupted_and_resumed_equals_uninterrupted(toy_recipe, tmp_path):
    settings = [*DEEP, *SHORT, LATENT, "train.schedule=inverse-sqrt"]
    run_recipe(toy_recipe, tmp_path / "whole", *settings, "train.steps=7")
    run_recipe(toy_recipe, tmp_path / "parts", *settings, "train.steps=3")
    assert "resuming from step 3" in run_recipe(toy_recipe, tmp_path / "parts", *settings, "train.steps=7")
    for name, value in load_weights(tmp_path / "whole").items():
        assert torch.equal(value, load_weights(tmp_path / "parts")[name]), name
    one, other = (gates_at(tmp_path / name, 7) for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def latent_run(toy_recipe, tmp_path_factory):
    """Two of four decoder layers, learnt on the toy language."""
    target = "decoder_target: 2, tau: 1.0, tau_end: 0.1, tau_steps: 200, anneal_steps: 70, gate_learning_rate: 0.1"
    objective = f"objective={{name: latent, sides: decoder, samples: straight-through, {target}}}"
    changes = [
        *DEEP,
        objective,
        "model.dropout=0",
        "train.learning_rate=8.0e-3",
        "train.steps=450",
        "train.valid_every=225",
    ]
    return made_once(tmp_path_factory, "latent", lambda to: run_recipe(toy_recipe, to / "run", *changes)) / "run"


def right(translator, depth=None, count=40):
    pairs = toy_pairs(count, seed=77)
    outputs = translator.translate([source for source, _ in pairs], depth=depth)
    return sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True))


def test_a_pruned_model_is_the_default_and_translates(latent_run):
    translator = anydepth.load(latent_run, engine="torch")
    assert translator.menu.names == ["2-2", "2-4-soft"]
    assert translator.menu[None].name == "2-2"
    assert right(translator) >= 25
    assert right(translator, "2-4-soft") >= 15


def test_info_says_which_layers_they_are(latent_run, here):
    layers = anydepth.load(latent_run, engine="torch").menu["2-2"].subnetwork.decoder
    said = here("info", latent_run).stdout.decode()
    assert f"decoder {' '.join(str(layer + 1) for layer in layers)} " in said
    assert "all, weighted" in said


def test_the_layers_of_the_pruned_model_are_a_folder_of_their_own(latent_run):
    whole, pruned = anydepth.load(latent_run, engine="torch"), anydepth.load(latent_run / "pruned", engine="torch")
    assert pruned.model.config.decoder_layers == 2
    sources = [source for source, _ in toy_pairs(30, seed=5)]
    assert pruned.translate(sources) == whole.translate(sources, depth="2-2")
    one, other = (
        len((folder / "model.safetensors").read_bytes()) for folder in (latent_run / "pruned", latent_run / "model")
    )
    assert one < 0.8 * other


def test_the_finished_gates_are_those_of_the_averaged_checkpoints(toy_recipe, tmp_path):
    """Weights and gates are the mean over the same steps."""
    run = tmp_path / "run"
    said = run_recipe(toy_recipe, run, *DEEP, *SHORT[2:], FALLING, "train.steps=8", "train.checkpoint_every=2")
    assert f"pruned: {run / 'pruned'} (2-2)" in said
    assert "note: the gates of the encoder have not settled: 100% of them" in said
    mean = sum(gates_at(run, step)["logits.decoder"] for step in (6, 8)) / 2
    tau = 2.0 * (0.5 / 2.0) ** (8 / 50)
    wanted, of_the_last = (mean_gate(one[0], tau) for one in (mean, gates_at(run, 8)["logits.decoder"]))
    found = torch.tensor(
        anydepth.load(run, engine="torch").menu["2-4-soft"].subnetwork.decoder_weights, dtype=torch.float64
    )
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-7)
    assert (found - of_the_last).abs().max() > 1e-5


def test_the_log_tells_of_gates(latent_run):
    records = [record for record in read_log(latent_run) if record["kind"] == "train"]
    last = records[-1]
    assert last["layers_selected"] == {"decoder": {"all": 2}}
    assert len(last["probability"]["decoder"]["all"]) == len(last["samples"]["decoder"]["all"]) == 4
    assert records[0]["beta"] < last["beta"] == 1.0
    assert records[0]["tau"] > last["tau"] == 0.1
    assert {"kl/decoder", "lk/decoder", "depth/decoder", "nll", "loss"} <= last.keys()
    valid = [record for record in read_log(latent_run) if record["kind"] == "valid"]
    assert set(valid[0]["bleu"]) == {"hard", "soft"}


def test_an_artifact_has_forgotten_its_gates(latent_run, tmp_path):
    shutil.copytree(latent_run / "model", tmp_path / "model")
    assert not any("logits" in name for name in load_file(tmp_path / "model" / "model.safetensors"))
    assert right(anydepth.load(tmp_path / "model", engine="torch")) >= 25

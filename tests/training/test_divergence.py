"""A run that diverges says when, where and what to do, and loses nothing."""

import json
import math

import pytest
import torch
from conftest import anydepth, run_recipe

from anydepth.config import ModelConfig
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.training.checkpoint import saved_steps
from anydepth.training.logging import GradientNorms, divergence_error, layer_norms
from anydepth.training.run_log import read_log

inf = math.inf


def test_whose_gradient_is_to_blame():
    seen = GradientNorms()
    assert seen.largest({}) is None
    seen.record(50, {"encoder.1": 1.0, "decoder.1": 0.5, "decoder.2": 3.0})
    seen.record(100, {"encoder.1": 1.0, "decoder.1": inf, "decoder.2": 4.0})
    assert seen.step == 50
    # From the loss down to the first broken layer all is well: that one is named, not those below it.
    assert seen.largest({"encoder.1": math.nan, "decoder.1": inf, "decoder.2": 4.0})[0] == "decoder.1"
    # Nothing is finite any more: the largest of when they all were.
    name, words = seen.largest({"encoder.1": math.nan, "decoder.1": inf, "decoder.2": inf})
    assert name == "decoder.2"
    assert "step 50" in words
    # The layers are as they should be, and something else is not, such as the sum of their squares.
    assert seen.largest({"encoder.1": 1e30, "decoder.1": 2.0, "decoder.2": 2.0}) == ("encoder.1", "1e+30")
    # The gradients are gone, as after an update.
    assert seen.largest({"encoder.1": 0.0, "decoder.1": 0.0, "decoder.2": 0.0})[0] == "decoder.2"
    said = str(divergence_error("by step 112", (name, words), "rest"))
    assert said.startswith("training diverged by step 112")
    assert "decoder layer 2" in said
    assert said.endswith("rest")


BROKEN = ["train.steps=60", "train.checkpoint_every=5", "train.warmup=0", "train.valid_every=100"]
WILD = ["train.learning_rate=1e30", "train.clip=1e30"]


def set_rate(run, rate, clip):
    """As if the run had been begun with these."""
    recipe = json.loads((run / "recipe.json").read_text("utf-8"))
    recipe["train"] |= {"learning_rate": rate, "clip": clip}
    (run / "recipe.json").write_text(json.dumps(recipe), "utf-8")


def test_a_run_that_diverges_keeps_what_was_saved(toy_recipe, tmp_path):
    """Well until step 10, where it is saved, and then with a rate that breaks it: before the first line of the log."""
    run = tmp_path / "run"
    healthy = [*BROKEN[1:], "train.schedule=inverse-sqrt", "train.log_every=50"]
    run_recipe(toy_recipe, run, *healthy, "train.steps=10")
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    set_rate(run, 1e30, 1e30)
    with pytest.raises(UserError, match=r"diverged at step 12: .*coder layer \d") as raised:
        run_recipe(toy_recipe, run, *healthy, "train.steps=60", *WILD)
    assert "train.learning_rate" in str(raised.value)
    last = read_log(run)[-1]
    assert (last["kind"], last["step"]) == ("diverged", 12)
    assert last["layer"].startswith(("encoder.", "decoder."))
    assert saved_steps(run) == [5, 10]
    assert {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()} == before
    set_rate(run, 1e-2, 1.0)
    assert "resuming from step 10" in run_recipe(toy_recipe, run, *healthy, "train.steps=15")
    assert all(record["kind"] != "diverged" for record in read_log(run))


def test_a_validation_that_is_not_finite_is_seen_before_anything_is_saved(toy_recipe, tmp_path):
    """Weights of 1e30 are finite, and so was the loss before them."""
    often = ["train.valid_every=1", "train.checkpoint_every=1", "train.log_every=1"]
    with pytest.raises(UserError, match="diverged at step 1"):
        run_recipe(toy_recipe, tmp_path / "run", *BROKEN[:1], "train.warmup=0", *often, *WILD)
    assert saved_steps(tmp_path / "run") == []
    assert "NaN" not in (tmp_path / "run" / "log.jsonl").read_text("utf-8")


def test_layers_that_share_weights_are_named_by_their_place():
    torch.manual_seed(1)
    config = ModelConfig(width=16, heads=2, ffn=32, encoder_layers=2, decoder_layers=4, decoder_shared=(1, 1, 2, 2))
    assert list(layer_norms(Transformer(config, 20))) == ["encoder.1", "encoder.2", "decoder.1", "decoder.3"]


@pytest.mark.slow
def test_on_the_command_line_it_is_one_line(toy_recipe, tmp_path):
    settings = [part for change in [*BROKEN, *WILD] for part in ("--set", change)]
    done = anydepth("train", toy_recipe, "--out", tmp_path / "run", *settings)
    assert done.returncode == 2
    said = done.stderr.decode().strip().splitlines()
    assert "Traceback" not in done.stderr.decode()
    assert said[-1].startswith("anydepth: training diverged at step")
    assert not (tmp_path / "run" / "model").exists()

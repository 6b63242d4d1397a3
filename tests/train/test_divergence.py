"""A run that diverges says when, where and what to do, and loses nothing."""

import math

import pytest
from conftest import anydepth, run_recipe

from anydepth.errors import UserError
from anydepth.evaluate.run_log import read_log
from anydepth.train.checkpoint import load_tensors, saved_steps
from anydepth.train.divergence import Gradients, divergence

inf = math.inf


def test_whose_gradient_is_to_blame():
    seen = Gradients()
    assert seen.largest({}) is None
    seen.note(50, {"encoder.1": 1.0, "decoder.1": 0.5, "decoder.2": 3.0})
    seen.note(100, {"encoder.1": 1.0, "decoder.1": inf, "decoder.2": 4.0})
    assert seen.step == 50
    # From the loss down to the first broken layer all is well: that one is named, not those below it.
    assert seen.largest({"encoder.1": math.nan, "decoder.1": inf, "decoder.2": 4.0})[0] == "decoder.1"
    # Nothing is finite any more: the largest of when they all were.
    name, words = seen.largest({"encoder.1": math.nan, "decoder.1": inf, "decoder.2": inf})
    assert name == "decoder.2"
    assert "step 50" in words
    said = str(divergence(112, (name, words)))
    assert "step 112" in said
    assert "decoder layer 2" in said
    assert "train.rate" in said


BROKEN = ["train.steps=60", "train.checkpoint_every=5", "train.log_every=1", "train.warmup=0", "train.valid_every=100"]


def test_a_run_that_diverges_keeps_what_was_saved(toy_recipe, tmp_path):
    run = tmp_path / "run"
    run_recipe(toy_recipe, run, *BROKEN[1:], "train.steps=10", "train.schedule=inverse-sqrt")
    before = load_tensors(run, 10, "model")
    with pytest.raises(UserError, match=r"diverged at step \d+.*layer \d") as raised:
        run_recipe(toy_recipe, tmp_path / "other", *BROKEN, "train.rate=1e30", "train.clip=1e30")
    last = read_log(tmp_path / "other")[-1]
    assert last["kind"] == "diverged"
    assert f"step {last['step']:,}" in str(raised.value)
    assert all(step < last["step"] for step in saved_steps(tmp_path / "other"))
    assert_equal(before, load_tensors(run, 10, "model"))


def assert_equal(one, other):
    assert all(one[name].equal(other[name]) for name in one)


def test_on_the_command_line_it_is_one_line(toy_recipe, tmp_path):
    settings = [part for change in [*BROKEN, "train.rate=1e30", "train.clip=1e30"] for part in ("--set", change)]
    done = anydepth("train", toy_recipe, "--out", tmp_path / "run", *settings)
    assert done.returncode == 2
    said = done.stderr.decode().strip().splitlines()
    assert "Traceback" not in done.stderr.decode()
    assert said[-1].startswith("anydepth: training diverged at step")
    assert not (tmp_path / "run" / "model").exists()

"""A run that learns no more than the frequencies of its outputs says so; it has not diverged, and has not succeeded."""

import json
import math

import numpy as np
import pytest
from conftest import run_recipe

from anydepth.data.shards import PairStore, StoreWriter
from anydepth.training.plateau import find_plateau, is_on_plateau, plateau_advice, unigram_entropy
from anydepth.training.run_log import read_log

STUCK = [
    "model.norm=post",
    "model.decoder_layers=8",
    "objective={name: vanilla}",
    "train.learning_rate=0.2",
    "train.warmup=0",
]
SHORT = ["train.steps=120", "train.valid_every=120", "train.checkpoint_every=60", "train.valid_sentences=5"]


def store(tmp_path, name, targets):
    with StoreWriter(tmp_path, name, 100) as writer:
        for target in targets:
            writer.add([5], target)
    return PairStore(tmp_path, name)


def test_the_entropy_of_the_targets(tmp_path):
    pairs = store(tmp_path, "train", [[10, 11], [10, 12]])
    share = np.array([2, 1, 1, 2]) / 6  # two ends
    wanted = -float((share * np.log(share)).sum())
    assert unigram_entropy([pairs], "translation") == pytest.approx(wanted)
    assert unigram_entropy([pairs], "text") == pytest.approx(1.5 * math.log(2))
    labels = store(tmp_path, "labels", [[0], [1], [0], [1]])
    assert unigram_entropy([labels], "labels") == pytest.approx(math.log(2))
    assert unigram_entropy([pairs, labels], "text") == pytest.approx(1.25 * math.log(2))


def test_what_counts_as_the_plateau():
    assert is_on_plateau(5.4, 5.5, 1000)
    assert is_on_plateau(7.0, 5.5, 1000)
    assert not is_on_plateau(5.0, 5.5, 1000)
    assert not is_on_plateau(7.0, 5.5, 99)  # too early to say
    assert "model.norm" not in plateau_advice("layer", "lower the rate")
    assert plateau_advice("post", "lower the rate").endswith("model.norm=layer")


def test_a_run_that_has_not_logged_is_not_judged(tmp_path):
    assert find_plateau(tmp_path, 5.5, "") is None


@pytest.mark.slow
def test_a_stuck_run_says_so_everywhere(toy_recipe, tmp_path):
    run = tmp_path / "run"
    said = run_recipe(toy_recipe, run, *STUCK, *SHORT)
    assert "is no better than guessing by subword frequency" in said
    last = said.strip().splitlines()[-1]
    assert last.startswith("warning: this run sits on the unigram plateau: its loss of ")
    assert all(words in last for words in ("lower train.learning_rate", "longer train.warmup", "model.norm=layer"))
    found = json.loads((run / "finished.json").read_text("utf-8"))["plateau"]
    assert found["nll"] > 0.95 * found["entropy"]
    assert "Warning: this run sits on the unigram plateau" in (run / "model" / "README.md").read_text("utf-8")
    (warned,) = [record for record in read_log(run) if record["kind"] == "plateau"]
    assert warned["step"] >= 100
    again = run_recipe(toy_recipe, run, *STUCK, *SHORT)
    assert again.strip().splitlines()[-1] == last


@pytest.mark.slow
def test_a_run_that_learns_does_not(toy_recipe, tmp_path):
    said = run_recipe(toy_recipe, tmp_path / "run", *SHORT)
    assert "warning" not in said
    assert json.loads((tmp_path / "run" / "finished.json").read_text("utf-8"))["plateau"] is None
    assert not [record for record in read_log(tmp_path / "run") if record["kind"] == "plateau"]

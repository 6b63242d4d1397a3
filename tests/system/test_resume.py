"""kill -9 at any moment, the same command again: the finished weights equal the uninterrupted run's to the bit."""

import random
import signal
import subprocess
import sys
import time

import pytest
from conftest import anydepth

pytestmark = pytest.mark.slow

CHANGES = [
    "train.steps=60",
    "train.checkpoint_every=5",
    "train.valid_every=10",
    "train.log_every=5",
    "model.dropout=0.2",
    "train.optimiser=muon",
    "data.augment={lower: 0.3, join: 0.2}",
]
SETTINGS = [word for change in CHANGES for word in ("--set", change)]


def model_bytes(run):
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(toy_recipe, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    done = anydepth("train", toy_recipe, "--out", run, *SETTINGS, fresh=True)
    assert done.returncode == 0, done.stderr
    return model_bytes(run)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again(toy_recipe, tmp_path, uninterrupted, seed):
    rng = random.Random(seed)
    run = tmp_path / "run"
    command = [sys.executable, "-m", "anydepth", "train", str(toy_recipe), "--out", str(run), *SETTINGS]
    kills = 0
    while not (run / "finished.json").exists():
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            if kills < 4:
                wait_for_progress(process, run, rng)
            else:
                process.wait()
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        kills += 1
        assert kills < 10
    assert kills >= 3
    assert model_bytes(run) == uninterrupted


def wait_for_progress(process, run, rng):
    """Until a new checkpoint is there or being written, then a moment more."""
    folder = run / "checkpoints"
    before = {path.name for path in folder.glob("*")}
    while process.poll() is None and {path.name for path in folder.glob("*")} <= before:
        time.sleep(0.002)
    time.sleep(rng.random() * 0.1)


def test_a_torn_checkpoint_costs_only_its_steps(toy_recipe, tmp_path, uninterrupted):
    run = tmp_path / "run"
    assert anydepth("train", toy_recipe, "--out", run, *SETTINGS).returncode == 0
    (run / "finished.json").unlink()
    newest = sorted((run / "checkpoints").iterdir())[-1]
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    (run / "model" / "config.json").unlink()
    done = anydepth("train", toy_recipe, "--out", run, *SETTINGS)
    assert done.returncode == 0, done.stderr
    assert b"checkpoint of step 60 is damaged: skipped" in done.stderr
    assert model_bytes(run) == uninterrupted


def test_two_processes_cannot_share_a_run(toy_recipe, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "anydepth", "train", str(toy_recipe), "--out", str(run)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        while not (run / "recipe.json").exists():
            time.sleep(0.01)
        second = anydepth("train", toy_recipe, "--out", run)
    finally:
        first.kill()
        first.communicate()
    assert second.returncode == 2
    assert b"another process is training" in second.stderr

"""kill -9 at any moment, the same command again: the finished weights equal the uninterrupted run's to the bit."""

import random
import shutil
import signal

import pytest
from conftest import anydepth, standing_still

pytestmark = pytest.mark.slow

CHANGES = [
    "train.steps=20",
    "train.checkpoint_every=2",
    "train.valid_every=5",
    "train.valid_sentences=5",
    "train.log_every=2",
    "model.dropout=0.2",
    "train.optimizer=muon",
    "data.augment={lower: 0.3, join: 0.2}",
]
SETTINGS = [word for change in CHANGES for word in ("--set", change)]


def model_bytes(run):
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(toy_recipe, tmp_path_factory):
    """A finished run. Do not write to it."""
    run = tmp_path_factory.mktemp("whole") / "run"
    done = anydepth("train", toy_recipe, "--out", run, *SETTINGS, fresh=True)
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again(toy_recipe, tmp_path, uninterrupted, seed):
    """As the data is prepared, then each time at another file of a checkpoint that is written, renamed or removed."""
    rng, run = random.Random(seed), tmp_path / "run"
    deaths = [(run / ".data.tmp", rng.randint(1, 12)), *((run / "checkpoints", rng.randint(8, 24)) for _ in range(3))]
    for death in deaths:
        done = anydepth("train", toy_recipe, "--out", run, *SETTINGS, dies=death)
        assert done.returncode == -signal.SIGKILL, done.stderr
    done = anydepth("train", toy_recipe, "--out", run, *SETTINGS)
    assert done.returncode == 0, done.stderr
    assert b"resuming from step" in done.stderr
    assert model_bytes(run) == model_bytes(uninterrupted)


def test_killed_at_the_end(toy_recipe, tmp_path, uninterrupted):
    """Once all steps are done, while the model is written."""
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    for name in ("finished.json", "model/config.json"):
        (run / name).unlink()
    for operation in (1, 3, 6):
        done = anydepth("train", toy_recipe, "--out", run, *SETTINGS, dies=(run / ".model.tmp", operation))
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert not (run / "finished.json").exists()
    done = anydepth("train", toy_recipe, "--out", run, *SETTINGS)
    assert done.returncode == 0, done.stderr
    assert model_bytes(run) == model_bytes(uninterrupted)


def test_a_torn_checkpoint_costs_only_its_steps(toy_recipe, tmp_path, uninterrupted):
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    (run / "finished.json").unlink()
    newest = sorted((run / "checkpoints").iterdir())[-1]
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    (run / "model" / "config.json").unlink()
    done = anydepth("train", toy_recipe, "--out", run, *SETTINGS)
    assert done.returncode == 0, done.stderr
    assert b"checkpoint of step 20 is damaged: skipped" in done.stderr
    assert model_bytes(run) == model_bytes(uninterrupted)


def test_two_processes_cannot_share_a_run(toy_recipe, tmp_path):
    run = tmp_path / "run"
    with standing_still("train", toy_recipe, "--out", run, at=run / ".recipe.json.tmp"):
        second = anydepth("train", toy_recipe, "--out", run)
    assert second.returncode == 2
    assert b"another process is training" in second.stderr

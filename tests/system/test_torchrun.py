"""Training by several processes, as users start it: killed and restarted, gone on with by another number of them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from conftest import anydepth, assert_one_line, load_weights, made_once, run_recipe
from trained_alike import ALIKE

pytestmark = pytest.mark.slow

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
STEPS = (10, 25)  # of the two parts of a run
QUICK = [*ALIKE, "train.checkpoint_every=10", "train.valid_every=1000", "train.average=1"]


def command(recipe: Path, run: Path, *changes: str) -> list[str]:
    settings = [word for change in (*QUICK, *changes) for word in ("--set", change)]
    return ["-m", "anydepth", "train", str(recipe), "--out", str(run), *settings]


def train(recipe: Path, run: Path, *changes: str, processes: int = 2) -> subprocess.CompletedProcess[bytes]:
    if processes == 1:
        return anydepth(*command(recipe, run, *changes)[2:])
    process = begin([*TORCHRUN, *command(recipe, run, *changes)])
    said = process.communicate()[1]
    return subprocess.CompletedProcess([], process.returncode, b"", said)


def begin(words: list[str], folder: Path | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def steps_logged(run: Path) -> list[int]:
    records = map(json.loads, (run / "log.jsonl").read_text("utf-8").splitlines())
    return [record["step"] for record in records if record["kind"] == "train"]


@pytest.fixture(scope="module")
def whole(toy_recipe, tmp_path_factory):
    """A run that nobody disturbed."""

    def make(folder: Path) -> None:
        done = train(toy_recipe, folder / "run", "train.steps=60")
        assert done.returncode == 0, done.stderr[-3000:]

    return made_once(tmp_path_factory, "torchrun", make) / "run"


@pytest.mark.parametrize(("machines", "victim"), [(1, "0"), (2, "1")])
def test_a_worker_that_is_killed_costs_nothing_but_time(toy_recipe, whole, tmp_path, machines, victim):
    """torchrun starts all of them again, on every machine, and they go on from the last checkpoint."""
    run, port = tmp_path / "killed", free_port()
    many = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    start = TORCHRUN if machines == 1 else [*TORCHRUN[:3], *many]
    begun = [
        begin([*start, "--max-restarts", "2", *command(toy_recipe, run, "train.steps=60")]) for _ in range(machines)
    ]
    while not list((run / "checkpoints").glob("step-*")):
        assert all(process.poll() is None for process in begun), begun[0].stderr.read()[-3000:]
        time.sleep(0.02)
    workers = [one for process in begun for one in psutil.Process(process.pid).children() if "RANK" in one.environ()]
    next(one for one in workers if one.environ()["RANK"] == victim).send_signal(signal.SIGKILL)
    said = "".join(process.communicate()[1].decode() for process in begun)
    assert [process.returncode for process in begun] == [0] * machines, said[-3000:]
    assert "resuming from step" in said
    assert steps_logged(run) == list(range(1, 61))  # none twice, none missing
    expected = load_weights(whole)
    for name, value in load_weights(run).items():
        assert torch.equal(value, expected[name]), name


@pytest.fixture(scope="module")
def alone(toy_recipe, tmp_path_factory):
    """One process all along."""
    run = tmp_path_factory.mktemp("alone") / "run"
    for steps in STEPS:
        run_recipe(toy_recipe, run, *QUICK, f"train.steps={steps}")
    return run


@pytest.mark.parametrize("counts", [(2, 1), (1, 2)])
def test_another_number_of_processes_goes_on(toy_recipe, alone, tmp_path, counts):
    run = tmp_path / "run"
    for steps, processes in zip(STEPS, counts, strict=True):
        if processes == 1:
            run_recipe(toy_recipe, run, *QUICK, f"train.steps={steps}")
        else:
            done = train(toy_recipe, run, f"train.steps={steps}")
            assert done.returncode == 0, done.stderr[-3000:]
    expected, found = (
        json.loads((folder / f"checkpoints/step-{STEPS[1]:09d}/state.json").read_text()) for folder in (alone, run)
    )
    assert found["state"] == expected["state"]  # as far in the data
    for name, value in load_weights(run).items():
        torch.testing.assert_close(value, load_weights(alone)[name], rtol=1e-4, atol=5e-5)


def test_what_is_wrong_is_said_once(toy_recipe, tmp_path):
    done = train(toy_recipe, tmp_path / "run", "train.stepz=3")
    assert done.returncode != 0
    said = [line for line in done.stderr.decode().splitlines() if line.startswith("anydepth:")]
    assert len(said) == 1
    assert "stepz" in said[0]
    assert not (tmp_path / "run").exists()


def on_two_machines(recipe: Path, folders: list[Path], *changes: str) -> list[tuple[int, str]]:
    """A process on each, which finds a relative run folder where it is."""
    port, begun = str(free_port()), []
    for rank, folder in enumerate(folders):
        machines = ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", port]
        words = [*TORCHRUN[:3], *machines, "--nproc-per-node", "1", *command(recipe, Path("run"), *changes)]
        begun.append(begin(words, folder))
    said = [process.communicate()[1].decode() for process in begun]
    return [(process.returncode, text) for process, text in zip(begun, said, strict=True)]


def test_two_machines_that_do_not(toy_recipe, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (_, _), (code, said) = on_two_machines(toy_recipe, [tmp_path, tmp_path / "elsewhere"], "train.steps=3")
    assert code != 0
    assert "this machine does not see run: give a folder on a disk that all machines share" in said
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["train.precision=float16"], "train.shard works with float32 or bfloat16"),
        (["objective={name: halting}"], "train.shard needs every process to run the same layers"),
    ],
)
def test_what_cannot_be_sharded_is_refused(toy_recipe, tmp_path, changes, words):
    done = train(toy_recipe, tmp_path / "run", "train.shard=true", *changes, processes=1)
    assert_one_line(done, words)


def test_a_number_of_processes_without_the_rest(toy_recipe, tmp_path):
    environment = {**os.environ, "WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, *command(toy_recipe, tmp_path / "run")], env=environment, capture_output=True
    )
    assert_one_line(done, "WORLD_SIZE is 2 but there is no RANK: start with torchrun")

"""Training by several processes as users start it: what is refused, and how that is said."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import anydepth, assert_one_line
from trained_alike import ALIKE

pytestmark = pytest.mark.slow

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def command(recipe: Path, run: Path, *changes: str) -> list[str]:
    settings = [word for change in (*ALIKE, *changes) for word in ("--set", change)]
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


def test_what_is_wrong_is_said_and_nothing_else(toy_recipe, tmp_path):
    """By the first process; the second says it too, if the first is five seconds slower."""
    done = train(toy_recipe, tmp_path / "run", "train.stepz=3")
    assert done.returncode != 0
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("anydepth:")]
    (said,) = {line.removeprefix("anydepth: ").removeprefix("process 1: ") for line in lines}
    assert "stepz" in said
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
    assert "this machine cannot find run: give a folder on a disk that all machines share" in said
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
    done = anydepth(*command(toy_recipe, tmp_path / "run")[2:], env=environment)
    assert_one_line(done, "WORLD_SIZE is 2 but there is no RANK: start with torchrun")


def test_what_is_wrong_is_said_by_one_of_two_processes(toy_recipe, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    said = train(toy_recipe, tmp_path / "run").stderr.decode()
    assert said.count("is not empty and not a run: give another folder with --out") == 1
    assert "anydepth/" not in said  # no traceback of ours, of either process

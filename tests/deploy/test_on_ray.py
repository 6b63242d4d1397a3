"""Distillation on Ray: what one process gives, whoever dies."""

import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import anydepth, assert_one_line, toy_pairs

LINES = 3000


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "big.fr"
    path.write_text("".join(f"{pair[0]}\n" for pair in toy_pairs(LINES, seed=5)), "utf-8")
    return path


def command(run, source, out, *options):
    return ["distill", run, "--source", source, "--out", out, "--chunk", 100, "--threads", 1, *options]


@pytest.fixture(scope="module")
def expected(toy_run, source, tmp_path_factory):
    out = tmp_path_factory.mktemp("expected") / "out"
    done = anydepth(*command(toy_run, source, out))
    assert done.returncode == 0, done.stderr
    return [(out / name).read_bytes() for name in ("distilled.fr", "distilled.en")]


def test_the_same_bytes_though_a_worker_is_killed(toy_run, source, expected, tmp_path):
    words = command(toy_run, source, tmp_path / "out", "--runner", "ray", "--workers", 2)
    process = subprocess.Popen([sys.executable, "-m", "anydepth", *map(str, words)], stderr=subprocess.PIPE)
    part, killed = tmp_path / "out" / "distilled.en.part", None
    while process.poll() is None and killed is None:
        begun = part.exists() and part.stat().st_size
        below = psutil.Process(process.pid).children(recursive=True) if begun else []
        busy = [one for one in below if "_distilled" in " ".join(one.cmdline())]
        if busy:
            killed = busy[0]
            killed.send_signal(signal.SIGKILL)
        time.sleep(0.02)
    said = process.communicate(timeout=250)[1].decode()
    assert process.returncode == 0, said
    assert killed is not None
    assert [(tmp_path / "out" / name).read_bytes() for name in ("distilled.fr", "distilled.en")] == expected


def test_a_pair_on_ctranslate2(two_targets_run, tmp_path):
    (tmp_path / "in.fr").write_text("le chat dort.\nun chien mange.\n", "utf-8")
    options = ["--runner", "ray", "--workers", 1, "--engine", "ctranslate2", "--to", "loud"]
    done = anydepth(*command(two_targets_run, tmp_path / "in.fr", tmp_path / "out", *options))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "distilled.loud").read_text("utf-8") == "THE CAT SLEEPS.\nA DOG EATS.\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--runner", "spark"], ["no runner 'spark'", "here, ray"]),
        (["--address", "ray://x:1"], ["for --runner ray"]),
        (["--runner", "ray", "--address", "ray://x:1", "--workers", "2"], ["leave out --workers"]),
        (["--runner", "ray", "--address", "127.0.0.1:1"], ["no Ray cluster answers at 127.0.0.1:1"]),
    ],
)
def test_bad_options(toy_run, source, tmp_path, options, words):
    assert_one_line(anydepth(*command(toy_run, source, tmp_path / "out", *options)), *words)

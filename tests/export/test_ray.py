"""Long jobs on Ray: what one process gives, whoever dies."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from threading import Event

import psutil
import pytest
import ray
from conftest import anydepth, assert_one_line, shared_folder, toy_pairs
from filelock import FileLock
from rich.console import Console

import anydepth as package
from anydepth.cli.options import make_runner
from anydepth.errors import UserError
from anydepth.export import ray as on_ray
from anydepth.export.ray import RayRunner
from anydepth.infer.distill import DistillOptions, distill
from anydepth.infer.translator import on_engine
from anydepth.selectors import data as inputs
from anydepth.selectors.data import ParallelText, add_likelihood, translate_sample

LINES = 1000
pytestmark = pytest.mark.slow
QUIET = Console(quiet=True)


@pytest.fixture(scope="module", autouse=True)
def _one_cluster_at_a_time(tmp_path_factory):
    """Of all processes of pytest-xdist one is here."""
    with FileLock(shared_folder(tmp_path_factory) / "ray.lock"):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "big.fr"
    path.write_text("".join(f"{pair[0]}\n" for pair in toy_pairs(LINES, seed=5)), "utf-8")
    return path


def command(run, source, out, *options):
    return ["distill", run, "--source", source, "--out", out, "--chunk", 50, "--threads", 1, *options]


def distilled(out):
    return [(out / name).read_bytes() for name in ("distilled.fr", "distilled.en")]


@pytest.fixture(scope="module")
def expected(toy_run, source, tmp_path_factory):
    out = tmp_path_factory.mktemp("expected") / "out"
    done = anydepth(*command(toy_run, source, out))
    assert done.returncode == 0, done.stderr
    return distilled(out)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head that waits for clients, as on a machine far away."""
    log_file, head = tmp_path_factory.mktemp("ray") / "log", None
    while head is None:  # again, if the machine was so busy that Ray gave up
        head, clients = start_head(log_file)
        assert head is not None or "timed out during startup" in log_file.read_text("utf-8")
    try:
        yield f"ray://127.0.0.1:{clients}"
    finally:
        below = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
        head.terminate()
        for one in psutil.wait_procs([psutil.Process(head.pid), *below], 60)[1]:
            one.kill()
        head.wait()


def start_head(log_file):
    """The process, or None if it has ended, and its port for clients."""
    port, clients = free_port(), free_port()
    options = ["--head", "--block", "--port", port, "--ray-client-server-port", clients, "--num-cpus", 2]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", *options, "--include-dashboard", "false"]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    environment["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # with it, now and then a client's server dies as it is forked
    with open(log_file, "wb") as log:
        head = subprocess.Popen(list(map(str, start)), stdout=log, stderr=log, env=environment)
    while head.poll() is None:
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", clients)) == 0:
                return head, clients
        time.sleep(0.1)
    return None, clients


def kill_a_worker(pid: int) -> psutil.Process | None:
    """One that is at work somewhere below this process, if there is one."""
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ray::_run_piece" in " ".join(one.cmdline()):
                one.send_signal(signal.SIGKILL)
                return one
    return None


@contextmanager
def a_worker_is_killed():
    """While this lasts, as soon as one is at work."""
    over = Event()

    def watch() -> bool:
        while not over.is_set():
            if kill_a_worker(os.getpid()) is not None:
                return True
            over.wait(0.05)
        return False

    with ThreadPoolExecutor() as threads:
        watched = threads.submit(watch)
        try:
            yield
        finally:
            over.set()
    assert watched.result()


def test_the_same_bytes_though_a_worker_is_killed(toy_run, source, expected, tmp_path):
    words = command(toy_run, source, tmp_path / "out", "--runner", "ray", "--workers", 2)
    killed = None
    while killed is None:  # again, if it was too quick for us
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        process = subprocess.Popen([sys.executable, "-m", "anydepth", *map(str, words)], stderr=subprocess.PIPE)
        part = tmp_path / "out" / "distilled.en.part"
        while process.poll() is None and killed is None:
            if part.exists() and part.stat().st_size:
                killed = kill_a_worker(process.pid)
            time.sleep(0.02)
        said = process.communicate()[1].decode()
        assert process.returncode == 0, said
    assert distilled(tmp_path / "out") == expected


@pytest.fixture
def on_cluster(cluster):
    yield RayRunner(cluster).started()
    ray.shutdown()


def test_work_of_this_process_on_a_cluster(toy_run, two_targets_run, on_cluster, tmp_path, monkeypatch):
    """All of it in one test: to connect takes long."""
    check_labels_though_a_worker_is_killed(toy_run, on_cluster, tmp_path, monkeypatch)
    check_a_pair_on_ctranslate2(two_targets_run, on_cluster, tmp_path)


def check_labels_though_a_worker_is_killed(toy_run, on_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PIECE", 16)
    translator = package.load(toy_run, engine="torch")
    sources, references = zip(*toy_pairs(100, seed=51), strict=True)
    sample = ParallelText(sources, references, "dev.fr", "dev.en")
    for name, runner, hurt in (("alone", {}, nullcontext), ("ray", {"run": on_cluster}, a_worker_is_killed)):
        with hurt():
            table = translate_sample(translator, sample, tmp_path / name, beam=1, batch_size=8, **runner)
        add_likelihood(translator, table, tmp_path / name, **runner)
    names = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert "scores.safetensors" in names
    for name in names:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def check_a_pair_on_ctranslate2(two_targets_run, on_cluster, tmp_path):
    (tmp_path / "in.fr").write_text("le chat dort.\nun chien mange.\n", "utf-8")
    translator = on_engine(package.load(two_targets_run, engine="torch").between(target="loud"), "ctranslate2", 1)
    run = replace(on_cluster, engine="ctranslate2")
    distill(translator, tmp_path / "in.fr", tmp_path / "out", DistillOptions(), None, run)
    assert (tmp_path / "out" / "distilled.loud").read_text("utf-8") == "THE CAT SLEEPS.\nA DOG EATS.\n"
    with pytest.raises(UserError, match="no machine of the Ray cluster has a GPU"):
        distill(translator, tmp_path / "in.fr", tmp_path / "gpu", DistillOptions(), None, replace(run, device="cuda"))


def test_a_cluster_by_its_address(toy_run, source, expected, cluster, tmp_path):
    done = anydepth(*command(toy_run, source, tmp_path / "out", "--runner", "ray", "--address", cluster))
    assert done.returncode == 0, done.stderr
    assert distilled(tmp_path / "out") == expected


class SlowRay:
    """A cluster that answers like Ray's while its head is busy: first what these say, then all is well."""

    def __init__(self, *said):
        self.said, self.tries = list(said), 0

    def init(self, address, **options):
        self.tries += 1
        if self.said:
            raise self.said.pop(0)

    def shutdown(self):
        pass


def test_a_cluster_that_is_not_ready_is_tried_again(monkeypatch):
    monkeypatch.setattr(on_ray, "CONNECT_TIMEOUT", 0.01)
    slow = SlowRay(
        ConnectionAbortedError("Initialization failure: RuntimeError: Starting Ray client server failed. See ..."),
        ConnectionError("ray client connection timeout"),
        Exception("The current node timed out during startup. This could happen because ..."),
    )
    on_ray._init(slow, "ray://head:1", {})
    assert slow.tries == 4
    with pytest.raises(RuntimeError, match="version"):
        on_ray._init(SlowRay(RuntimeError("version mismatch")), "ray://head:1", {})
    monkeypatch.setattr(on_ray, "STARTING", 0.0)
    with pytest.raises(RuntimeError, match="timeout"):
        on_ray._init(SlowRay(*[ConnectionError("ray client connection timeout")] * 9), "ray://head:1", {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "spark"}, "no runner 'spark'; choose one of local, ray"),
        ({"name": "local", "address": "ray://x:1"}, "for --runner ray"),
        ({"name": "ray", "address": "ray://x:1", "workers": 2}, "leave out --workers"),
        ({"name": "ray", "address": "ray://head"}, "give HOST:PORT"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(UserError, match=words):
        make_runner(**{"address": None, "workers": None, "device": "cpu", "threads": None} | options)


def test_an_address_where_nobody_is(toy_run, source, tmp_path):
    done = anydepth(
        *command(toy_run, source, tmp_path / "out", "--runner", "ray", "--address", f"127.0.0.1:{free_port()}")
    )
    assert_one_line(done, "no Ray cluster answers at 127.0.0.1:")
    assert not (tmp_path / "out").exists()

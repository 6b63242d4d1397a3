"""A toy language pair that a tiny model learns in seconds, and a model trained on it."""

import io
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forked
import psutil
import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file

from anydepth.config import Recipe
from anydepth.data import prepare
from anydepth.infer.translator import Translator

# Tiny tensors: more threads only wait for each other, here and in the processes that tests start.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Those that take longest, so that no core is left with one at the end. The second needs no model: it begins at once.
LONGEST = ("test_distributed.py", "test_core.py", "test_ray.py", "test_latent_models.py", "test_torchrun.py",
           "test_flexible_models.py", "test_server_load.py", "test_training.py", "test_page.py")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then those with slow tests, then the others."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (places.get(item.path.name, len(LONGEST)), item.path not in slow))


WORDS = {
    "le": "the", "un": "a", "chat": "cat", "chien": "dog", "oiseau": "bird", "mange": "eats", "voit": "sees",
    "aime": "likes", "grand": "big", "petit": "small", "rouge": "red", "et": "and", "dort": "sleeps", "ici": "here",
}  # fmt: skip


def toy_pairs(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Word for word translations of 2 to 8 words."""
    rng = random.Random(seed)
    sentences = [[rng.choice(list(WORDS)) for _ in range(rng.randint(2, 8))] for _ in range(count)]
    return [(" ".join(words) + ".", " ".join(WORDS[word] for word in words) + ".") for words in sentences]


def write_corpus(folder: Path, count: int = 3000, name: str = "train", seed: int = 1) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / f"{name}.fr", folder / f"{name}.en"
    pairs = toy_pairs(count, seed)
    source.write_text("".join(f"{pair[0]}\n" for pair in pairs), "utf-8")
    target.write_text("".join(f"{pair[1]}\n" for pair in pairs), "utf-8")
    return source, target


RECIPE = """\
data:
  source_language: fr
  target_language: en
  train: {{source: {source}, target: {target}}}
  hold_out: 50
  vocabulary: 320
  max_tokens: 40
model: {{width: 32, heads: 2, ffn: 64, encoder_layers: 2, decoder_layers: 2, dropout: 0.1, max_length: 64}}
objective: {{name: tied-multi, mode: sampled}}
train:
  steps: 400
  batch_tokens: 600
  learning_rate: 1.0e-2
  warmup: 50
  schedule: linear
  threads: 1
  log_every: 20
  valid_every: 200
  valid_sentences: 20
  checkpoint_every: 50
  average: 2
"""


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Which all processes of pytest-xdist have in common."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` fills, once for all processes of pytest-xdist: whoever comes first makes it."""
    folder = shared_folder(factory) / f"made-{name}"
    with FileLock(f"{folder}.lock"):
        if not Path(f"{folder}.finished").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a test that failed half-way
            folder.mkdir()
            make(folder)
            Path(f"{folder}.finished").touch()
    return folder


@pytest.fixture(scope="session")
def toy_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe file with its corpus beside it."""

    def make(folder: Path) -> None:
        source, target = write_corpus(folder)
        (folder / "recipe.yaml").write_text(RECIPE.format(source=source, target=target), "utf-8")

    return made_once(tmp_path_factory, "toy", make) / "recipe.yaml"


@pytest.fixture(scope="session")
def toy_run(toy_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: tied-multi 2-2, trained for real, good at all four depths. Do not write to it."""
    return made_once(tmp_path_factory, "toy-run", lambda folder: run_recipe(toy_recipe, folder / "run")) / "run"


TWO_TARGETS = """\
data:
  pairs:
    - {{source_language: fr, target_language: en, train: {{source: {source}, target: {target}}}}}
    - {{source_language: fr, target_language: loud, train: {{source: {source}, target: {loud}}}}}
  hold_out: 50
  vocabulary: 360
  max_tokens: 40
"""


@pytest.fixture(scope="session")
def two_targets_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run into two languages, English and English in capitals, at all four depths. Do not write to it."""

    def make(folder: Path) -> None:
        source, target = write_corpus(folder)
        loud = folder / "train.loud"
        loud.write_text(target.read_text("utf-8").upper(), "utf-8")
        rest = RECIPE[RECIPE.index("model:") :].format()
        recipe = folder / "recipe.yaml"
        recipe.write_text(TWO_TARGETS.format(source=source, target=target, loud=loud) + rest, "utf-8")
        run_recipe(recipe, folder / "run", "train.steps=250")

    return made_once(tmp_path_factory, "two-targets", make) / "run"


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real pre-trained encoder, as `anydepth data minilm` fetches it. Do not write to it."""
    from anydepth.data.datasets import fetch

    return made_once(tmp_path_factory, "minilm", lambda folder: fetch("minilm", folder / "minilm")) / "minilm"


def save_changed(run: Path, folder: Path) -> None:
    """Save the run's model with one number changed."""
    from anydepth.artifact import saving

    there = Translator.load(run, engine="torch", device="cpu")
    tensors = {name: p.detach().clone() for name, p in there.model.named_parameters()}
    tensors["decoder.norm.bias"][0] += 0.5
    content = saving.ModelContent(there.model.config, tensors, there.tokenizer, there.menu, there.languages)
    saving.save(folder, content, {})


def anydepth(*arguments: object, stdin: bytes = b"", **how: Any) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own. `how` is as for `forked.run`; `preexec_fn` starts it as a user does."""
    if "preexec_fn" in how:
        command = [sys.executable, "-m", "anydepth", *map(str, arguments)]
        return subprocess.run(command, input=stdin, capture_output=True, **how)
    if dies := how.get("dies"):
        how["dies"] = (str(dies[0]), dies[1])
    return forked.run(list(map(str, arguments)), stdin, **how)


def python(script: str, env: dict[str, str] | None = None, **how: object) -> "subprocess.CompletedProcess[str]":
    """A program in a process of its own that has imported nothing of anydepth. `how` is as for `forked.start`."""
    done = forked.run([], b"", env, fresh=True, script=script, **how)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def running(
    *arguments: object, stderr: int | None = None, **how: object
) -> Iterator["forked.Process | subprocess.Popen[bytes]"]:
    """The command line in a process of its own, which is killed if it has not ended with the block. `how` is as for
    `forked.start`."""
    with open(os.devnull, "r+b") as nothing:
        file = nothing.fileno()
        process = forked.start(list(map(str, arguments)), file, file, file if stderr is None else stderr, **how)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def standing_still(*arguments: object, at: Path) -> Iterator[None]:
    """The command line, which has come to the first operation on this file and stays there until the block ends."""
    with running(*arguments, stops=(str(at), 1)) as process:
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            assert process.poll() is None
            time.sleep(0.01)
        yield


@pytest.fixture
def here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """The command line without a process of its own, which takes seconds to start."""
    from anydepth import cli
    from anydepth.progress import hide_progress

    def run(*arguments: object) -> subprocess.CompletedProcess[bytes]:
        monkeypatch.setenv("GOMP_SPINCOUNT", "1000")  # what it would set for good
        monkeypatch.setattr(sys, "argv", ["anydepth", *map(str, arguments)])
        try:
            with pytest.raises(SystemExit) as stop:
                cli.main()
        finally:
            hide_progress()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(sys.argv, stop.value.code, out.encode(), err.encode())

    return run


def assert_one_line(done: subprocess.CompletedProcess[bytes], *words: str) -> None:
    """Exit code 2, nothing like a traceback, one line on standard error with these words."""
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 1, said
    assert said.startswith("anydepth: ")
    for word in words:
        assert word in said


PREPARED: dict[tuple[object, ...], Path] = {}
PREPARED_IN = tempfile.TemporaryDirectory(prefix="anydepth-tests-")


def pytest_sessionfinish() -> None:
    PREPARED_IN.cleanup()


def copy_data(recipe: Recipe, run: Path) -> bool:
    """Begin a run with the data that an earlier one prepared from the same files in the same way, if there was one."""
    found = PREPARED.get(_data_key(recipe))
    if found is None or run.exists():
        return False
    shutil.copytree(found, run / "data")
    (run / ".lock").touch()
    return True


def begin_with_data(recipe: Recipe, run: Path) -> None:
    """Prepare the data of a run, or copy what has been prepared, before its processes start."""
    if _data_key(recipe) and not run.exists() and not copy_data(recipe, run):
        prepare(recipe.data, run / "data", recipe.train.seed)
        (run / ".lock").touch()
        keep_data(recipe, run)


def keep_data(recipe: Recipe, run: Path) -> None:
    key = _data_key(recipe)
    if key and key not in PREPARED:
        PREPARED[key] = Path(shutil.copytree(run / "data", Path(PREPARED_IN.name) / str(len(PREPARED))))


def _data_key(recipe: Recipe) -> tuple[object, ...]:
    if recipe.init_from is not None or (recipe.teacher is not None and recipe.teacher.model != "self"):
        return ()  # it may be their tokenizer
    text = recipe.data.model_dump_json()
    files = [Path(name).stat() for name in re.findall(r'"(/[^"]+)"', text) if Path(name).exists()]
    return (text, recipe.train.seed, *((file.st_mtime_ns, file.st_size) for file in files))


def run_recipe(recipe: Path, run: Path, *changes: str) -> str:
    """Train, and return what was said. The same data is prepared once."""
    from anydepth.config.reading import read_recipe
    from anydepth.training.run import train

    log, messages = logging.getLogger("anydepth"), io.StringIO()
    handler, level = logging.StreamHandler(messages), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    read, copied = read_recipe(recipe, changes), False
    try:
        copied = copy_data(read, run)
        train(read, run)
        keep_data(read, run)
    finally:
        if copied and not (run / "recipe.json").exists():
            shutil.rmtree(run)  # it was refused, and must leave nothing
        log.removeHandler(handler)
        log.setLevel(level)
    return messages.getvalue()


def load_weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")

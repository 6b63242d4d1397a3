"""A server for all tests that do not need one of their own. A test file takes the fixtures by `pytest_plugins`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import Served, serving

from anydepth.artifact import saving
from anydepth.infer.translator import Translator


@pytest.fixture(scope="session")
def measured_run(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy run with quality in its menu, as a sweep leaves it, and a budget's choice that can be foreseen."""
    run = tmp_path_factory.mktemp("measured") / "run"
    shutil.copytree(toy_run, run)
    there = Translator.load(run, engine="torch", device="cpu")
    for place, name in enumerate(there.menu.names):
        there.menu.measured(name, {}, {"bleu": 90.0 + place, "chrf": 95.0})
    saving.record_measurements(run / "model", there.menu)
    return run


@pytest.fixture(scope="session")
def server(measured_run: Path) -> Iterator[Served]:
    with serving(
        measured_run, "--engine", "ctranslate2", "--workers", "2", "--queue-limit", 300, "--sentence-limit", 16
    ) as served:
        yield served

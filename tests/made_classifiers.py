"""Tiny models that learn in seconds to classify a toy set of texts, trained once in a session.

A test file takes them by `pytest_plugins`: a fixture imported by name would be another one in each file.
"""

from pathlib import Path

import pytest
from conftest import made_once, run_recipe
from labelled_texts import toy_texts, write_labelled

RECIPE = """\
data:
  train: {{labelled: {train}}}
  hold_out: 60
  vocabulary: 300
  max_tokens: 60
  deduplicate: false
model: {{width: 32, heads: 2, ffn: 64, encoder_layers: 3, decoder_layers: 0, max_length: 64}}
objective: {{name: {objective}}}
train:
  steps: 80
  batch_tokens: 600
  learning_rate: 5.0e-3
  warmup: 20
  schedule: linear
  label_smoothing: 0.0
  threads: 1
  valid_every: 80
  checkpoint_every: 80
  average: 1
"""


def _trained(factory: pytest.TempPathFactory, objective: str) -> Path:
    def make(folder: Path) -> None:
        recipe = folder / "recipe.yaml"
        train = write_labelled(folder / "train.tsv", toy_texts(600))
        recipe.write_text(RECIPE.format(train=train, objective=objective), "utf-8")
        run_recipe(recipe, folder / "run")

    return made_once(factory, objective, make) / "run"


@pytest.fixture(scope="session")
def by_mi_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, 3 layers, the depth of each word by mutual information. Do not write to it."""
    return _trained(tmp_path_factory, "word-depths")


@pytest.fixture(scope="session")
def static_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which all words run all 3 layers. Do not write to it."""
    return _trained(tmp_path_factory, "vanilla")


@pytest.fixture(scope="session")
def halting_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that says itself how deep each token goes. Do not write to it."""
    return _trained(tmp_path_factory, "halting")


@pytest.fixture(scope="session")
def labelled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts that no model was trained on, lines of label, tab, text."""
    return write_labelled(tmp_path_factory.mktemp("labelled") / "test.tsv", toy_texts(90, seed=7))

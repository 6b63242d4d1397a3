"""Training on several language pairs: exact after an interruption, and each pair in its own words."""

import json

import pytest
import torch
import yaml
from conftest import RECIPE, load_weights, run_recipe, toy_pairs

from anydepth.errors import UserError

pytestmark = pytest.mark.slow

SHORT = ["train.checkpoint_every=4", "train.valid_every=4", "train.log_every=2", "train.schedule=inverse-sqrt"]


@pytest.fixture(scope="module")
def two_targets(tmp_path_factory):
    """French to English, and, of fewer sentences, to English in capitals."""
    folder = tmp_path_factory.mktemp("pairs")
    recipe = yaml.safe_load(RECIPE.format(source="x", target="y"))
    recipe["data"] = {key: recipe["data"][key] for key in ("hold_out", "vocabulary", "max_tokens")}
    recipe["data"]["pairs"] = []
    for language, count, seed in (("en", 1500, 1), ("EN", 300, 2)):
        pairs = toy_pairs(count, seed)
        rows = [(source, target if language == "en" else target.upper()) for source, target in pairs]
        (folder / f"{language}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
        corpus = {"tsv": str(folder / f"{language}.tsv")}
        recipe["data"]["pairs"].append({"source_language": "fr", "target_language": language, "train": corpus})
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


@pytest.mark.parametrize("sampling", ["each", "temperature"])
def test_interrupted_and_resumed_equals_uninterrupted(two_targets, tmp_path, sampling):
    settings = [*SHORT, f"data.sampling={sampling}", "objective={name: vanilla}"]
    run_recipe(two_targets, tmp_path / "whole", *settings, "train.steps=8")
    said = run_recipe(two_targets, tmp_path / "parts", *settings, "train.steps=4")
    assert "train fr-en: read 1,500" in said
    assert "valid fr-EN: read" in said
    assert "resuming from step 4" in run_recipe(two_targets, tmp_path / "parts", *settings, "train.steps=8")
    one, other = load_weights(tmp_path / "whole"), load_weights(tmp_path / "parts")
    assert all(torch.equal(one[name], other[name]) for name in one)
    state = json.loads((tmp_path / "whole/checkpoints/step-000000008/state.json").read_text())["state"]
    assert state["epoch"] == 0
    assert state["batch"] == (16 if sampling == "each" else 8)


def test_another_list_of_pairs_is_another_run(two_targets, tmp_path):
    settings = [*SHORT, "objective={name: vanilla}", "train.steps=4"]
    run_recipe(two_targets, tmp_path / "run", *settings)
    pairs = yaml.safe_load(two_targets.read_text())["data"]["pairs"]
    with pytest.raises(UserError, match=r"started with another data\.pairs"):
        run_recipe(two_targets, tmp_path / "run", *settings, f"data.pairs={yaml.safe_dump(pairs[::-1])}")


def test_text_and_decoder_exclude_each_other(two_targets, toy_recipe, tmp_path):
    with pytest.raises(UserError, match=r"masked language modelling, which has no decoder: set model\.decoder_layers"):
        run_recipe(toy_recipe, tmp_path / "run", f"data.train={{text: {two_targets}}}", "data.target_language=fr")

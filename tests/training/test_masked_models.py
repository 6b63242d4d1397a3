"""An encoder alone learns to fill in masked words, from text files to held-out perplexity."""

import json
import math

import pytest
import torch
from conftest import anydepth as command
from conftest import assert_one_line, load_weights, run_recipe, write_corpus

import anydepth
from anydepth.artifact.model import load_model
from anydepth.config.reading import read_recipe
from anydepth.errors import UserError
from anydepth.evaluate.perplexity import to_perplexity
from anydepth.training.run_log import read_log

pytestmark = pytest.mark.slow

SHORT = ["train.checkpoint_every=2", "train.log_every=2", "train.valid_every=100"]


@pytest.fixture(scope="module")
def masked_recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    text, _ = write_corpus(folder)
    path = folder / "recipe.yaml"
    recipe = {
        "data": {"source_language": "fr", "train": {"text": str(text)}, "hold_out": 50, "vocabulary": 290},
        "model": {"width": 32, "heads": 2, "ffn": 64, "encoder_layers": 3, "decoder_layers": 0},
        "objective": {"name": "vanilla"},
        "train": {
            "steps": 200,
            "batch_tokens": 600,
            "learning_rate": 0.01,
            "warmup": 20,
            "valid_every": 100,
            "threads": 1,
        },
    }
    path.write_text(json.dumps(recipe), "utf-8")
    return path


@pytest.mark.parametrize(
    "objective",
    ["{name: vanilla}", "{name: layerdrop}", "{name: latent, encoder_target: 2, anneal_steps: 50, tau_steps: 100}"],
    ids=["vanilla", "layerdrop", "latent"],
)
def test_perplexity_falls(masked_recipe, tmp_path, objective):
    said = run_recipe(masked_recipe, tmp_path / "run", f"objective={objective}", "train.valid_every=50")
    assert "validation perplexity" in said
    found = [next(iter(one["perplexity"].values())) for one in read_log(tmp_path / "run") if one["kind"] == "valid"]
    assert found[-1] < 0.7 * found[0]
    assert found[-1] < 15  # of 290 subwords


def test_what_comes_of_it_does_not_translate(masked_recipe, tmp_path):
    settings = ["objective={name: latent, encoder_target: 2}", "train.steps=4", *SHORT]
    run_recipe(masked_recipe, tmp_path / "run", *settings)
    model = load_model(tmp_path / "run")
    assert model.menu.names == ["2-0", "3-0-soft"]
    assert load_model(tmp_path / "run" / "pruned").model.config.encoder_layers == 2
    with pytest.raises(UserError, match="does not translate"):
        anydepth.load(tmp_path / "run", engine="torch")
    assert_one_line(command("translate", tmp_path / "run", stdin=b"le chat\n"), "does not translate")
    with pytest.raises(UserError, match="an encoder-only model"):
        model.choose_pair(target="en")
    with pytest.raises(UserError, match="was not trained on 'en'; it has: fr"):
        model.choose_pair("en")
    assert "an encoder-only model" in model.why_no_selector()
    assert model.languages == ("fr", "fr")
    assert "- sentences read: 3000" in (tmp_path / "run" / "model" / "README.md").read_text("utf-8")
    done = command("info", tmp_path / "run")
    assert done.returncode == 0
    assert b"2-0" in done.stdout


def test_the_verb_measures_what_validation_does(masked_recipe, tmp_path, here):
    held_out = write_corpus(tmp_path, 130, "valid", seed=2)[0]  # more than two batches
    settings = ["objective={name: latent, encoder_target: 2}", f"data.valid={{text: {held_out}}}"]
    run_recipe(masked_recipe, tmp_path / "run", *settings, "train.steps=20", "train.average=1", *SHORT)
    *_, last = (one for one in read_log(tmp_path / "run") if one["kind"] == "valid")
    done = here("perplexity", tmp_path / "run", "--text", held_out)
    rows = {row.split()[0]: float(row.split()[-1]) for row in done.stdout.decode().splitlines()[-2:]}
    assert rows == {
        "2-0": pytest.approx(last["perplexity"]["hard"], abs=0.006),
        "3-0-soft": pytest.approx(last["perplexity"]["soft"], abs=0.006),
    }
    one = here("perplexity", tmp_path / "run", "--text", held_out, "--depths", "2-0", "--seed", 2)
    assert float(one.stdout.split()[-1]) != rows["2-0"]  # other subwords are hidden


def test_a_perplexity_beyond_all_floats_is_infinite():
    assert to_perplexity(math.log(20.0)) == pytest.approx(20.0)
    assert to_perplexity(1e4) == math.inf


def test_what_cannot_be_measured_is_refused(masked_recipe, toy_run, tmp_path, here):
    run_recipe(masked_recipe, tmp_path / "run", "train.steps=2", *SHORT)
    (text := tmp_path / "text").write_text("le chat\n" + "chat " * 2000 + "\n", "utf-8")
    (empty := tmp_path / "empty").write_text("\n\n", "utf-8")
    run = tmp_path / "run"
    assert_one_line(here("perplexity", toy_run, "--text", text), "this model translates")
    assert_one_line(here("perplexity", run, "--text", text), "line 2")
    assert_one_line(here("perplexity", run, "--text", empty), "no text to measure with")
    assert_one_line(here("perplexity", run, "--text", text, "--depths", "9-9"), "9-9")
    assert here("perplexity", run, "--text", text, "--cut-long").returncode == 0


def test_interrupted_and_resumed_equals_uninterrupted(masked_recipe, tmp_path):
    settings = [*SHORT, "train.schedule=inverse-sqrt", "objective={name: latent}"]
    run_recipe(masked_recipe, tmp_path / "whole", *settings, "train.steps=6")
    run_recipe(masked_recipe, tmp_path / "parts", *settings, "train.steps=2")
    run_recipe(masked_recipe, tmp_path / "parts", *settings, "train.steps=6")
    one, other = load_weights(tmp_path / "whole"), load_weights(tmp_path / "parts")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_does_not_fit_is_refused(masked_recipe, toy_recipe, tmp_path):
    for recipe, change, words in (
        (masked_recipe, "model.decoder_layers=2", "masked language modelling, which has no decoder"),
        (toy_recipe, "model.decoder_layers=0", "a model without a decoder cannot translate"),
        (masked_recipe, "objective={name: flexible}", "flexible needs a decoder"),
        (masked_recipe, "model.share_embeddings=none", "leave share_embeddings at all"),
    ):
        with pytest.raises(UserError, match=words):
            run_recipe(recipe, tmp_path / "run", change)
    assert read_recipe(masked_recipe).data.is_text

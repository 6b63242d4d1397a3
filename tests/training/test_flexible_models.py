"""Flexible and LayerDrop models, trained for real, and training that starts from a finished model."""

import shutil

import pytest
import torch
from conftest import load_weights, run_recipe, save_changed, toy_pairs

import anydepth
from anydepth.errors import UserError
from anydepth.training.checkpoint import average_checkpoints
from anydepth.training.run_log import read_log

pytestmark = pytest.mark.slow

SHORT = ["train.steps=8", "train.checkpoint_every=4", "train.valid_every=8", "train.log_every=2", "train.warmup=2"]
FLEXIBLE = "objective={name: flexible, encoder_tasks: 1, decoder_tasks: 1}"


@pytest.mark.parametrize(
    ("objective", "steps", "depths", "right_at_least"),
    [
        ("{name: flexible, decoder_tasks: 1}", 200, 6, 12),
        # The paper's point: it is worse when shallow.
        ("{name: layerdrop, encoder_p: 0.5, decoder_p: 0.5}", 400, 8, 10),
    ],
    ids=["flexible", "layerdrop"],
)
def test_every_depth_of_the_menu_translates(toy_recipe, tmp_path, objective, steps, depths, right_at_least):
    """A model that has not learnt gets none of them right."""
    changes = [f"objective={objective}", "model.encoder_layers=4", "model.dropout=0", f"train.steps={steps}"]
    rate = ["train.learning_rate=8.0e-3", "train.warmup=30"] if steps < 400 else ["train.learning_rate=5.0e-3"]
    run_recipe(toy_recipe, tmp_path / "run", *changes, *rate)
    translator = anydepth.load(tmp_path / "run", engine="torch")
    assert len(translator.menu) == depths
    pairs = toy_pairs(40, seed=77)
    for entry in translator.menu:
        outputs = translator.translate([source for source, _ in pairs], depth=entry.name)
        right = sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True))
        assert right >= right_at_least, f"{entry.name}: {right} of 40"


def test_training_starts_from_the_weights_and_the_tokenizer_of_a_model(toy_recipe, toy_run, tmp_path):
    run = tmp_path / "run"
    run_recipe(toy_recipe, run, *SHORT, f"init_from={toy_run}", FLEXIBLE, "train.steps=1", "train.learning_rate=1.0e-7")
    assert (run / "model" / "tokenizer.model").read_bytes() == (toy_run / "model" / "tokenizer.model").read_bytes()
    before, after = load_weights(toy_run), load_weights(run)
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=0, atol=1e-6)
    assert anydepth.load(run, engine="torch").menu.names == ["1-1", "1-2", "2-1", "2-2"]
    assert str(tmp_path) not in (run / "model" / "README.md").read_text()


def test_the_model_section_comes_from_the_start_where_the_recipe_has_none(toy_recipe, toy_run, tmp_path):
    text = toy_recipe.read_text()
    (tmp_path / "short.yaml").write_text(
        "".join(line for line in text.splitlines(True) if not line.startswith("model:"))
    )
    run_recipe(tmp_path / "short.yaml", tmp_path / "run", *SHORT, f"init_from={toy_run}", "model.dropout=0.3")
    config = anydepth.load(tmp_path / "run", engine="torch").model.config
    assert (config.width, config.encoder_layers, config.dropout) == (32, 2, 0.3)


def test_another_size_than_the_start_is_refused(toy_recipe, toy_run, tmp_path):
    with pytest.raises(UserError, match=r"model\.width is 64 but that of .* is 32"):
        run_recipe(toy_recipe, tmp_path / "run", f"init_from={toy_run}", "model.width=64")
    with pytest.raises(UserError, match="there is no folder nowhere"):
        run_recipe(toy_recipe, tmp_path / "run", "init_from=nowhere")
    with pytest.raises(UserError, match=r"leave out data\.tokenizer"):
        run_recipe(toy_recipe, tmp_path / "run", f"init_from={toy_run}", "data.tokenizer=other.model")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_no_longer_needs_its_start_and_equals_an_uninterrupted_one(toy_recipe, toy_run, tmp_path):
    start = tmp_path / "start"
    shutil.copytree(toy_run / "model", start)
    changes = [*SHORT, f"init_from={start}", FLEXIBLE, "train.schedule=inverse-sqrt"]
    run_recipe(toy_recipe, tmp_path / "whole", *changes)
    run_recipe(toy_recipe, tmp_path / "parts", *changes, "train.steps=4")
    shutil.rmtree(start)
    assert "resuming from step 4" in run_recipe(toy_recipe, tmp_path / "parts", *changes)
    whole, parts = (average_checkpoints(tmp_path / name, [8]) for name in ("whole", "parts"))
    for name in whole:
        assert torch.equal(whole[name], parts[name]), name


def spoil_checkpoints(run):
    for path in run.glob("checkpoints/*/model.safetensors"):
        path.write_bytes(b"x")


def test_with_nothing_but_torn_checkpoints_a_run_begins_at_its_start_again(toy_recipe, toy_run, tmp_path):
    changes = [*SHORT, f"init_from={toy_run}", FLEXIBLE, "train.schedule=inverse-sqrt"]
    run_recipe(toy_recipe, tmp_path / "whole", *changes)
    run_recipe(toy_recipe, tmp_path / "parts", *changes, "train.steps=4")
    spoil_checkpoints(tmp_path / "parts")
    assert "is damaged: skipped" in run_recipe(toy_recipe, tmp_path / "parts", *changes)
    whole, parts = (average_checkpoints(tmp_path / name, [8]) for name in ("whole", "parts"))
    for name in whole:
        assert torch.equal(whole[name], parts[name]), name


def test_a_start_that_has_changed_is_refused_and_a_finished_run_needs_none(toy_recipe, toy_run, tmp_path):
    start, run = tmp_path / "start", tmp_path / "run"
    shutil.copytree(toy_run / "model", start)
    changes = [*SHORT, f"init_from={start}", FLEXIBLE]
    run_recipe(toy_recipe, run, *changes)
    shutil.rmtree(start)
    shutil.rmtree(run / "checkpoints")
    assert "this run has finished" in run_recipe(toy_recipe, run, *changes)

    (run / "finished.json").unlink()  # as if it had been killed before its first checkpoint
    save_changed(toy_run, start)
    with pytest.raises(UserError, match="init_from is not the model"):
        run_recipe(toy_recipe, run, *changes)


def test_keys_without_effect_are_noted(toy_recipe, tmp_path):
    objective = "objective={name: flexible, sides: decoder, encoder_tasks: 1, decoder_tasks: 50}"
    said = run_recipe(toy_recipe, tmp_path / "run", *SHORT, "train.steps=1", objective)
    assert "objective.encoder_tasks has no effect: there is 1 to choose from" in said
    assert "objective.decoder_tasks has no effect: there are 2 to choose from" in said


def test_layerdrop_draws_for_every_accumulated_batch(toy_recipe, tmp_path):
    """With one batch per update some layer of four would often go without a gradient; with eight hardly ever."""
    objective = "objective={name: layerdrop, encoder_p: 0.5, decoder_p: 0.5}"
    text = ["model.encoder_layers=4", *SHORT, "train.log_every=1", objective]
    run_recipe(toy_recipe, tmp_path / "one", *text)
    run_recipe(toy_recipe, tmp_path / "eight", *text, "train.accumulate=8")
    idle = {}
    for name in ("one", "eight"):
        records = [record for record in read_log(tmp_path / name) if record["kind"] == "train"]
        idle[name] = sum(norm == 0 for record in records for norm in record["layers"].values())
    assert idle["one"] > 8 * 6 / 4
    assert idle["eight"] < 4


def test_a_prime_depth_is_trained_with_a_warning(toy_recipe, tmp_path):
    said = run_recipe(toy_recipe, tmp_path / "run", *SHORT, "model.encoder_layers=5", FLEXIBLE)
    assert "encoder layers: 5 is prime, so its only depths are 1 and 5: use a number" in said
    assert anydepth.load(tmp_path / "run", engine="torch").menu.names == ["1-1", "1-2", "5-1", "5-2"]


def test_the_sub_words_of_another_model_can_be_used(toy_recipe, toy_run, tmp_path):
    run_recipe(toy_recipe, tmp_path / "run", *SHORT, f"data.tokenizer={toy_run}", "data.vocabulary=280")
    theirs = (toy_run / "model" / "tokenizer.model").read_bytes()
    assert (tmp_path / "run" / "model" / "tokenizer.model").read_bytes() == theirs
    with pytest.raises(UserError, match="there is no tokenizer at nowhere"):
        run_recipe(toy_recipe, tmp_path / "other", "data.tokenizer=nowhere")

"""The trainer on real small runs. Kill -9 and resume is in tests/system."""

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import RECIPE, WORDS, load_weights, run_recipe, toy_pairs, write_corpus
from labelled_texts import toy_texts, write_labelled
from made_classifiers import RECIPE as LABELS
from torch._dynamo.utils import counters
from torch.autograd.graph import saved_tensors_hooks

import anydepth
from anydepth.config.reading import read_recipe
from anydepth.data import Batch, BatchStream, prepare
from anydepth.data.batching import make_batch
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.layers import round_int4
from anydepth.objectives import make_objective
from anydepth.training import logging as training_logging
from anydepth.training.checkpoint import average_checkpoints, load_tensors, saved_steps
from anydepth.training.run_log import read_log

SHORT = ["train.steps=12", "train.checkpoint_every=4", "train.valid_every=6", "train.log_every=3"]


def assert_same_weights(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_a_trained_model_translates_at_every_depth(toy_run):
    translator = anydepth.load(toy_run, engine="torch")
    assert translator.menu.names == ["1-1", "1-2", "2-1", "2-2"]
    pairs = toy_pairs(40, seed=77)
    for depth in translator.menu.names:
        outputs = translator.translate([source for source, _ in pairs], depth=depth)
        right = sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True))
        assert right >= 30, f"{depth}: {right} of 40"
    assert set(WORDS.values()) >= set(outputs[0].rstrip(".").split())


def test_interrupted_and_resumed_equals_uninterrupted(toy_recipe, tmp_path):
    run_recipe(toy_recipe, tmp_path / "whole", *SHORT)
    first = tmp_path / "parts"
    run_recipe(toy_recipe, first, *SHORT[1:], "train.steps=8", "train.schedule=inverse-sqrt")
    whole = tmp_path / "whole-sqrt"
    run_recipe(toy_recipe, whole, *SHORT, "train.schedule=inverse-sqrt")
    said = run_recipe(toy_recipe, first, *SHORT, "train.schedule=inverse-sqrt")
    assert "resuming from step 8" in said
    assert_same_weights(load_weights(first), load_weights(whole))
    steps = [record["step"] for record in read_log(first)]
    assert steps == sorted(steps)


def test_objectives_train_in_every_mode(toy_recipe, tmp_path):
    for number, changes in enumerate(
        (
            ["objective={name: vanilla}"],
            ["objective={name: tied-multi, mode: exact}"],
            ["objective={name: tied-multi, mode: sampled, weights: deepest}"],
        )
    ):
        run_recipe(toy_recipe, tmp_path / str(number), *SHORT, *changes)
        losses = [r["loss"] for r in read_log(tmp_path / str(number)) if r["kind"] == "train"]
        assert losses[-1] < losses[0]


def test_no_checkpoint_of_the_warm_up_is_averaged(toy_recipe, tmp_path):
    settings = [*SHORT, "train.average=3", "train.valid_every=12"]
    for warmup, averaged in ((3, [4, 8, 12]), (4, [8, 12]), (20, [12])):
        run = tmp_path / str(warmup)
        said = run_recipe(toy_recipe, run, *settings, f"train.warmup={warmup}")
        assert json.loads((run / "finished.json").read_text())["averaged"] == averaged
        assert_same_weights(load_weights(run), average_checkpoints(run, averaged))
        fewer = f"averaging {len(averaged)} of the last 3 checkpoints: the others are of the warm-up"
        assert (fewer in said) == (len(averaged) < 3)
    one = run_recipe(toy_recipe, tmp_path / "one", *SHORT, "train.average=1", "train.warmup=20")
    assert "of the warm-up" not in one


def test_logs_hold_layer_norms_rates_and_validation(toy_run):
    records = read_log(toy_run)
    trained = [r for r in records if r["kind"] == "train"]
    assert set(trained[0]["layers"]) == {"encoder.1", "encoder.2", "decoder.1", "decoder.2"}
    assert all(value > 0 for value in trained[0]["layers"].values())
    assert trained[0]["tokens_per_second"] > 0
    assert trained[-1]["loss"] < trained[0]["loss"] / 2
    valid = [r for r in records if r["kind"] == "valid"]
    assert [r["step"] for r in valid] == [200, 400]
    assert set(valid[0]["bleu"]) == {"2-2", "1-1"}
    assert any((toy_run / "tensorboard").iterdir())


def test_finished_model_is_the_mean_of_the_last_checkpoints(toy_run):
    assert json.loads((toy_run / "finished.json").read_text())["averaged"] == [350, 400]
    assert_same_weights(load_weights(toy_run), average_checkpoints(toy_run, [350, 400]))


def test_a_finished_run_says_so_and_is_left_alone(toy_recipe, toy_run):
    before = (toy_run / "model" / "model.safetensors").stat().st_mtime_ns
    assert "has finished" in run_recipe(toy_recipe, toy_run)
    assert (toy_run / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_accumulated_batches_equal_one_large_batch(toy_recipe, tmp_path):
    recipe = read_recipe(toy_recipe)
    prepared = prepare(recipe.data, tmp_path / "data", 1)
    store = prepared.parts[0].train
    stream = BatchStream(store, 200, 1)
    one, two = stream.at(0, 0), stream.at(0, 1)
    together = make_batch(store, np.concatenate([one.indices, two.indices]))
    torch.manual_seed(1)
    model = Transformer(recipe.model.model_copy(update={"dropout": 0.0}), prepared.tokenizer.vocabulary_size)
    objective = make_objective(recipe.objective, recipe.model, 0.1, seed=1)
    tokens = one.target_tokens + two.target_tokens
    parts = [objective(model, batch, 5).total * batch.target_tokens / tokens for batch in (one, two)]
    expected = torch.autograd.grad(objective(model, together, 5).total, list(model.parameters()))
    found = torch.autograd.grad(sum(parts), list(model.parameters()))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_accumulation_counts_updates(toy_recipe, tmp_path):
    run_recipe(toy_recipe, tmp_path / "run", *SHORT, "train.accumulate=3", "train.steps=3")
    state = json.loads((tmp_path / "run/checkpoints/step-000000003/state.json").read_text())["state"]
    assert (state["step"], state["batch"]) == (3, 9)


def test_patience_stops_early_and_takes_the_checkpoints_up_to_the_best(toy_recipe, tmp_path):
    said = run_recipe(
        toy_recipe, tmp_path / "run", "train.steps=5000", "train.learning_rate=1.0e-9", "train.warmup=0",
        "train.patience=2", "train.valid_every=5", "train.checkpoint_every=5", "train.average=2",
    )  # fmt: skip
    assert "no improvement in 2 validations" in said
    finished = json.loads((tmp_path / "run/finished.json").read_text())
    assert finished["averaged"] == [5]  # nothing is learnt at this rate: the first validation stays the best
    assert saved_steps(tmp_path / "run")[-1] == 15


@pytest.mark.slow
def test_compiled_layers_learn_the_same(tmp_path):
    """Of an encoder alone: compiling one layer takes long enough."""
    recipe = tmp_path / "recipe.yaml"
    labelled = write_labelled(tmp_path / "labels.tsv", toy_texts(300))
    recipe.write_text(LABELS.format(train=labelled, objective="vanilla"), "utf-8")
    short = ["model.encoder_layers=1", "model.dropout=0", "train.steps=3", "train.valid_every=3", "train.log_every=1"]
    before = counters["stats"]["unique_graphs"]
    for run, compiled in (("plain", "false"), ("compiled", "true")):
        run_recipe(recipe, tmp_path / run, *short, f"train.compile={compiled}")
    plain, compiled = ([r["loss"] for r in read_log(tmp_path / run) if "loss" in r] for run in ("plain", "compiled"))
    assert compiled == pytest.approx(plain, rel=1e-5)
    assert counters["stats"]["unique_graphs"] > before


def test_training_for_int4_sees_rounded_weights_and_writes_others(toy_recipe, tmp_path):
    """The first loss is that of the rounded initial weights; the model folder has weights that int4 does not."""
    losses = {}
    for quantize in ("none", "int4"):
        short = ["train.steps=2", "train.log_every=1", "train.valid_sentences=1", f"train.quantize={quantize}"]
        run_recipe(toy_recipe, tmp_path / quantize, *short)
        losses[quantize] = [record["loss"] for record in read_log(tmp_path / quantize) if "loss" in record]
    assert losses["int4"][0] != losses["none"][0]
    assert losses["int4"] == pytest.approx(losses["none"], rel=0.05)
    weight = load_weights(tmp_path / "int4")["encoder.layers.0.ffn_up.weight"]
    assert not torch.allclose(weight, round_int4(weight), rtol=1e-3)


def test_recomputed_layers_keep_little_and_learn_the_same(toy_recipe, tmp_path):
    kept = {}
    for recompute in ("false", "true"):
        sizes: list[int] = []
        with saved_tensors_hooks(lambda value, sizes=sizes: sizes.append(value.numel()) or value, lambda value: value):
            changes = [f"train.activation_checkpointing={recompute}", "train.steps=1", "train.valid_sentences=1"]
            run_recipe(toy_recipe, tmp_path / recompute, *changes)
        kept[recompute] = sum(sizes)
    assert kept["true"] < kept["false"] / 2
    assert_same_weights(*(load_weights(tmp_path / recompute) for recompute in kept))


def test_bfloat16_trains(toy_recipe, tmp_path):
    run_recipe(toy_recipe, tmp_path / "run", *SHORT, "train.precision=bfloat16")
    losses = [r["loss"] for r in read_log(tmp_path / "run") if r["kind"] == "train"]
    assert losses[-1] < losses[0]
    assert load_tensors(tmp_path / "run", 12, "model")["encoder.norm.weight"].dtype == torch.float32


def test_float16_keeps_its_scale_in_the_checkpoint(toy_recipe, tmp_path):
    run_recipe(toy_recipe, tmp_path / "run", *SHORT, "train.precision=float16", "train.steps=4")
    state = json.loads((tmp_path / "run/checkpoints/step-000000004/state.json").read_text())["state"]
    assert state["scaler"]["scale"] > 1
    run_recipe(toy_recipe, tmp_path / "run", *SHORT, "train.precision=float16")
    losses = [r["loss"] for r in read_log(tmp_path / "run") if r["kind"] == "train"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("rate", ["1.0e+3", "1.0e+30"])
def test_a_diverging_run_stops_and_keeps_what_it_had(toy_recipe, tmp_path, rate):
    settings = ["train.steps=300", "train.checkpoint_every=1", f"train.learning_rate={rate}", "train.warmup=0"]
    with pytest.raises(UserError, match=r"training diverged at step \d+.*lower train.learning_rate"):
        run_recipe(toy_recipe, tmp_path / "run", *settings, "train.clip=1.0e+30", "train.valid_every=1000")
    for step in saved_steps(tmp_path / "run"):
        assert all(torch.isfinite(value).all() for value in load_tensors(tmp_path / "run", step, "model").values())


def test_damaged_checkpoints_never_reach_the_finished_model(toy_recipe, tmp_path):
    run = tmp_path / "run"
    run_recipe(toy_recipe, run, *SHORT)
    whole = load_weights(run)
    for damage in ("missing", "flipped", "truncated"):
        (run / "finished.json").unlink()
        older = run / "checkpoints" / "step-000000008" / "model.safetensors"
        content = older.read_bytes()
        older.unlink()
        if damage != "missing":
            older.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if damage == "flipped" else content[:500])
        assert "checkpoint of step 8 is damaged: skipped" in run_recipe(toy_recipe, run, *SHORT)
        assert json.loads((run / "finished.json").read_text())["averaged"] == [12]
        assert_same_weights(load_weights(run), load_tensors(run, 12, "model"))
        shutil.rmtree(run)
        run_recipe(toy_recipe, run, *SHORT)
    assert_same_weights(load_weights(run), whole)


def test_a_lost_model_is_made_again(toy_recipe, tmp_path):
    run = tmp_path / "run"
    run_recipe(toy_recipe, run, *SHORT)
    whole = load_weights(run)
    shutil.rmtree(run / "model")
    run_recipe(toy_recipe, run, *SHORT)
    assert_same_weights(load_weights(run), whole)


def test_a_run_does_not_go_on_with_other_data(toy_recipe, tmp_path):
    run, copy = tmp_path / "run", tmp_path / "recipe.yaml"
    source, target = write_corpus(tmp_path, 400)
    copy.write_text(RECIPE.format(source=source, target=target).replace("320", "300"))
    run_recipe(copy, run, *SHORT)
    shutil.rmtree(run / "data")
    write_corpus(tmp_path, 400, seed=9)
    with pytest.raises(UserError, match="not what this run was trained on"):
        run_recipe(copy, run, *SHORT, "train.steps=20")


def test_a_mistake_at_the_start_can_be_mended(toy_recipe, tmp_path):
    with pytest.raises(UserError):
        run_recipe(toy_recipe, tmp_path / "run", *SHORT, "data.train.source=/nowhere")
    run_recipe(toy_recipe, tmp_path / "run", *SHORT)


def test_a_run_cannot_be_shortened(toy_recipe, tmp_path):
    run_recipe(toy_recipe, tmp_path / "run", *SHORT)
    (tmp_path / "run" / "finished.json").unlink()
    with pytest.raises(UserError, match="already at step 12"):
        run_recipe(toy_recipe, tmp_path / "run", *SHORT, "train.steps=5")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, content) for name in ("recipe.json", "data/prepared.json") for content in (b"", b"{", b"[]", b"\xff")),
        ("data/valid.source", b""),
        ("data/train.source.tokens", b"[]"),
    ],
)
def test_a_damaged_run_folder_is_explained(toy_recipe, toy_run, tmp_path, name, content):
    run = shutil.copytree(toy_run, tmp_path / "run", ignore=shutil.ignore_patterns("tensorboard", "model"))
    (run / name).write_bytes(content)
    with pytest.raises(UserError, match="is damaged"):
        run_recipe(toy_recipe, run, "train.steps=500")


def test_a_changed_recipe_is_refused_by_key(toy_recipe, toy_run):
    with pytest.raises(
        UserError, match=r"started with another train.learning_rate, model.dropout|model.dropout, train.learning_rate"
    ):
        run_recipe(toy_recipe, toy_run, "train.learning_rate=0.5", "model.dropout=0.2")


def test_unknown_validation_depth_is_refused(toy_recipe, tmp_path):
    with pytest.raises(UserError, match="no depth 9-9"):
        run_recipe(toy_recipe, tmp_path / "run", "train.valid_depths=[9-9]")


def test_batch_order_is_independent_of_history(toy_recipe, tmp_path):
    prepared = prepare(read_recipe(toy_recipe).data, tmp_path / "data", 1)
    fresh, used = (BatchStream(prepared.parts[0].train, 300, 5) for _ in range(2))
    for index in range(used.batches_in(0)):
        used.at(0, index)
    one, other = fresh.at(1, 3), used.at(1, 3)
    assert isinstance(one, Batch)
    assert torch.equal(one.source, other.source)


def test_the_time_left_is_told_by_recent_steps(monkeypatch):
    """By a clock of our own: slow first steps, then 1 s a step, then 4 s."""
    now = 0.0
    monkeypatch.setattr(training_logging.time, "perf_counter", lambda: now)
    meter = training_logging.Meter(1000)
    for step, seconds in [(10, 500.0), *((10 * k, 10.0) for k in range(2, 21))]:
        now += seconds
        meter.read(step)
        assert meter.seconds_left() == (None if step == 10 else 1000 - step)
    for step in range(210, 260, 10):
        now += 40.0 + 300.0
        meter.pause(300.0)  # for a validation
        meter.read(step)
    assert meter.seconds_left() == 4 * 750

"""Training with a teacher, on real small runs."""

import shutil

import pytest
import torch
from conftest import load_weights, run_recipe, save_changed, toy_pairs

import anydepth
from anydepth.errors import UserError
from anydepth.evaluate.metrics import score
from anydepth.training.checkpoint import average_checkpoints, load_tensors
from anydepth.training.run_log import read_log

pytestmark = pytest.mark.slow

SHORT = ["train.steps=8", "train.checkpoint_every=4", "train.valid_every=8", "train.log_every=2", "train.warmup=4"]
SMALL = ["model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "objective={name: vanilla}"]


def test_a_student_learns_from_a_wider_teacher_and_forgets_it(toy_recipe, toy_run, tmp_path):
    run = tmp_path / "run"
    teacher = f"teacher={{model: {toy_run}, method: ckd, map: overlap, attention: true, lambda: 0.3}}"
    run_recipe(toy_recipe, run, *SMALL, "train.steps=300", "train.learning_rate=2.0e-2", teacher)
    student = anydepth.load(run, engine="torch")
    assert student.menu.names == ["1-1"]
    assert (run / "model" / "tokenizer.model").read_bytes() == (toy_run / "model" / "tokenizer.model").read_bytes()
    assert not [name for name in load_weights(run) if "match" in name or "teach" in name]
    assert str(toy_run.parent) not in (run / "model" / "README.md").read_text("utf-8")
    pairs = toy_pairs(40, seed=77)
    outputs = student.translate([source for source, _ in pairs])
    assert score(outputs, [target for _, target in pairs]).bleu > 50
    records = [record for record in read_log(run) if record["kind"] == "train"]
    for record in records:
        parts = 0.6 * record["ce"] + 0.1 * record["kd"] + 0.3 * (record["ckd"] + record["attention"])
        assert record["loss"] == pytest.approx(parts, rel=1e-4)
    for part in ("ce", "kd", "ckd"):
        assert records[-1][part] < records[0][part]


@pytest.mark.parametrize("teacher", ["{model: TOY, map: {1: [1, 2]}}", "{model: self, method: ckd, sides: both}"])
def test_projections_are_resumed_exactly(toy_recipe, toy_run, tmp_path, teacher):
    """Also from a teacher that has moved meanwhile, if it is the same."""
    teaches_itself = "self" in teacher
    student = ["model.width=16", "train.accumulate=2"] if teaches_itself else SMALL
    common = [*student, *SHORT, "train.schedule=inverse-sqrt"]
    shutil.copytree(toy_run / "model", tmp_path / "moved")
    first, then = (f"teacher={teacher.replace('TOY', str(place))}" for place in (toy_run, tmp_path / "moved"))
    run_recipe(toy_recipe, tmp_path / "whole", *common, first)
    run_recipe(toy_recipe, tmp_path / "parts", *common, first, "train.steps=4")
    before = load_tensors(tmp_path / "parts", 4, "objective")
    assert "resuming from step 4" in run_recipe(toy_recipe, tmp_path / "parts", *common, then)
    whole, parts = (load_tensors(tmp_path / name, 8, "objective") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys() == before.keys() != set()
    for name in whole:
        assert torch.equal(whole[name], parts[name])
        assert not torch.equal(before[name], parts[name])
    students = [average_checkpoints(tmp_path / name, [8]) for name in ("whole", "parts")]
    for name in students[0]:
        assert torch.equal(students[0][name], students[1][name])


def test_a_model_can_teach_itself(toy_recipe, tmp_path):
    for objective in ("{name: tied-multi}", "{name: flexible}", "{name: layerdrop}"):
        run = tmp_path / objective[7:-1]
        said = run_recipe(
            toy_recipe, run, *SHORT, f"objective={objective}", "teacher={model: self, method: ckd, lambda: 0.2}"
        )
        assert "may learn nothing else: set teacher.start_step" in said
        records = [record for record in read_log(run) if record["kind"] == "train"]
        assert records[-1]["loss"] < records[0]["loss"]
        assert {"ce", "kd", "ckd"} <= set(records[-1])
        assert anydepth.load(run, engine="torch").menu.names == ["1-1", "1-2", "2-1", "2-2"]


def test_the_teacher_must_stay_the_same_and_a_finished_student_needs_none(toy_recipe, toy_run, tmp_path):
    teacher, run = tmp_path / "teacher", tmp_path / "run"
    shutil.copytree(toy_run / "model", teacher)
    changes = [*SMALL, *SHORT, f"teacher={{model: {teacher}, method: rkd}}"]
    run_recipe(toy_recipe, run, *changes)
    shutil.rmtree(teacher)
    assert "this run has finished" in run_recipe(toy_recipe, run, *changes)
    (run / "teacher.json").write_text("{")
    shutil.copytree(toy_run / "model", teacher)
    with pytest.raises(UserError, match=r"teacher\.json is .*: delete that file and give the same command again"):
        run_recipe(toy_recipe, run, *changes, "train.steps=10")
    (run / "teacher.json").unlink()
    run_recipe(toy_recipe, run, *changes, "train.steps=9")
    save_changed(toy_run, teacher)
    with pytest.raises(UserError, match=r"teacher\.model is not the model"):
        run_recipe(toy_recipe, run, *changes, "train.steps=10")


def test_what_cannot_teach_is_refused_before_anything_is_written(toy_recipe, toy_run, tmp_path):
    other = tmp_path / "other"
    run_recipe(toy_recipe, other, *SMALL, "train.steps=1", "data.vocabulary=300")
    run, teacher, damaged = tmp_path / "run", f"teacher.model={toy_run}", tmp_path / "damaged"
    shutil.copytree(toy_run / "model", damaged)
    (damaged / "model.safetensors").write_bytes((damaged / "model.safetensors").read_bytes()[:-100])
    for changes, words in (
        ([teacher, f"data.tokenizer={other}"], r"the teacher has another vocabulary than data\.tokenizer"),
        ([teacher, f"init_from={other}", "model={}"], "the teacher has another vocabulary than init_from"),
        ([teacher, "model.max_length=128", "data.max_tokens=64"], r"set it to 63"),
        ([teacher, "teacher.depth=3-3"], r"teacher\.depth: the teacher has no depth 3-3"),
        ([teacher, "teacher.map={1: [1, 3]}"], "teacher layer 3, but the teacher has 2 layers"),
        ([f"teacher.model={damaged}"], "is damaged"),
        (["teacher.model=nowhere"], "there is no model at nowhere"),
        (["teacher.model=self"], "several depths"),
        ([teacher, "teacher.map=overlapping"], r"teacher\.map.*choose from last"),
        ([teacher, "teacher.lambda=0.95"], "more than 1"),
    ):
        with pytest.raises(UserError, match=words):
            run_recipe(toy_recipe, run, *SMALL, *changes)
    assert not run.exists()


def test_what_a_user_should_know_of_a_teacher_is_said(toy_recipe, toy_run, tmp_path):
    for number, (keys, changes, notes) in enumerate(
        (
            ("method: rkd, map: skip, lambda: 0.5", [], ["teacher.map has no effect", "teacher.lambda has no effect"]),
            ("method: rkd, eta: 0", [], ["the teacher teaches nothing"]),
            ("method: rkd, start_step: 1", [], ["the teacher teaches nothing"]),
            ("method: rkd, eta: 1", [], ["nothing is learned from the references"]),
            ("method: rkd", ["data.target_language=de"], ["the teacher translates fr to en"]),
        )
    ):
        teacher = f"teacher={{model: {toy_run}, {keys}}}"
        said = run_recipe(toy_recipe, tmp_path / str(number), *SMALL, *SHORT, "train.steps=1", teacher, *changes)
        assert [line for line in said.splitlines() if line.startswith("note: ")] == [
            next(line for line in said.splitlines() if note in line) for note in notes
        ]


def test_the_mean_of_a_part_is_over_the_updates_that_have_it(toy_recipe, toy_run, tmp_path):
    """A teacher that begins in the middle of what a log line is about."""
    changes = [*SMALL, "train.steps=6", "train.log_every=6", "train.valid_every=6"]
    for name, begin in (("late", 5), ("each", 0)):
        teacher = f"teacher={{model: {toy_run}, method: rkd, eta: 0.0001, start_step: {begin}}}"
        every = "train.log_every=1" if name == "each" else "train.log_every=6"
        run_recipe(toy_recipe, tmp_path / name, *changes, teacher, every)
    late, each = ([one for one in read_log(tmp_path / name) if one["kind"] == "train"] for name in ("late", "each"))
    assert late[-1]["kd"] == pytest.approx(each[-1]["kd"], rel=0.02)

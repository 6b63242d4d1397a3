"""What is read from a run's log: hand-computed figures, and logs that are not whole."""

import math

import numpy as np
import pytest
from constructed_logs import gated, latent_records, norms, static_records, train_record, valid_record, write_log

from anydepth.errors import UserError
from anydepth.training.run_log import LOG, LayersOverSteps, TrainingRun, moments, read_log, read_run


def test_a_torn_last_line_is_left_out_and_any_other_is_named(tmp_path):
    torn = '{"kind": "train", "st'
    run = write_log(tmp_path / "run", static_records(3), torn)
    assert [record["step"] for record in read_log(run)] == [25, 50, 75]
    (run / LOG).write_text(torn + "\n" + (run / LOG).read_text("utf-8").splitlines()[0] + "\n", "utf-8")
    with pytest.raises(UserError, match="damaged in line 1"):
        read_log(run)


def test_a_record_without_a_step_is_none(tmp_path):
    for line in ("7", "[]", '{"kind": "train"}', '{"step": null}', "\x00\x01"):
        assert read_log(write_log(tmp_path, [train_record(5, 1.0)], line)) == [train_record(5, 1.0)]


def test_gradients_by_stack_lowest_layer_first():
    found = TrainingRun.of("a", [train_record(10, 5.0, norms(2, 11)), train_record(20, 4.0, norms(2, 11, 0.1))])
    stacks = found.gradients()
    assert list(stacks) == ["encoder", "decoder"]
    assert stacks["decoder"].steps == [10, 20]
    assert stacks["decoder"].grid[:, 0].tolist() == list(range(1, 12))
    assert stacks["encoder"].grid[1].tolist() == [2.0, 0.2]


def test_norms_that_are_not_finite_are_holes():
    records = [train_record(10, 5.0, {"decoder.1": "inf", "decoder.2": 3.0}), train_record(20, math.inf)]
    found = TrainingRun.of("a", records)
    assert math.isnan(found.gradients()["decoder"].grid[0, 0])
    assert found.curve("nll").steps == [10]


def test_utilisation_is_the_mean_of_the_samples_over_pairs():
    run = TrainingRun.of("a", [gated(10, {"en-fr": [0.2, 1.0], "en-cs": [0.6, 0.5]}), gated(20, {"x": [0.0, 1.0]})])
    used = run.utilisation("decoder")
    assert used.steps == [10, 20]
    np.testing.assert_allclose(used.grid, [[0.4, 0.0], [0.75, 1.0]])


def test_selected_layers_are_the_mean_over_pairs():
    records = [gated(10, {"en-fr": [0.9, 0.9, 0.1], "en-cs": [0.9, 0.9, 0.9]})]
    assert TrainingRun.of("a", records).selected("decoder").values == [2.5]


def test_kl_is_the_sum_over_the_stacks():
    apart = {"kl/encoder": 0.1, "kl/decoder": 0.2}
    run = TrainingRun.of("a", [train_record(10, 5.0, kl=0.5), train_record(20, 5.0, **apart), train_record(30, 5.0)])
    assert run.kl().steps == [10, 20]
    assert run.kl().values == pytest.approx([0.5, 0.3])


def test_thinning_takes_neighbours_together_at_the_last_of_them():
    values = LayersOverSteps([1, 2, 3, 4], np.array([[1.0, 100.0, 0.0, 4.0], [2.0, 2.0, 0.0, np.nan]]))
    thin = values.thinned(2, geometric=True)
    assert thin.steps == [2, 4]
    np.testing.assert_allclose(thin.grid, [[10.0, 4.0], [2.0, np.nan]])
    assert values.thinned(9, geometric=True).steps == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("nll", "by_depth"),
    [
        ({"6-6": 2.0, "1-1": 3.0}, {"6-6": 2.0, "1-1": 3.0}),
        ({"en-fr": {"soft": 2.0}, "en-cs": {"soft": 3.0}, "mean": {"soft": 2.5}}, {"soft": 2.5}),
        ({"en-fr": {"soft": 2.0}, "en-cs": {"soft": 3.0}}, {"soft": 2.5}),
        (2.0, {"": 2.0}),
    ],
)
def test_validation_by_depth_whatever_the_languages(nll, by_depth):
    run = TrainingRun.of("a", [*static_records(2), valid_record(50, nll)])
    assert {depth: curve.values for depth, curve in run.validation().items()} == {d: [v] for d, v in by_depth.items()}


def test_moments_are_those_of_the_paper_and_fewer_in_a_short_log():
    records = [{"step": step} for step in range(1, 101)]
    assert [record["step"] for record in moments(records)] == [2, 6, 25, 50, 100]
    assert [record["step"] for record in moments(records[:1])] == [1]
    assert [record["step"] for record in moments([{"step": 50}, {"step": 100}])] == [50, 100]


def test_a_run_without_nll_has_its_loss():
    run = TrainingRun.of("a", [{"kind": "train", "step": 5, "loss": 0.25, "layers": {}}, valid_record(5, None)])
    assert (run.loss_name, run.curve(run.loss_name).values, run.gradients()) == ("loss", [0.25], {})


def test_gates_of_a_latent_log():
    run = TrainingRun.of("latent", latent_records())
    assert (run.has_gates, run.gated_sides, run.last_step) == (True, ["decoder"], 300)
    assert not TrainingRun.of("static", static_records()).has_gates


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    write_log(tmp_path / "nothing", [])
    write_log(tmp_path / "torn", [], '{"kind": "tr')
    write_log(tmp_path / "valid", [valid_record(5, {"1-1": 2.0})])
    write_log(tmp_path / "ended", [valid_record(5, {"1-1": 2.0})])
    (tmp_path / "ended" / "finished.json").write_text("{}", "utf-8")
    write_log(tmp_path / "diverged", [{"kind": "diverged", "step": 3, "layer": None}])
    write_log(tmp_path / "text", [], "hello\n")
    write_log(tmp_path / "foreign", [{"step": 1, "loss": 2.0}])
    for name, words in {
        "nowhere": "there is no run at",
        "empty": "not the folder of a run",
        "nothing": "no record of training yet",
        "torn": "no record of training yet",
        "valid": "no record of training yet",
        "ended": r"ended before its first log record: train again with a lower train\.log_every",
        "diverged": "ended before its first log record",
        "text": "is no log of a run",
        "foreign": "is no log of a run",
    }.items():
        with pytest.raises(UserError, match=words):
            read_run("x", tmp_path / name)

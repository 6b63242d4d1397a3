import logging
import math
import random
import shutil
from dataclasses import replace

import pytest
import torch

import anydepth
from anydepth.errors import UserError
from anydepth.selectors.budget import BudgetSelector, in_ms, parse_budget, within_budget
from anydepth.selectors.calibration import Calibration, CalibrationConditions, DepthCost, LengthCost, machine_key, save

EOS = 3
SHORT, LONG = [5] * 9 + [EOS], [5] * 99 + [EOS]
TEXTS = ["le chat dort.", "", "un chien mange et dort ici."]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def translator(toy_run, tmp_path):
    shutil.copytree(toy_run / "model", tmp_path / "model")
    return anydepth.load(tmp_path / "model", engine="torch")


def calibrate_by_hand(translator, **conditions):
    """1-1 takes 10 ms for a sentence, 2-2 40 ms; in batches of 32 a tenth of that."""
    seconds = {"1-1": 0.010, "1-2": 0.020, "2-1": 0.030, "2-2": 0.040}
    bleu = {"1-1": 20.0, "1-2": 25.0, "2-1": 24.0, "2-2": 30.0}
    made = CalibrationConditions(
        machine_key(), "cpu", torch.get_num_threads(), 1, 0.6, 32, 32.0, 3, 200, 500, "dev.fr", "dev.en", "2030-01-01"
    )
    depths = {
        name: DepthCost(LengthCost(value, 0), LengthCost(value / 10, 0), {"bleu": bleu[name], "chrf": 50.0})
        for name, value in seconds.items()
    }
    calibration = Calibration(replace(made, **conditions), {8: 500}, depths)
    save(calibration, translator.folder, translator.fingerprint)


# what a user writes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20ms", 0.02),
        (" 20 ms ", 0.02),
        ("1.5ms", 0.0015),
        (".5s", 0.5),
        ("0.02s", 0.02),
        ("2e-2s", 0.02),
        ("50/s", 0.02),
        ("50 / s", 0.02),
        ("50 sentences/s", 0.02),
        ("1 sentence/s", 1.0),
    ],
)
def test_budgets(text, seconds):
    assert parse_budget(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20", "write 20ms or 20/s"),
        ("0ms", "more than 0"),
        ("0/s", "more than 0"),
        ("-5ms", "more than 0"),
        ("1e400s", "more than 0"),
        ("nan", "such as 20ms"),
        ("nanms", "such as 20ms"),
        ("infs", "such as 20ms"),
        ("20 minutes", "such as 20ms"),
        ("20ms/s", "such as 20ms"),
        ("", "such as 20ms"),
        ("ms", "such as 20ms"),
        (20, "such as 20ms"),
    ],
)
def test_what_is_no_budget(text, message):
    with pytest.raises(UserError, match=message):
        parse_budget(text)


def test_a_time_rounded_up_is_enough():
    rng = random.Random(1)
    for _ in range(1000):
        seconds = 10 ** rng.uniform(-6, 1)
        assert seconds <= parse_budget(f"{in_ms(seconds, round_up=True)}ms") <= 1.011 * seconds
    assert [in_ms(x) for x in (0.0118, 0.02, 0.0000123, 1.2345)] == ["11.8", "20", "0.0123", "1234"]


# which depth


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "anydepth")
    return caplog


def selector(budget):
    costs = {"1-1": LengthCost(0.001, 0.0001), "2-1": LengthCost(0.002, 0.0002), "2-2": LengthCost(0.004, 0.0004)}
    return BudgetSelector(costs, {"1-1": 20.0, "2-1": 25.0, "2-2": 30.0}, budget)


@pytest.mark.parametrize(("budget", "depth"), [(0.0021, "1-1"), (0.0041, "2-1"), (0.0079, "2-1"), (0.0081, "2-2")])
def test_the_best_depth_that_fits(budget, depth):
    chosen = selector(budget)
    assert chosen.choose([SHORT, SHORT]) == [depth, depth]
    assert chosen.depth == depth
    assert chosen.expected == pytest.approx({"1-1": 0.002, "2-1": 0.004, "2-2": 0.008}[depth])


def test_the_mean_over_the_sentences_counts():
    mixed = [SHORT, LONG]  # 2-1: 4 and 22 ms
    assert selector(0.0131).choose(mixed) == ["2-1", "2-1"]
    assert selector(0.0129).choose(mixed) == ["1-1", "1-1"]


def test_a_slower_depth_must_be_better():
    costs = {name: LengthCost(value, 0) for name, value in {"2-2": 0.003, "1-2": 0.002, "1-1": 0.001}.items()}
    assert BudgetSelector(costs, {"2-2": 24.0, "1-2": 25.0, "1-1": 20.0}, 1.0).choose([SHORT]) == ["1-2"]
    assert BudgetSelector(costs, {"2-2": 25.0, "1-2": 25.0, "1-1": 25.0}, 1.0).choose([SHORT]) == ["1-1"]


def test_it_says_which_depth_when_that_changes(log):
    stream = selector(0.0081)
    for sources in ([SHORT], [SHORT], [LONG], [LONG], [LONG], [SHORT], [LONG]):
        stream.choose(sources)
    said = log.messages
    assert [line.split(":")[0] for line in said] == ["depth 2-2", "depth 1-1, the fastest", "depth 2-2"]
    assert said[0] == "depth 2-2: expects 8 ms per sentence within 8.1 ms, BLEU 30.0"
    assert "expects 11 ms per sentence, more than the budget of 8.1 ms" in said[1]


def test_a_budget_below_the_fastest_depth_is_refused_with_what_is_needed():
    with pytest.raises(UserError, match=r"budget of 1.5 ms .* fastest depth, 1-1, .* 2 ms .* at least 2.00ms"):
        selector(0.0015).choose([SHORT])
    assert selector(parse_budget("2.00ms")).choose([SHORT]) == ["1-1"]


def test_empty_lines_do_not_make_room():
    assert selector(0.0041).choose([SHORT, [EOS], [EOS], [EOS]]) == ["2-1"] * 4
    strict = selector(0.0015)
    assert strict.choose([]) == []
    assert len(strict.choose([[EOS]])) == 1
    assert math.isnan(strict.expected)
    with pytest.raises(UserError, match="below the fastest"):
        strict.choose([SHORT])


def test_costs_and_qualities_must_be_of_the_same_depths():
    with pytest.raises(UserError, match="same depths"):
        BudgetSelector({"1-1": LengthCost(1, 0)}, {"2-2": 1.0}, 1.0)


# from a model folder


def test_the_calibration_decides_and_the_translator_follows(translator, log):
    calibrate_by_hand(translator)
    chosen = within_budget(translator, "2.5ms", batch_size=32)
    many = TEXTS * 32
    found = translator.translate(many, depth=chosen, batch_size=32)
    assert log.messages == ["depth 1-2: expects 2 ms per sentence within 2.5 ms, BLEU 25.0 on dev.en"]
    assert found == translator.translate(many, depth="1-2")
    assert found[:2] == ["the cat sleeps.", ""]


def test_at_batch_1_the_times_at_batch_1_count(translator):
    calibrate_by_hand(translator)
    one_by_one = within_budget(translator, "25ms", batch_size=1)
    translator.translate(TEXTS, depth=one_by_one, batch_size=1)
    assert (one_by_one.depth, one_by_one.expected) == ("1-2", pytest.approx(0.020))
    with pytest.raises(UserError, match=r"at least 10\.0ms"):
        translator.translate(TEXTS, depth=within_budget(translator, "2.5ms", batch_size=1))


@pytest.mark.parametrize(("batch_size", "notes"), [(1, 0), (16, 0), (64, 0), (15, 1), (65, 1)])
def test_a_note_where_the_batches_are_far_from_those_calibrated(translator, batch_size, notes, log):
    calibrate_by_hand(translator)
    within_budget(translator, "1s", batch_size=batch_size)
    assert len(log.messages) == notes
    assert all(f"--batch-size {batch_size}" in line for line in log.messages)


def test_without_any_figures_it_says_how_to_get_them(translator):
    assert not any(entry.cost for entry in translator.menu)
    command = rf"`anydepth calibrate \S+model .*--threads {torch.get_num_threads()} --engine torch`"
    with pytest.raises(UserError, match=rf"run {command}$"):
        within_budget(translator, "20ms")
    with pytest.raises(UserError, match="--beam 4 --batch-size 100"):
        within_budget(translator, "20ms", beam=4, batch_size=100)


def test_a_calibration_for_another_beam_or_thread_count_does_not_count(translator):
    calibrate_by_hand(translator, beam=4, threads=97)
    with pytest.raises(UserError, match=r"calibrated on this machine: beam 4, 97 threads, cpu"):
        within_budget(translator, "1s")
    with pytest.raises(UserError, match="--beam 4"):
        within_budget(translator, "1s", beam=4)


def test_times_of_a_sweep_serve_with_a_note(translator, log):
    for name, seconds, bleu in (("1-1", 0.01, 20.0), ("2-1", 0.02, 25.0)):
        translator.menu.measured(name, {"seconds_per_sentence": seconds}, {"bleu": bleu})
    translator.menu.measured_on = {
        "device": "cpu",
        "threads": 8,
        "beam": 4,
        "batch_size": 100,
        "reference": "test.en",
    }
    chosen = within_budget(translator, "40ms")
    assert chosen.choose([SHORT, LONG]) == ["2-1", "2-1"]
    assert "sweep (cpu, threads 8, beam 4, batches of 100)" in log.messages[0]
    assert "anydepth calibrate" in log.messages[0]
    assert chosen.expected == pytest.approx(0.02)
    calibrate_by_hand(translator)
    overridden = within_budget(translator, "40ms", batch_size=1)
    overridden.choose([SHORT])
    assert overridden.depth == "2-2"


def test_times_of_another_engines_sweep_do_not_serve(translator):
    translator.menu.measured("1-1", {"seconds_per_sentence": 0.01}, {"bleu": 20.0})
    translator.menu.measured_on = {"engine": "ctranslate2 int8", "batch_size": 32}
    with pytest.raises(
        UserError, match="needs times of the engine torch, and this model was timed on ctranslate2 int8"
    ):
        within_budget(translator, "40ms", batch_size=32)


def test_a_few_sentences_go_by_the_usual_lengths(log):
    """One long sentence at a terminal, or the last of a file, neither ends the session nor changes the depth."""
    costs = {"1-1": LengthCost(0.0, 0.001), "2-2": LengthCost(0.0, 0.002)}
    quality = {"1-1": 20.0, "2-2": 30.0}
    selector = BudgetSelector(costs, quality, 0.02, usual_lengths=[8, 10])
    assert selector.choose([[5] * 40]) == ["2-2"]
    assert selector.choose([[5] * 3]) == ["2-2"]
    assert len(log.messages) == 1
    assert selector.choose([[5] * 15] * 20) == ["1-1"] * 20
    with pytest.raises(UserError, match="below the fastest depth"):
        BudgetSelector(costs, quality, 0.005, usual_lengths=[8, 10]).choose([[5, 3]])


def test_what_has_begun_is_not_refused(log):
    costs = {"1-1": LengthCost(0.0, 0.001)}
    selector = BudgetSelector(costs, {"1-1": 20.0}, 0.02)
    selector.has_begun = True  # another selector has chosen so far
    assert selector.choose([[5] * 40] * 20) == ["1-1"] * 20
    assert "more than the budget" in log.messages[0]

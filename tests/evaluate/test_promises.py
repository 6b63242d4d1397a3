"""A promise from calibration to translation, on real small models."""

import io
import logging
import random
import shutil
from dataclasses import replace

import pytest
from conftest import toy_pairs
from random_models import random_translator
from rich.console import Console

import anydepth
from anydepth.artifact.model import LoadedModel
from anydepth.depth import DepthMenu
from anydepth.engines.base import ExitRule
from anydepth.engines.torch import TorchEngine
from anydepth.errors import UserError
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.metrics import sentence_chrf
from anydepth.evaluate.promise import MARGINS, PromiseResult, calibrate_promise, fixed_sequence, promise_report
from anydepth.evaluate.render import to_terminal
from anydepth.export.runtime import build_runtime_file
from anydepth.infer.translator import Translator, on_engine
from anydepth.selectors.promise import p_value, save

pytestmark = pytest.mark.slow

TEXTS = [source for source, _ in toy_pairs(120, seed=9)]
OTHERS = [source for source, _ in toy_pairs(60, seed=10)]
QUICK = RunOptions(source_name="some/where/dev.fr", repeats=1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def toy(toy_run, tmp_path):
    """With a folder of its own."""
    return anydepth.load(shutil.copytree(toy_run / "model", tmp_path / "model"), engine="torch")


def undecided(toy: Translator) -> Translator:
    """Random weights, where depths agree on little and each margin is another output."""
    model = random_translator(toy.tokenizer, decoder_layers=3, share_embeddings="none").model
    loaded = LoadedModel(model, toy.tokenizer, DepthMenu.every_prefix(3, 3), ("fr", "en"))
    return Translator(loaded, TorchEngine(model))


@pytest.mark.parametrize("engine", ["torch", "native"])
@pytest.mark.parametrize("keep", [0.9, 0.5])
def test_the_counts_are_those_of_the_translations(toy, engine, keep):
    translator = on_engine(undecided(toy), engine, 1)
    result = calibrate_promise(translator, ["", *TEXTS, " "], keep, tolerance=70, options=QUICK)
    promise, full = result.promise, translator.translate(TEXTS)
    for rule in result.tested:
        texts = translator.translate(TEXTS, exit=ExitRule("margin", rule.margin))
        changed = sum(score < 70 for score in sentence_chrf(texts, full))
        assert (rule.changed, rule.p_value) == (changed, p_value(changed, len(TEXTS), keep))
    passed = [rule.p_value <= 0.05 for rule in result.tested]
    assert passed == [True] * (len(passed) - 1) + [False]  # random weights cannot pass to the end
    assert [rule.margin for rule in result.tested] == list(MARGINS[: len(passed)])
    assert promise.margin == (result.tested[-2].margin if len(passed) > 1 else None)
    assert (promise.sentences, promise.source_file, promise.engine) == (len(TEXTS), "dev.fr", engine)
    found = translator.hypotheses(TEXTS, exit=None if promise.margin is None else ExitRule("margin", promise.margin))
    tokens = [len(one.tokens) + one.ended for (one,) in found]
    layers = sum(one.decoder_layers * count for (one,), count in zip(found, tokens, strict=True)) / sum(tokens)
    assert promise.layers == pytest.approx(layers)
    assert promise.text["subwords"].mean == pytest.approx(
        sum(len(ids) + 1 for ids in translator.subwords(TEXTS)) / len(TEXTS)
    )


def test_margins_change_something_and_the_strictest_promise_may_have_no_rule(toy):
    translator = undecided(toy)
    bold, strict = (calibrate_promise(translator, TEXTS, keep, options=QUICK).promise for keep in (0.5, 0.975))
    assert bold.margin is not None
    assert bold.changed > 0
    assert strict.margin is None or strict.margin > bold.margin
    nothing = calibrate_promise(translator, TEXTS, 0.975, tolerance=100, options=QUICK)
    assert nothing.promise.margin is None or nothing.promise.changed == 0


def test_what_is_calibrated_is_what_keep_runs(toy, caplog):
    caplog.set_level(logging.INFO, "anydepth")
    promise = calibrate_promise(toy, TEXTS, "95%", options=QUICK).promise
    assert promise.margin is not None
    save(promise, toy.folder, toy.fingerprint)
    rule = ExitRule("margin", promise.margin, promise.exits)
    expected = toy.hypotheses(OTHERS, exit=rule)
    assert toy.hypotheses(OTHERS, keep="95%") == expected
    assert [one.tokens for (one,) in toy.stream(OTHERS, 7, keep=0.9)] == [one.tokens for (one,) in expected]
    assert toy.translate(OTHERS, keep=0.95) == [one.text for (one,) in expected]
    assert toy.translate(OTHERS[0], keep=0.95) == expected[0][0].text
    assert sum(one.decoder_layers for (one,) in expected) < 2 * len(expected)
    assert toy.promise("95%") == promise
    assert f"depth 2-2, margin:{promise.margin:g}: keeps 95% of sentences at chrF 80 or more" in caplog.text
    assert "unlike" not in caplog.text


def test_all_is_the_full_depth_and_needs_no_calibration(toy):
    for engine in (toy, on_engine(toy, "native", 1, speculate=True)):
        assert engine.promise("100%") is None
        assert engine.hypotheses(OTHERS, keep="100%", scores=False, batch_size=1)[3][0].tokens == (
            engine.hypotheses(OTHERS, scores=False, batch_size=1)[3][0].tokens
        )
        assert engine.translate(OTHERS, keep=1.0) == engine.translate(OTHERS)


def test_text_unlike_that_of_the_calibration_is_warned_of_once(toy, caplog):
    promise = calibrate_promise(toy, TEXTS, 0.9, options=QUICK).promise
    save(promise, toy.folder, toy.fingerprint)
    caplog.set_level(logging.WARNING, "anydepth")
    strange = ["".join(random.Random(n).choices("aehilmnou", k=12)) for n in range(30)]
    list(toy.stream(OTHERS, 7, keep=0.9))
    assert caplog.messages == []
    list(toy.stream(strange, 7, keep=0.9))
    (message,) = caplog.messages
    assert message.startswith("this text is unlike dev.fr, so the promise does not cover it: ")
    toy.translate(strange, keep=0.9)
    assert len(caplog.messages) == 2


def test_without_a_calibration_it_says_what_to_run(toy):
    with pytest.raises(
        UserError, match=r"no promise of 99% has been calibrated for 2-2: run `anydepth calibrate "
    ) as e:
        toy.translate(OTHERS, keep="99%")
    assert str(e.value).endswith("--source FILE --keep 99% --depth 2-2 --engine torch`")
    save(calibrate_promise(toy, TEXTS, 0.9, options=QUICK).promise, toy.folder, toy.fingerprint)
    with pytest.raises(UserError, match=r"there is 90% for 2-2, beam 1, torch, no shortlist: run"):
        toy.translate(OTHERS, keep="99%")
    with pytest.raises(UserError, match=r"there is 90% for 2-2.* --beam 4 --length-penalty 0.6 "):
        toy.translate(OTHERS, keep="90%", beam=4)
    with pytest.raises(UserError, match="calibrated for 1-2"):
        toy.translate(OTHERS, keep="90%", depth="1-2")
    with pytest.raises(UserError, match="--engine native"):
        on_engine(toy, "native", 1).translate(OTHERS, keep="90%")


def test_what_cannot_be_is_refused_in_one_line(toy):
    few = r"a promise of 99% needs at least 299 sentences, and .*dev.fr has 120: give more, or promise less, such as"
    cases = [
        (lambda: calibrate_promise(toy, TEXTS, 0.99, options=QUICK), few + " --keep 97%"),
        (lambda: calibrate_promise(toy, [" "], 0.9, options=QUICK), r"dev\.fr has 0: give more$"),
        (lambda: calibrate_promise(toy, TEXTS, 1.0), "100% needs no calibration"),
        (lambda: calibrate_promise(toy, TEXTS, 0.9, tolerance=0), "tolerance is 0, a chrF out of range"),
        (lambda: calibrate_promise(toy, TEXTS, 0.9, depth="2-1"), "at depth 2-1 tokens cannot leave early"),
        (lambda: calibrate_promise(on_engine(toy, "ctranslate2", 1), TEXTS, 0.9), "tokens cannot leave early here"),
        (lambda: toy.translate(TEXTS, keep="99"), "is not a promise"),
        (lambda: toy.translate(TEXTS, keep=0.9, exit="margin:2"), "keep and exit both choose the exit rule"),
        (lambda: toy.translate(TEXTS, keep=0.9, depth="auto"), "a promise is for one depth"),
        (lambda: toy.translate(TEXTS, keep=0.9, depth=["2-2"] * 120), "a promise is for one depth"),
        (lambda: on_engine(toy, "ctranslate2", 1).translate(TEXTS, keep=0.9), "tokens cannot leave early here"),
        (lambda: toy.every_depth(TEXTS, keep=0.9), "leave out exit and keep"),
    ]
    for call, reason in cases:
        with pytest.raises(UserError, match=reason) as found:
            call()
        assert "\n" not in str(found.value)


def test_a_promise_of_a_depth_that_no_rule_keeps_runs_the_full_depth(toy):
    promise = replace(calibrate_promise(toy, TEXTS, 0.9, options=QUICK).promise, margin=None)
    save(promise, toy.folder, toy.fingerprint)
    assert toy.hypotheses(OTHERS, keep=0.9) == toy.hypotheses(OTHERS)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_beam_has_a_promise_of_its_own(toy, engine):
    translator = on_engine(toy, engine, 1)
    options = replace(QUICK, beam=3, length_penalty=1.0)
    promise = calibrate_promise(translator, TEXTS, 0.9, options=options).promise
    save(promise, toy.folder, toy.fingerprint)
    rule = ExitRule("margin", promise.margin, promise.exits)
    found = translator.translate(OTHERS, keep=0.9, beam=3, length_penalty=1.0)
    assert found == translator.translate(OTHERS, exit=rule, beam=3, length_penalty=1.0)
    for other in ({}, {"beam": 3}, {"beam": 2, "length_penalty": 1.0}):
        with pytest.raises(UserError, match="no promise of 90% has been calibrated"):
            translator.translate(OTHERS, keep=0.9, **other)


def test_a_language_pair_has_a_promise_of_its_own(two_targets_run, tmp_path):
    folder = shutil.copytree(two_targets_run / "model", tmp_path / "model")
    loud = Translator.load(folder, engine="native", threads=1, target_language="loud")
    save(calibrate_promise(loud, TEXTS, 0.9, options=QUICK).promise, folder, loud.fingerprint)
    assert loud.translate(OTHERS[0], keep=0.9).isupper()
    quiet = Translator.load(folder, engine="native", threads=1, target_language="en")
    with pytest.raises(UserError, match="--from fr --to en --engine native"):
        quiet.translate(OTHERS[0], keep=0.9)
    with pytest.raises(UserError, match="this model has several language pairs"):
        Translator.load(folder, engine="native", threads=1).translate(OTHERS[0], keep=0.9)


def test_a_model_file_keeps_its_promises_in_the_cache(toy, tmp_path):
    file = tmp_path / "toy.anydepth"
    file.write_bytes(build_runtime_file(on_engine(toy, "native", 1)))
    translator = Translator.load(file, threads=1)
    promise = calibrate_promise(translator, TEXTS, 0.9, options=QUICK).promise
    assert save(promise, translator.folder, translator.fingerprint).is_relative_to(tmp_path / "cache")
    rule = ExitRule("margin", promise.margin, promise.exits)
    assert Translator.load(file).translate(OTHERS, keep=0.9) == translator.translate(OTHERS, exit=rule)


def test_the_sequence_ends_at_the_first_that_fails():
    """Whatever comes later, and however good it looks: that is what makes the 5% hold for all of them."""
    seen = []

    def counts():
        for margin, changed in ((3.0, 0), (2.0, 20), (1.0, 0)):
            seen.append(margin)
            yield margin, changed, 1.0

    tested = fixed_sequence(counts(), 100, 0.9)
    assert [rule.passed for rule in tested] == [True, False]
    assert seen == [3.0, 2.0]


def test_at_most_a_twentieth_of_all_calibrations_break_the_promise():
    """Rules that really change 1, 4, 9, 11 and 30% of sentences, nested as margins are; 4,000 samples."""
    rng, broken, taken = random.Random(1), 0, set()
    for _ in range(4000):
        draws = sorted(rng.random() for _ in range(150))
        counts = [(-risk, sum(one < risk for one in draws), 1.0) for risk in (0.01, 0.04, 0.09, 0.11, 0.3)]
        tested = [rule for rule in fixed_sequence(counts, 150, 0.9) if rule.passed]
        risk = -tested[-1].margin if tested else 0.0
        taken.add(risk)
        broken += risk > 0.1
    assert broken <= 0.05 * 4000
    assert broken > 0  # it is a test with an error, not one that passes nothing
    assert 0.04 in taken


def shown(result: PromiseResult) -> str:
    console = Console(file=io.StringIO(), width=1000)
    to_terminal(promise_report(result), console)
    return console.file.getvalue()


def test_the_report_shows_the_rules_and_what_was_chosen(toy):
    result = calibrate_promise(toy, TEXTS, "90%", options=QUICK)
    text = shown(result)
    assert f"translate --keep 90% will run 2-2 with margin:{result.promise.margin:g}" in text
    none = replace(result, promise=replace(result.promise, margin=None))
    assert "no rule keeps 90%" in shown(none)

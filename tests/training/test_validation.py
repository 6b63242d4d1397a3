"""Validation of one language pair and of several, with a model that has learnt both."""

import pytest
from conftest import toy_pairs

import anydepth
from anydepth.data import Batch
from anydepth.depth import DepthMenu, MenuEntry, SubNetwork
from anydepth.errors import UserError
from anydepth.training.run_log import read_log
from anydepth.training.validation import TranslationValidator, ValidationSet

MIXED = MenuEntry("hard", SubNetwork((0,), (0,))), MenuEntry("soft", SubNetwork.prefix(2, 2))


def held_out(tokenizer, name, tag, pairs):
    before = [] if tag is None else [tokenizer.symbol_id(tag)]
    sources = [[*before, *tokenizer.encode(source)] for source, _ in pairs]
    return ValidationSet(name, pairs, [Batch.from_rows(sources, [tokenizer.encode(t) for _, t in pairs])], tag)


@pytest.fixture
def sets(two_targets_run):
    tokenizer = anydepth.load(two_targets_run, engine="torch").tokenizer
    loud = [(source, target.upper()) for source, target in toy_pairs(8, 22)]
    return [
        held_out(tokenizer, "fr-en", "<2en>", toy_pairs(8, 21)),
        held_out(tokenizer, "fr-loud", "<2loud>", loud),
    ]


def test_one_pair_is_logged_as_ever(toy_run):
    plain = anydepth.load(toy_run, engine="torch")
    one = held_out(plain.tokenizer, "fr-en", None, toy_pairs(8, 21))
    validator = TranslationValidator([one], plain.tokenizer, lambda: plain.menu, [])
    assert validator.depths == ["2-2", "1-1"]
    found = validator.run(plain.model)
    assert list(found.values) == ["bleu", "nll"]
    assert list(found.values["bleu"]) == list(found.values["nll"]) == ["2-2", "1-1"]
    assert found.score == found.values["bleu"]["2-2"] > 50
    assert found.text == "BLEU  2-2 {:.1f}  1-1 {:.1f}".format(*found.values["bleu"].values())


@pytest.mark.slow
def test_several_pairs_are_logged_one_by_one_and_their_mean_decides(two_targets_run, sets):
    both = anydepth.load(two_targets_run, engine="torch")
    found = TranslationValidator(sets, both.tokenizer, lambda: both.menu, ["1-2", "2-2"]).run(both.model)
    for name, digits in (("bleu", 2), ("nll", 4)):
        values = found.values[name]
        assert list(values) == ["fr-en", "fr-loud", "mean"]
        for depth in ("1-2", "2-2"):
            mean = (values["fr-en"][depth] + values["fr-loud"][depth]) / 2
            assert values["mean"][depth] == round(mean, digits)
    assert found.score == found.values["bleu"]["mean"]["1-2"] > 50
    for pair, one in zip(("fr-en", "fr-loud"), sets, strict=True):
        alone = TranslationValidator([one], both.tokenizer, lambda: both.menu, ["1-2"]).run(both.model)
        assert alone.values["nll"]["1-2"] == found.values["nll"][pair]["1-2"]
        assert f"{pair} {alone.score:.1f}" in found.text


@pytest.mark.slow
def test_a_menu_that_changes_and_differs_by_pair(two_targets_run, sets):
    """Under names that stay, each validation runs the layers of that moment, and of its pair."""
    both = anydepth.load(two_targets_run, engine="torch")
    subs = {"fr-en": SubNetwork.prefix(2, 2), "fr-loud": SubNetwork.prefix(1, 1)}

    def menu():
        return DepthMenu([MenuEntry(f"{pair}:hard", sub, pair=pair) for pair, sub in subs.items()])

    validator = TranslationValidator(sets, both.tokenizer, menu, [])
    fixed = TranslationValidator(sets, both.tokenizer, lambda: both.menu, ["2-2", "1-1"])
    expected = fixed.run(both.model).values["nll"]
    first = validator.run(both.model).values["nll"]
    assert (first["fr-en"]["hard"], first["fr-loud"]["hard"]) == (expected["fr-en"]["2-2"], expected["fr-loud"]["1-1"])
    subs["fr-en"] = SubNetwork.prefix(1, 1)
    then = validator.run(both.model).values["nll"]
    assert then["fr-en"]["hard"] == expected["fr-en"]["1-1"] != first["fr-en"]["hard"]


@pytest.mark.slow
def test_depths_are_known_beforehand(two_targets_run, sets):
    both = anydepth.load(two_targets_run, engine="torch")
    with pytest.raises(UserError, match="no depth 3-3"):
        TranslationValidator(sets, both.tokenizer, lambda: both.menu, ["3-3"])


@pytest.mark.slow
def test_a_run_of_two_pairs_logs_both(two_targets_run):
    valid = [record for record in read_log(two_targets_run) if record["kind"] == "valid"]
    assert [list(record["bleu"]) for record in valid] == [["fr-en", "fr-loud", "mean"]] * 2
    assert valid[-1]["bleu"]["mean"]["2-2"] > 50

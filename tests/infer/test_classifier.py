"""Exits of whole texts, exits of models whose words have depths of their own, and time budgets."""

import logging

import pytest
from labelled_texts import toy_texts

from anydepth import Classifier
from anydepth.depth import DepthMenu, MenuEntry, SubNetwork
from anydepth.engines.base import ExitRule
from anydepth.errors import UserError
from anydepth.infer.classifier_budget import make_budget
from anydepth.selectors.calibration import LengthCost

pytest_plugins = ["made_classifiers"]

TEXTS = [text for text, _ in toy_texts(40, seed=11)] + ["", "zzz 😀 unheard of"]
EXITS = ["1-0", "2-0", "3-0"]


@pytest.fixture(scope="module", params=["native", "torch"])
def halting(halting_run, request) -> Classifier:
    return Classifier.load(halting_run, engine=request.param, device="cpu")


@pytest.fixture(scope="module", params=["native", "torch"])
def by_mi(by_mi_run, request) -> Classifier:
    return Classifier.load(by_mi_run, engine=request.param, device="cpu")


def first_sure(at_exits, probability):
    """By hand: the first exit that is so sure, or the last; exits are numbered from 0."""
    return next((n for n, one in enumerate(at_exits) if one.probability >= probability), len(at_exits) - 1)


def first_steady(at_exits, times):
    """By hand: the first exit whose label is that of so many in a row, or the last."""
    labels = [one.label for one in at_exits]
    for last in range(times - 1, len(labels)):
        if len(set(labels[last - times + 1 : last + 1])) == 1:
            return last
    return len(labels) - 1


@pytest.mark.parametrize("batch_size", [1, 7, 64])
@pytest.mark.parametrize("rule", ["confidence:0.45", "confidence:0.6", "patience:2", "patience:3"])
def test_a_text_leaves_at_the_exit_found_by_hand(halting, rule, batch_size):
    at_exits = list(zip(*(halting.classify(TEXTS, depth=name) for name in EXITS), strict=True))
    by_hand, number = (first_sure if rule.startswith("c") else first_steady), float(rule.partition(":")[2])
    found = halting.classify(TEXTS, exit=rule, batch_size=batch_size)
    left = [by_hand(each, number if number < 1 else int(number)) for each in at_exits]
    assert [one.depth for one in found] == [exit_ + 1 for exit_ in left]
    assert [one.computed for one in found] == [one.tokens * (exit_ + 1) for one, exit_ in zip(found, left, strict=True)]
    for one, each, exit_ in zip(found, at_exits, left, strict=True):
        assert one.label == each[exit_].label
        assert one.probabilities == pytest.approx(each[exit_].probabilities, abs=1e-5)
    if rule.startswith("confidence"):
        assert len(set(left)) > 1  # or nothing was tried


def test_layers_that_no_text_needs_do_not_run(halting_run):
    halting = Classifier.load(halting_run, engine="torch", device="cpu")
    ran: list[int] = []
    hooks = [
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
        for number, layer in enumerate(halting.model.encoder.layers)
    ]
    try:
        halting.classify(TEXTS[:1], exit="confidence:0.01")
        assert ran == [0]
        ran.clear()
        halting.classify(TEXTS, exit="patience:2", depth="2-0", batch_size=64)
        assert ran == [0, 1]
    finally:
        for hook in hooks:
            hook.remove()


def test_exits_up_to_a_depth(halting):
    found = halting.classify(TEXTS, exit="confidence:0.999", depth="2-0")
    assert {one.depth for one in found} <= {1, 2}
    _, words = halting.explain(TEXTS[0], exit="confidence:0.01")
    assert {word.depth for word in words} == {1}


def test_only_exits_that_were_trained_count(halting):
    menu = DepthMenu.of([SubNetwork.prefix(1, 0), SubNetwork.prefix(3, 0)])
    halting.menu, before = menu, halting.menu
    try:
        assert {one.depth for one in halting.classify(TEXTS, exit="confidence:0.5")} == {1, 3}
    finally:
        halting.menu = before


@pytest.mark.parametrize("rule", ["confidence", "confidence:1", "confidence:x", "patience:1", "patience:2.5", "soon:3"])
def test_rules_that_are_none(rule):
    with pytest.raises(UserError, match=r"write confidence:0\.9"):
        ExitRule.parse(rule)


def test_exits_that_cannot_be(halting, by_mi, static_run):
    with pytest.raises(UserError, match="trained to classify at one depth alone"):
        Classifier.load(static_run, device="cpu").classify([], exit="patience:2")
    with pytest.raises(UserError, match="there are no exits of whole texts: leave out the depth"):
        halting.classify([], exit="patience:2", depth="3-0-words")
    with pytest.raises(UserError, match="leave out scale and lambda"):
        by_mi.classify([], exit="patience:2", scale=0.5)


def test_every_exit_where_words_have_their_own_depths(by_mi):
    assert by_mi.depths == [*EXITS, "3-0-words"]
    for layers, name in enumerate(EXITS, 1):
        assert {one.depth for one in by_mi.classify(TEXTS, depth=name)} == {layers}
    assert {one.depth for one in by_mi.classify(TEXTS, exit="confidence:0.9")} <= {1, 2, 3}
    with pytest.raises(UserError, match="4-0"):
        by_mi.classify(TEXTS, depth="4-0")
    with pytest.raises(UserError, match="scale and lambda have no effect"):
        by_mi.classify(TEXTS, depth="2-0", scale=0.5)


def test_other_rules_for_words(by_mi):
    text = TEXTS[0]
    for rule in ("deepest", "mean", "shallowest"):
        depths = by_mi.with_word_depths(special=rule).token_depths
        assert (depths.special, depths.unseen) == (rule, "frequency")
    shallow = by_mi.with_word_depths(special="shallowest").classify(text)
    assert shallow.computed <= by_mi.classify(text).computed
    for wrong in ({"special": "any"}, {"unseen": "any"}):
        with pytest.raises(UserError, match="is 'any': use one of deepest"):
            by_mi.with_word_depths(**wrong)


def test_a_budget_takes_the_most_accurate_depth_that_fits(caplog):
    caplog.set_level(logging.INFO, "anydepth")
    accuracies = {"1-0": 80.0, "2-0": 90.0, "3-0": 85.0}
    subs = [SubNetwork.prefix(layers, 0) for layers in (1, 2, 3)]
    menu = DepthMenu([MenuEntry(sub.name, sub, quality={"accuracy": accuracies[sub.name]}) for sub in subs])
    costs = {name: LengthCost(0.001 * layers, 0.0) for layers, name in enumerate(EXITS, 1)}
    assert make_budget(0.01, costs, menu).choose([[5, 6, 3]]) == ["2-0"]
    assert caplog.messages == ["depth 2-0: expects 2 ms per text within 10 ms, accuracy 90.0"]
    assert make_budget(0.0015, costs, menu).choose([[5, 6, 3]]) == ["1-0"]
    with pytest.raises(UserError, match="give a budget of at least 1"):
        make_budget(0.0005, costs, menu).choose([[5, 6, 3]])
    assert make_budget(0.01, costs, DepthMenu.of(subs)).choose([[5, 6, 3]]) == ["3-0"]  # nothing is known of them


def test_a_budget_on_this_machine(by_mi):
    generous = by_mi.within_budget("60s")
    found = by_mi.classify(TEXTS, depth=generous)
    assert generous.depth in ("3-0", "3-0-words")
    assert [one.label for one in found] == [one.label for one in by_mi.classify(TEXTS, depth=generous.depth)]
    assert set(generous.costs) == {*EXITS, "3-0-words"}
    with pytest.raises(UserError, match="below the fastest depth"):
        by_mi.classify(TEXTS, depth=by_mi.within_budget("0.0001ms"))

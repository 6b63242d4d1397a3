"""Fixed depths, random mixtures, choices, and what is concluded from them."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from constructed_tables import noisy_table, with_costs
from sacrebleu.metrics import BLEU

from anydepth.evaluate.every_depth import join_tables, split_by_source, take_rows
from anydepth.evaluate.metrics import score
from anydepth.evaluate.tradeoff import (
    ChoiceOutcome,
    Tradeoff,
    default_threshold,
    label_thresholds,
    seconds_at,
    value_thresholds,
)
from anydepth.evaluate.tradeoff_result import SelectorCurve, overall_verdict
from anydepth.selectors.calibration import LengthCost

TABLE = noisy_table({"1-1": 0.6, "2-1": 0.7, "1-2": 0.75, "2-2": 0.9})
THREE = with_costs(take_rows(TABLE, range(60)), 1.0, 2.0, 3.0, 4.0)


def outcome(threshold=1.0, seconds=2.0, bleu=30.0, mixture=29.0, share_k=(0.5, 0.5), is_slowest=False) -> ChoiceOutcome:
    return ChoiceOutcome(threshold, seconds, bleu, 50.0, mixture, share_k, is_slowest)


def make_curve(*seeds: list[ChoiceOutcome], kind: str = "values") -> SelectorCurve:
    return SelectorCurve.from_seeds(kind, seeds, 0.001)


def test_a_mixture_at_the_time_of_a_good_depth_is_that_depth():
    for place in (0, 3):
        alone = score(TABLE.outputs[place], TABLE.references).bleu
        assert THREE.bleu_k[place] == pytest.approx(alone)
        assert THREE.mixture_bleu(THREE.seconds_k[place]) == pytest.approx(alone)


def test_a_mixture_of_two_is_the_corpus_that_has_both_in_proportion():
    two = with_costs(noisy_table({"1-1": 0.6, "2-2": 0.9}), 1.0, 4.0)
    table = two.table
    for parts in (1, 2):  # of three
        outputs = [*table.outputs[0] * (3 - parts), *table.outputs[1] * parts]
        expected = BLEU().corpus_score(outputs, [list(table.references) * 3]).score
        assert two.mixture_bleu(1.0 + parts) == pytest.approx(expected, abs=1e-4)


def test_drawing_depths_at_random_gives_the_mixture_on_average():
    two = with_costs(noisy_table({"1-1": 0.6, "2-2": 0.9}, count=200), 1.0, 4.0)
    rng = np.random.default_rng(1)
    drawn = [two.outcome((rng.permutation(200) < 80).astype(int)) for _ in range(200)]
    assert [one.seconds for one in drawn] == pytest.approx([1 + 3 * 0.4] * 200)
    assert np.mean([one.difference for one in drawn]) == pytest.approx(0, abs=0.3)
    assert max(one.difference for one in drawn) > 0.5 > -0.5 > min(one.difference for one in drawn)


def test_the_line_rises_and_no_fixed_depth_is_above_it():
    line = dict(THREE.mixture_line())
    assert min(line) == 1.0
    assert max(line) == 4.0
    assert list(line.values()) == sorted(line.values())
    for seconds, bleu in zip(THREE.seconds_k, THREE.bleu_k, strict=True):
        assert line[seconds] >= bleu


def test_nothing_is_extrapolated():
    assert THREE.mixture_bleu(0.999) is None
    assert THREE.mixture_bleu(400.0) == max(THREE.bleu_k)


def test_a_slow_depth_that_is_worse_is_left_alone():
    slow = with_costs(noisy_table({"1-1": 0.6, "2-1": 0.9, "2-2": 0.7}), 1.0, 2.0, 3.0)
    for seconds in (2.0, 2.5, 3.0):
        assert slow.mixture_bleu(seconds) == slow.bleu_k[1]


def test_depths_off_the_front_would_add_next_to_nothing():
    """The shortcut against all pairs, on depths many of which are about as good."""
    rng = np.random.default_rng(3)
    for seed in range(4):
        depths = {f"{n}-{m}": rng.uniform(0.6, 0.9) for m in (1, 2, 3) for n in (1, 2, 3)}
        tradeoff = with_costs(noisy_table(depths, count=30, seed=seed), *rng.uniform(1, 4, 9))
        for seconds in rng.uniform(tradeoff.seconds_k.min(), tradeoff.seconds_k.max(), 5):
            ours, best = tradeoff.mixture_bleu(seconds), best_of_all_pairs(tradeoff, seconds)
            assert best - 0.05 <= ours <= best + 1e-9


def best_of_all_pairs(tradeoff: Tradeoff, seconds: float) -> float:
    cost = tradeoff.seconds_k
    found = [tradeoff.bleu_k[k] for k in range(9) if cost[k] <= seconds]
    for a, b in combinations(range(9), 2):
        share = (seconds - cost[a]) / (cost[b] - cost[a])
        if 0 <= share <= 1:
            found.append(tradeoff.table.mixed_bleu((1 - share) * np.eye(9)[a] + share * np.eye(9)[b]))
    return max(found)


def test_a_choice_has_the_time_of_its_depths_and_of_choosing():
    seconds_nk = seconds_at([LengthCost(1, 0), LengthCost(2, 0.1), LengthCost(0, 1), LengthCost(5, 5)], range(60))
    assert seconds_nk[7].tolist() == pytest.approx([1, 2.7, 7, 40])
    tradeoff = Tradeoff(TABLE, seconds_nk)
    chosen = [row % 2 for row in range(60)]
    one = tradeoff.outcome(chosen, threshold=0.3, overhead=0.25)
    assert one.threshold == 0.3
    assert one.seconds == pytest.approx((30 + sum(2 + 0.1 * row for row in range(1, 60, 2))) / 60 + 0.25)
    outputs = [TABLE.outputs[place][row] for row, place in enumerate(chosen)]
    assert one.bleu == score(outputs, TABLE.references).bleu
    assert one.share_k == (0.5, 0.5, 0, 0)
    assert one.mixture == tradeoff.mixture_bleu(one.seconds)
    assert not one.at_one_depth


def test_costs_of_other_sentences_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        Tradeoff(TABLE, np.ones((59, 4)))


def test_all_sentences_at_one_depth_is_no_choice():
    one = THREE.outcome([0] * 60)
    assert one.at_one_depth
    assert one.difference == pytest.approx(0)
    assert THREE.outcome([0] * 60, overhead=0.5).difference < 0
    assert THREE.outcome([3] * 60, overhead=0.5).is_slowest


def test_the_oracle_beats_the_mixture_and_every_depth():
    oracle = THREE.oracle()
    assert oracle.chrf == pytest.approx(TABLE.chrf_nk.max(1).mean())
    assert oracle.bleu > max(THREE.bleu_k)
    assert oracle.difference > 1
    assert 1 < oracle.seconds < 4


def test_the_standard_error_is_over_the_seeds():
    curve = make_curve(*[[outcome(bleu=30 + gain)] for gain in (0, 1, 2)])
    (point,) = curve.points
    assert point.difference == pytest.approx(2)
    assert point.standard_error == pytest.approx(1 / math.sqrt(3))
    assert point.bleu_standard_error == pytest.approx(1 / math.sqrt(3))
    assert point.above
    less = make_curve(*[[outcome(bleu=28.5 + gain)] for gain in (0, 1, 2)]).points[0]
    assert less.difference == pytest.approx(0.5)
    assert not less.above  # by less than its standard error


def test_each_seed_is_compared_at_its_own_time():
    curve = make_curve([outcome(seconds=2, bleu=30, mixture=29)], [outcome(seconds=3, bleu=33, mixture=32)])
    assert curve.points[0].standard_error == 0
    assert (curve.points[0].seconds, curve.points[0].mixture_bleu) == (2.5, 30.5)


def test_points_that_say_nothing_do_not_count():
    points = [
        outcome(0.1, seconds=4, share_k=(0, 1)),
        outcome(0.2, seconds=3),
        outcome(0.3, seconds=2, bleu=28),
        outcome(0.4, seconds=1, mixture=None),
    ]
    curve = make_curve(points, points)
    assert [point.note for point in curve.points] == [
        "all sentences at one depth: no choice",
        "",
        "",
        "faster than any fixed depth: no mixture to compare with",
    ]
    assert curve.verdict == (
        "above the random mixture at 1 of 2 points by more than one standard error over 2 seeds; "
        "2 more cannot be judged"
    )
    assert curve.mean_difference == pytest.approx(0)
    slow = make_curve([replace(points[1], is_slowest=True)])
    assert "slower than any fixed depth" in slow.points[0].note
    assert slow.points[0].difference == 1
    assert slow.counting
    assert not slow.above


def test_thresholds_that_choose_alike_count_once():
    points = [outcome(0.3), outcome(0.4), outcome(0.5), outcome(0.6, bleu=31)]
    assert [point.threshold for point in make_curve(points).points] == [0.5, 0.6]
    unlike = [outcome(0.3), outcome(0.4, bleu=30.1), outcome(0.5), outcome(0.6, bleu=31)]
    assert {point.threshold for point in make_curve(points, unlike).points} == {0.4, 0.5, 0.6}


def test_the_verdict_in_a_sentence():
    good, bad = [outcome(), outcome(2.0, 3.0)], [outcome(bleu=28), outcome(2.0, 3.0, bleu=28)]
    values, labels = make_curve(good, good), make_curve(bad, bad, kind="labels")
    assert overall_verdict(values, [labels]) == (
        "Choosing is worth it: by values, which was saved, above the random mixture at 2 of 2 points; "
        "by labels at 0 of 2 points."
    )
    mixed = make_curve([good[0], bad[1]], [good[0], bad[1]])
    assert overall_verdict(mixed).startswith("Choosing is worth it in part: ")
    assert "a fixed depth or a random mixture of depths is as good" in overall_verdict(labels, [values])
    assert "a single seed cannot say" in overall_verdict(make_curve(good))
    lucky = make_curve([replace(one, hindsight=31.0) for one in good])
    assert overall_verdict(lucky).startswith("Choosing is not worth it here")
    assert make_curve(good).verdict == "above the random mixture at 2 of 2 points with a single seed"


def test_without_a_point_to_judge_by_a_curve_is_the_last_to_take():
    nothing = make_curve([outcome(share_k=(0, 1))])
    assert nothing.mean_difference == -math.inf
    assert nothing.verdict.startswith("not to be judged")
    assert "not worth it" in overall_verdict(nothing)


def test_label_thresholds_send_equal_shares_to_the_deepest():
    scores_nk = np.random.default_rng(1).uniform(0, 1, (1000, 4)) ** 3
    found = label_thresholds(scores_nk)
    assert {0.0, 0.5} <= set(found)
    assert found == sorted(found)
    shares = [float((scores_nk.max(1) < threshold).mean()) for threshold in found if threshold != 0.5]
    assert shares == pytest.approx(np.arange(11) / 11, abs=0.01)


def test_value_thresholds_spread_the_time_evenly():
    found = value_thresholds(lambda threshold: 10 + 30 / (1 + threshold / 2))
    seconds = [10 + 30 / (1 + threshold / 2) for threshold in found]
    assert found[0] == 0.0
    assert len(found) == 12
    assert seconds == pytest.approx(np.linspace(40, 10, 12), abs=1.5)


def test_a_time_that_does_not_move_needs_one_threshold():
    assert value_thresholds(lambda threshold: 5.0) == [0.0]


def test_the_default_is_the_fastest_that_is_good_enough():
    points = [outcome(0, 4, 31.0), outcome(1, 3, 30.9), outcome(2, 2, 30.5), outcome(3, 1, 20.0)]
    assert default_threshold("values", points, deepest_bleu=31.0) == 1
    assert default_threshold("values", points, deepest_bleu=30.65) == 2
    assert default_threshold("values", points, deepest_bleu=40.0) == 0
    assert default_threshold("labels", points, deepest_bleu=31.0) == 0.5


def test_equal_sources_stay_on_one_side():
    many = noisy_table({"1-1": 0.6, "2-2": 0.9}, count=700)
    table = replace(many, sources=tuple(f"sentence {row % 350}" for row in range(700)))
    parts = split_by_source(table, seed=1)
    assert list(parts) == ["train", "valid", "test"]
    assert sum(map(len, parts.values())) == 700
    assert [len(part) / 700 for part in parts.values()] == pytest.approx([0.6, 0.2, 0.2], abs=0.05)
    for one, other in combinations(parts.values(), 2):
        assert not set(one.sources) & set(other.sources)
    again, others = split_by_source(table, seed=1), split_by_source(table, seed=2)
    assert again["test"].sources == parts["test"].sources
    assert others["test"].sources != parts["test"].sources
    fewer = split_by_source(take_rows(table, range(300)), seed=1)  # other sentences do not matter
    assert set(fewer["test"].sources) <= set(parts["test"].sources)


def test_rows_and_joining():
    back = join_tables([take_rows(TABLE, range(20)), take_rows(TABLE, np.arange(20, 60))])
    assert (back.sources, back.references, back.outputs) == (TABLE.sources, TABLE.references, TABLE.outputs)
    np.testing.assert_array_equal(back.bleu_nks, TABLE.bleu_nks)
    two = take_rows(TABLE, [5, 3])
    assert two.outputs[2] == (TABLE.outputs[2][5], TABLE.outputs[2][3])
    assert two.chrf([0, 3]) == pytest.approx((TABLE.chrf_nk[5, 0] + TABLE.chrf_nk[3, 3]) / 2)


def test_the_plan_decides_which_depths_are_mixed_and_hindsight_is_never_worse():
    """Elsewhere the middle depth is useless, so nobody would have planned to use it, good as it is here."""
    here = with_costs(noisy_table({"1-1": 0.5, "1-2": 0.85, "2-2": 0.9}), 1.0, 2.0, 4.0)
    elsewhere = with_costs(noisy_table({"1-1": 0.5, "1-2": 0.1, "2-2": 0.9}), 1.0, 2.0, 4.0)
    planned = Tradeoff(here.table, here.seconds_nk, elsewhere)
    two_thirds = np.array([2 / 3, 0.0, 1 / 3])
    assert planned.mixture_bleu(2.0) == pytest.approx(here.table.mixed_bleu(two_thirds))
    assert planned.mixture_bleu(2.0, hindsight=True) == pytest.approx(here.bleu_k[1])
    chosen = planned.outcome(np.ones(60, int))
    assert chosen.difference > 1
    assert chosen.bleu == pytest.approx(chosen.hindsight)
    for seconds in (1.0, 1.5, 3.0, 4.0):
        assert planned.mixture_bleu(seconds, hindsight=True) >= planned.mixture_bleu(seconds) - 1e-9


def test_the_verdict_says_how_many_points_hold_with_hindsight():
    points = [replace(outcome(threshold=t), hindsight=best) for t, best in ((1.0, 29.5), (2.0, 30.5))]
    assert make_curve(points).verdict.endswith("(1 of them above the best with hindsight, too)")


def test_the_error_of_a_difference_counts_sentences_and_seeds():
    """Other sentences would move both, so their share does not shrink with the number of seeds."""
    seeds = [[replace(outcome(bleu=bleu), sentence_error=0.3)] for bleu in (30.0, 30.2)]
    (point,) = make_curve(*seeds).points
    assert point.standard_error == pytest.approx(math.hypot(0.1, 0.3))
    assert point.above
    assert make_curve(*seeds).verdict.endswith("by more than one standard error over sentences and 2 seeds")
    (single,) = make_curve([replace(outcome(bleu=29.2), sentence_error=0.3)]).points
    assert (single.standard_error, single.above) == (0.3, False)


def test_the_error_over_sentences_is_that_of_a_bootstrap():
    chosen_n = np.arange(60) % 4
    found = THREE.outcome(chosen_n, with_error=True)
    assert THREE.outcome(chosen_n).sentence_error is None
    weights_k = THREE._mixture(found.seconds)
    rng, differences = np.random.default_rng(7), []
    for _ in range(400):
        rows = rng.integers(60, size=60)
        sample = take_rows(TABLE, rows)
        differences.append(sample.bleu(chosen_n[rows]) - sample.mixed_bleu(weights_k))
    assert found.sentence_error == pytest.approx(np.std(differences), rel=0.15)

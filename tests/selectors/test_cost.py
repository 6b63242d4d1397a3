import random

import numpy as np
import pytest

from anydepth.errors import UserError
from anydepth.selectors.calibration import BatchCost, LengthCost, by_layers, sentences_per_batch, typical_seconds


def squared_error(cost, lengths, seconds):
    return sum((cost.at(x) - y) ** 2 for x, y in zip(lengths, seconds, strict=True))


def test_a_line_is_found_again():
    lengths = [3, 5, 8, 20, 40]
    cost = LengthCost.fit(lengths, [0.004 + 0.0005 * x for x in lengths])
    assert cost.base == pytest.approx(0.004)
    assert cost.per_token == pytest.approx(0.0005)
    assert cost.seconds([10, 30]) == pytest.approx(0.004 + 0.0005 * 20)
    assert cost.seconds([]) == 0


@pytest.mark.parametrize(
    "line", [(0.01, 0.001), (-0.01, 0.002), (0.02, -0.0004)], ids=["free", "base at 0", "slope at 0"]
)
def test_the_fit_is_the_best_one_that_keeps_the_mean(line):
    rng = random.Random(1)
    lengths = [rng.randint(10, 30) for _ in range(50)]
    seconds = [max(0.0, line[0] + line[1] * x + rng.gauss(0, 0.002)) for x in lengths]
    cost = LengthCost.fit(lengths, seconds)
    assert cost.base >= 0
    assert cost.per_token >= 0
    mean_length, mean = sum(lengths) / 50, sum(seconds) / 50
    assert cost.seconds(lengths) == pytest.approx(mean)
    found = squared_error(cost, lengths, seconds)
    for step in range(1001):
        slope = step / 1000 * mean / mean_length
        other = LengthCost(mean - slope * mean_length, slope)
        assert found <= squared_error(other, lengths, seconds) + 1e-12


def test_sentences_of_one_length_cost_the_same():
    assert LengthCost.fit([7, 7], [0.1, 0.3]) == LengthCost(0.2, 0.0)


@pytest.mark.parametrize(("lengths", "seconds"), [([], []), ([1, 2], [0.1])])
def test_times_without_sentences_are_refused(lengths, seconds):
    with pytest.raises(UserError, match="as many times as sentences"):
        LengthCost.fit(lengths, seconds)


def test_an_interruption_in_one_pass_changes_nothing():
    calm = [[0.010, 0.020, 0.030]] * 3
    disturbed = [calm[0], [0.010, 5.0, 0.030], calm[2]]
    assert typical_seconds(disturbed) == pytest.approx(calm[0])


def test_interruptions_in_every_pass_count_in_the_mean():
    passes = [[0.04, 0.01, 0.01], [0.01, 0.04, 0.01], [0.01, 0.01, 0.04]]
    typical = typical_seconds(passes)
    assert sum(typical) / 3 == pytest.approx(0.02)
    assert typical[0] == pytest.approx(typical[1])


SINGLE, BATCHED = LengthCost(0.010, 0.001), LengthCost(0.002, 0.0002)


def expected(sentences, batch_size, measured=32.0):
    return BatchCost(SINGLE, BATCHED, measured, batch_size).seconds([10] * sentences)


def test_batches_cost_what_was_measured_where_it_was_measured():
    assert expected(100, 1) == pytest.approx(SINGLE.at(10))
    assert expected(64, 32) == pytest.approx(BATCHED.at(10))
    assert expected(640, 64) == pytest.approx(BATCHED.at(10))  # no promise beyond what was measured


def test_a_lone_sentence_is_no_cheaper_for_a_large_batch_size():
    assert expected(1, 32) == pytest.approx(SINGLE.at(10))


def test_between_the_two_the_fixed_part_is_shared():
    fixed, own = 0.031, 0.002  # seconds of a batch, and of each sentence in it
    single, batched = LengthCost(fixed + own, 0), LengthCost(fixed / 32 + own, 0)
    for size in (1, 2, 5, 16, 32):
        cost = BatchCost(single, batched, 32.0, size)
        assert cost.seconds([10] * (3 * size)) == pytest.approx(fixed / size + own)


def test_calibrated_at_batch_1_alone():
    assert expected(10, 4, measured=1.0) == pytest.approx(SINGLE.at(10))


def test_the_last_batch_may_be_smaller():
    assert sentences_per_batch(33, 32) == 16.5
    assert sentences_per_batch(20, 32) == 20


def test_layers_cost_what_all_depths_together_say_of_them():
    """Noise of a fifth in every depth leaves a few percent."""
    rng = np.random.default_rng(3)
    layers = {f"{n}-{m}": (n, m) for n in range(1, 7) for m in range(1, 7)}
    true = {name: LengthCost(1 + 0.2 * n + 0.5 * m, 0.05 + 0.3 * m) for name, (n, m) in layers.items()}
    noise = {name: rng.uniform(0.8, 1.2) for name in layers}
    measured = {name: LengthCost(cost.base * noise[name], cost.per_token * noise[name]) for name, cost in true.items()}
    found = by_layers(measured, layers, 10.0)
    errors = [abs(found[name].at(10) / true[name].at(10) - 1) for name in layers]
    assert max(errors) < 0.1
    slopes = [abs(found[name].per_token / true[name].per_token - 1) for name in layers]
    assert max(slopes) < 0.1


def test_a_part_that_would_be_negative_is_none():
    layers = {f"1-{m}": (1, m) for m in range(1, 8)}
    measured = {name: LengthCost(2.0 - 0.1 * m, 0.0) for name, (_, m) in layers.items()}
    found = by_layers(measured, layers, 10.0)
    assert len({round(cost.base, 9) for cost in found.values()}) == 1
    assert all(cost.per_token == 0 for cost in found.values())


def test_few_depths_stay_as_they_were_measured():
    measured = {"1-1": LengthCost(1.0, 0.1), "2-2": LengthCost(3.0, 0.2)}
    assert by_layers(measured, {"1-1": (1, 1), "2-2": (2, 2)}, 5.0) == measured

"""The paired bootstrap, against cases by hand and against sacreBLEU."""

import random

import numpy as np
import pytest
from conftest import toy_pairs
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from anydepth.errors import UserError
from anydepth.evaluate.metrics import score, sentence_bleu_statistics
from anydepth.evaluate.significance import (
    corpus_bleu,
    paired_bootstrap,
    paired_bootstrap_of_means,
    two_sided_p,
)

REFERENCES = [target for _, target in toy_pairs(150, seed=3)]
TOO_SHORT = ["a cat", "the dog", "no"]
CORPORA = {
    "as usual": None,
    "no 4-gram matches": (["the cat x sleeps here", "a dog y eats"], ["the cat sleeps here now", "a dog eats it"]),
    "only 1-grams match": (["cat the on sat mat", "b a d c"], ["the cat sat down here", "a b c d"]),
    "nothing matches": (["x y z w v"], ["a b c d e"]),
    "no 4-grams at all": (TOO_SHORT, TOO_SHORT),
    "nothing was said": (["", ""], ["a b c d e", "f g"]),
    "too little was said": (["the big cat sleeps", "", "a dog"], ["the big cat sleeps here", "a b c", "a dog eats it"]),
}


def spoilt(share: float, seed: int) -> list[str]:
    """The references with this share of words replaced or left out."""
    rng = random.Random(seed)
    words = [[rng.choice(["", "red", "and"]) if rng.random() < share else w for w in r.split()] for r in REFERENCES]
    return [" ".join(filter(None, line)) for line in words]


@pytest.mark.parametrize("corpus", CORPORA)
def test_bleu_of_resamples_is_that_of_sacrebleu(corpus: str) -> None:
    outputs, references = CORPORA[corpus] or (spoilt(0.3, 1), REFERENCES)
    statistics = sentence_bleu_statistics(outputs, references).astype(np.float64)
    rng = np.random.default_rng(1)
    drawn = [np.arange(len(outputs)), *rng.integers(len(outputs), size=(20, len(outputs)))]
    expected = [
        BLEU().corpus_score([outputs[i] for i in rows], [[references[i] for i in rows]]).score for rows in drawn
    ]
    found = corpus_bleu(np.stack([statistics[rows].sum(0) for rows in drawn]))
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_the_difference_is_that_of_the_mean_scores_and_its_interval_is_around_it() -> None:
    baseline, system = [spoilt(0.30, 1), spoilt(0.32, 2)], [spoilt(0.2, 3), spoilt(0.1, 4), spoilt(0.12, 5)]
    (found,) = paired_bootstrap([baseline, system], REFERENCES, samples=300)
    means = [np.mean([score(outputs, REFERENCES).bleu for outputs in seeds]) for seeds in (baseline, system)]
    assert found.bleu == pytest.approx(means[1] - means[0], abs=1e-9)
    assert 0 < found.low < found.bleu < found.high
    assert found.is_clear
    assert found.p_value == 1 / 301
    (back,) = paired_bootstrap([system, baseline], REFERENCES, samples=300)
    np.testing.assert_allclose([back.bleu, back.low, back.high], [-found.bleu, -found.high, -found.low], atol=1e-9)


def test_two_sentences_by_hand() -> None:
    """Half of all resamples have one of each, a quarter the first twice: differences of 100 and 0, and in between."""
    references = ["a b c d", "e f g h"]
    (found,) = paired_bootstrap([[["w x y z", "e f g h"]], [references]], references, samples=400)
    one_of_each = BLEU().corpus_score(["w x y z", "e f g h"], [references]).score
    assert found.bleu == pytest.approx(100 - one_of_each)
    assert (found.low, found.high) == pytest.approx((0, 100))
    assert not found.is_clear


def test_p_values_by_hand() -> None:
    resampled = np.array([-1.0, 1.0, 2.0, 3.0, 5.0])  # a mean of 2, from which they stray by 3, 1, 0, 1 and 3
    assert two_sided_p(2.0, resampled) == two_sided_p(-2.0, -resampled) == (2 + 1) / (5 + 1)
    assert two_sided_p(1.0, resampled) == (4 + 1) / (5 + 1)
    assert two_sided_p(3.5, resampled) == 1 / (5 + 1)
    assert two_sided_p(0.0, resampled) == 1


def test_p_values_are_two_sided() -> None:
    resampled = 1.96 + np.random.default_rng(1).standard_normal(20_000)
    assert two_sided_p(1.96, resampled) == pytest.approx(0.05, abs=0.006)


def test_a_system_against_itself() -> None:
    seeds = [spoilt(share, 1) for share in (0.1, 0.2, 0.35)]
    for system in (seeds, [seeds[2], seeds[0], seeds[1]]):
        (found,) = paired_bootstrap([seeds, system], REFERENCES, samples=50)
        assert (found.bleu, found.low, found.high) == pytest.approx((0, 0, 0), abs=1e-9)
        assert found.p_value == 1


def test_the_seeds_of_a_sentence_are_drawn_together() -> None:
    """Three copies of a model know no more than one: a test that took them for other sentences would be surer."""
    baseline, system = spoilt(0.30, 1), spoilt(0.28, 2)
    (one,) = paired_bootstrap([[baseline], [system]], REFERENCES, samples=200)
    (three,) = paired_bootstrap([[baseline], [system] * 3], REFERENCES, samples=200)
    assert (three.low, three.high, three.p_value) == pytest.approx((one.low, one.high, one.p_value), abs=1e-9)
    (pooled,) = paired_bootstrap([[baseline * 3], [system * 3]], REFERENCES * 3, samples=200)
    assert pooled.high - pooled.low < 0.75 * (one.high - one.low)


def test_seeds_that_differ_widen_the_interval() -> None:
    """And seeds that are all alike do not."""
    baseline = [spoilt(0.3, seed) for seed in (1, 2, 3)]
    apart = [spoilt(share, 4) for share in (0.1, 0.25, 0.4)]
    (sentences,) = paired_bootstrap([baseline, apart], REFERENCES, samples=300)
    (both,) = paired_bootstrap([baseline, apart], REFERENCES, samples=300, over_seeds=True)
    assert both.bleu == sentences.bleu
    assert both.high - both.low > 1.3 * (sentences.high - sentences.low)
    alike = [[spoilt(0.3, 1)] * 3, [spoilt(0.25, 2)] * 3]
    (without,) = paired_bootstrap(alike, REFERENCES, samples=300)
    (with_seeds,) = paired_bootstrap(alike, REFERENCES, samples=300, over_seeds=True)
    assert (with_seeds.low, with_seeds.high) == pytest.approx((without.low, without.high))


@pytest.mark.parametrize(("share", "seed"), [(0.24, 7), (0.27, 8), (0.30, 9), (0.33, 10)])
def test_the_interval_is_that_of_sacrebleu(share: float, seed: int) -> None:
    """Of one system's BLEU, which is what its paired bootstrap has an interval of: here against an empty baseline."""
    system, nothing = spoilt(share, seed), [""] * len(REFERENCES)
    (found,) = paired_bootstrap([[nothing], [system]], REFERENCES, samples=2000)
    named = [("baseline", nothing), ("system", system)]
    _, results = PairedTest(named, {"BLEU": BLEU()}, [REFERENCES], test_type="bs", n_samples=2000)()
    assert (found.high - found.low) / 2 == pytest.approx(results["BLEU"][1].ci, rel=0.1)


def test_every_system_is_compared_with_the_first_and_the_seed_decides() -> None:
    systems = [[spoilt(share, 1)] for share in (0.3, 0.2, 0.4)]
    better, worse = paired_bootstrap(systems, REFERENCES, samples=50, seed=2)
    assert worse.high < 0 < better.low
    assert paired_bootstrap(systems, REFERENCES, samples=50, seed=2) == [better, worse]
    assert paired_bootstrap(systems, REFERENCES, samples=50, seed=3)[0].low != better.low


def test_no_samples_are_refused() -> None:
    with pytest.raises(UserError, match="0 samples"):
        paired_bootstrap([[REFERENCES], [REFERENCES]], REFERENCES, samples=0)


def test_means_over_depths_draw_the_same_sentences_for_all_of_them() -> None:
    """A family of two models against one with both depths. What hits all depths of both alike is no difference."""
    shallow, deep = [spoilt(0.3, 1), spoilt(0.3, 2)], [spoilt(0.2, 3), spoilt(0.2, 4), spoilt(0.2, 5)]
    family = [[[one] for one in shallow], [[one] for one in deep]]
    both = [[[spoilt(0.25, 6), spoilt(0.1, 7)], [spoilt(0.25, 8), spoilt(0.1, 9)]]]
    (found,) = paired_bootstrap_of_means([family, both], REFERENCES, samples=200, over_seeds=True)

    def mean_bleu(outputs: list[list[str]]) -> float:
        return float(np.mean([score(one, REFERENCES).bleu for one in outputs]))

    expected = mean_bleu([one for model in both[0] for one in model]) - (mean_bleu(shallow) + mean_bleu(deep)) / 2
    assert found.bleu == pytest.approx(expected, abs=1e-9)
    assert found.low < found.bleu < found.high
    apart = [[[model[depth]] for model in both[0]] for depth in (0, 1)]
    (same,) = paired_bootstrap_of_means([both, apart], REFERENCES, samples=50)
    assert (same.bleu, same.low, same.high) == pytest.approx((0, 0, 0), abs=1e-9)

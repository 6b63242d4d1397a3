import numpy as np

from anydepth.rng import keyed_uniform


def test_a_draw_depends_on_its_key_alone():
    sentences, positions = np.arange(50)[:, None], np.arange(7)[None, :]
    together = keyed_uniform(1, 20, sentences, positions)
    assert together.shape == (50, 7)
    alone = keyed_uniform(1, 20, np.array([[31]]), positions)
    assert (together[31] == alone[0]).all()
    assert (together != keyed_uniform(1, 21, sentences, positions)).all()
    assert (together != keyed_uniform(2, 20, sentences, positions)).all()


def test_draws_are_uniform_and_uncorrelated():
    draws = keyed_uniform(3, np.arange(200)[:, None], np.arange(500)[None, :])
    assert draws.min() >= 0
    assert draws.max() < 1
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    expected = draws.size / 20
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 43.8  # the 0.999 quantile with 19 degrees of freedom; the seed is fixed
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(draws[:, :-1].ravel(), draws[:, 1:].ravel())[0, 1]) < 0.02

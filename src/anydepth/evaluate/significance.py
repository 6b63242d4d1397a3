"""Is one way of training better than another, or was it the luck of the test set? A paired bootstrap over sentences.

It covers what another test set might change (Koehn 2004) and, with `over_seeds`, what training again with other seeds
might change, too.

Shapes: n sentences, k sets of outputs, r resamples, s the 10 statistics of BLEU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anydepth.errors import UserError
from anydepth.evaluate.metrics import ORDER, sentence_bleu_statistics

INTERVAL = (0.025, 0.975)
ROUNDING = 1e-9

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Outputs = Sequence[str]
Models = Sequence[Sequence[Outputs]]  # of one way of training: the outputs of each seed at each depth


@dataclass(frozen=True)
class Difference:
    """Of a system's BLEU to the baseline's, each the mean over its seeds; `low` to `high` is the 95% interval.

    The p-value is two-sided. That of sacreBLEU's paired bootstrap is about half of it: it takes absolute differences
    before it takes off their mean, so that one in ten pairs of equal systems would pass for different at 0.05.
    """

    bleu: float
    low: float
    high: float
    p_value: float

    @property
    def is_clear(self) -> bool:
        return self.low > 0 or self.high < 0


def paired_bootstrap(
    systems: Sequence[Sequence[Outputs]],
    references: Sequence[str],
    *,
    samples: int = 1000,
    seed: int = 1,
    over_seeds: bool = False,
) -> list[Difference]:
    """Compare each system with the first. A system has the outputs of one model, or of one for each training seed.

    A resample draws sentences with replacement, the same for all systems, and with a sentence its outputs by all
    seeds: they are as hard or as easy together, and to draw them one by one would make the test too sure of itself.
    With `over_seeds` it draws the seeds of each system with replacement, too.
    """
    alone = [[[[outputs] for outputs in seeds]] for seeds in systems]
    return paired_bootstrap_of_means(alone, references, samples=samples, seed=seed, over_seeds=over_seeds)


def paired_bootstrap_of_means(
    systems: Sequence[Sequence[Models]],
    references: Sequence[str],
    *,
    samples: int = 1000,
    seed: int = 1,
    over_seeds: bool = False,
) -> list[Difference]:
    """Compare means over depths. A system is one way of training or several, such as a model for each depth.

    Its figure is the mean over the depths of all its ways. A resample draws the same sentences for all depths; with
    `over_seeds` it draws the models of each way, each with its outputs at all depths.
    """
    if samples < 1:
        raise UserError(f"{samples} samples test nothing: give 1 or more")
    every = [outputs for ways in systems for models in ways for depths in models for outputs in depths]
    statistics_nks = np.stack([sentence_bleu_statistics(one, references) for one in every], axis=1).astype(np.float64)
    observed_k = corpus_bleu(statistics_nks.sum(0))
    resampled_rk = corpus_bleu(_resampled_sums(statistics_nks, samples, seed))
    rng = np.random.default_rng([seed, 1]) if over_seeds else None
    first, *others = (_mean_bleu(places, observed_k, resampled_rk, rng) for places in _indices(systems))
    return [_difference(other[0] - first[0], other[1] - first[1]) for other in others]


def _indices(systems: Sequence[Sequence[Models]]) -> list[list[Indices]]:
    """For each way of each system a table, models x depths, of the indices of its outputs among all."""
    count = 0
    found = []
    for ways in systems:
        tables = []
        for models in ways:
            size = len(models) * len(models[0])
            tables.append(np.arange(count, count + size).reshape(len(models), -1))
            count += size
        found.append(tables)
    return found


def _mean_bleu(
    ways: Sequence[Indices], observed_k: Floats, resampled_rk: Floats, rng: np.random.Generator | None
) -> tuple[float, Floats]:
    """Of a system: as observed, and of each resample; with `rng` models are drawn, too."""
    depths = [table.shape[1] for table in ways]
    observed = [observed_k[table].mean() for table in ways]
    resampled = [_drawn(resampled_rk[:, table].mean(2), rng).mean(1) for table in ways]
    return float(np.average(observed, weights=depths)), np.average(resampled, axis=0, weights=depths)


def _drawn(bleu_rm: Floats, rng: np.random.Generator | None) -> Floats:
    """Models drawn with replacement, anew in each resample."""
    if rng is None:
        return bleu_rm
    return np.take_along_axis(bleu_rm, rng.integers(bleu_rm.shape[1], size=bleu_rm.shape), 1)


def sentence_error(one_ns: Floats, other_ns: Floats, *, samples: int = 500, seed: int = 1) -> float:
    """The standard deviation, over resampled sentences, of the difference in BLEU between two sets of statistics."""
    resampled_r2 = corpus_bleu(_resampled_sums(np.stack([one_ns, other_ns], axis=1), samples, seed))
    return float((resampled_r2[:, 0] - resampled_r2[:, 1]).std())


def _resampled_sums(statistics_nks: Floats, samples: int, seed: int) -> Floats:
    """r x k x s. Exact: whole numbers far below 2**53."""
    n, k, s = statistics_nks.shape
    flat = statistics_nks.reshape(n, k * s)
    generator = np.random.default_rng(seed)
    times_drawn = (np.bincount(generator.integers(n, size=n), minlength=n) for _ in range(samples))
    return np.stack([times_n.astype(np.float64) @ flat for times_n in times_drawn]).reshape(samples, k, s)


def corpus_bleu(sums: Floats) -> Floats:
    """Corpus BLEU in the settings of metrics.score, over the last axis of `sums`: any number of corpora at once."""
    correct, total, output_length, reference_length = np.split(sums, [ORDER, 2 * ORDER, 2 * ORDER + 1], axis=-1)
    # sacreBLEU's "exp": the first order without a match counts as 1/2 of one, the next as 1/4, and so on.
    smoothed = np.where(correct > 0, correct, 0.5 ** np.cumsum(correct == 0, axis=-1))
    precision = smoothed / np.maximum(total, 1)
    too_short = np.minimum(0, 1 - reference_length / np.maximum(output_length, 1))
    score = 100 * np.exp(too_short[..., 0] + np.log(precision).mean(-1))
    has_any = (correct > 0).any(-1) & (total > 0).all(-1)
    return np.where(has_any, score, 0.0)


def _difference(observed: float, resampled_r: Floats) -> Difference:
    low, high = np.quantile(resampled_r, INTERVAL).tolist()
    return Difference(float(observed), low, high, two_sided_p(observed, resampled_r))


def two_sided_p(observed: float, resampled_r: Floats) -> float:
    """How often resamples stray from their mean, to either side, by as much as was observed."""
    strayed_r = np.abs(resampled_r - resampled_r.mean())
    exceeding = int((strayed_r >= abs(observed) - ROUNDING).sum())
    return (exceeding + 1) / (len(resampled_r) + 1)

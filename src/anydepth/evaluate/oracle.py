"""Which depth would have been best, sentence by sentence (Dabre, Rubino and Fujita 2020, Section 4.1).

`oracle` gives a result; oracle_report.py shows it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.depth import DepthMenu
from anydepth.evaluate.every_depth import EveryDepth, fastest_first, translate_every_depth
from anydepth.evaluate.experiment import Conditions, Job, RunOptions, check_repeats, make_families
from anydepth.evaluate.metrics import score
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar

FORMAT = 1
WARM_UP_SENTENCES = 8
WORDS_TO_BE_TELLING = 5

Portion = tuple[Translator, list[str], list[str]]  # a member of the family, its texts, their depths


@dataclass(frozen=True)
class PassTimes:
    """Seconds of each pass over the whole test set."""

    oracle: tuple[float, ...]
    deepest: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The oracle's share of the time that the deepest depth takes."""
        return median(self.oracle) / median(self.deepest)


@dataclass(frozen=True)
class Choice:
    """A way of choosing depths and how good it is: chrF is the mean over sentences, layers are means too.

    Of the oracle and the deepest depth the time is known.
    """

    name: str
    bleu: float
    chrf: float
    encoder_layers: float
    decoder_layers: float
    seconds: float | None = None


@dataclass(frozen=True)
class Share:
    depth: str
    encoder_layers: int
    decoder_layers: int
    count: int
    share: float
    bleu: float
    chrf: float


@dataclass(frozen=True)
class Gain:
    """A sentence that its best depth translates better than the deepest does."""

    line: int
    source: str
    reference: str
    best: tuple[str, str, float]  # depth, output, chrF
    deepest: tuple[str, str, float]

    @property
    def chrf(self) -> float:
        return self.best[2] - self.deepest[2]


@dataclass(frozen=True, eq=False)
class ModelOracle:
    """`layers` are n and m of the table's depths, `deepest` is the place of the deepest among them."""

    label: str
    table: EveryDepth
    layers: tuple[tuple[int, int], ...]
    deepest: int
    timing: PassTimes

    @cached_property
    def chosen(self) -> NDArray[np.intp]:
        return self.table.best()

    @property
    def rows(self) -> list[int]:
        return sorted({n for n, _ in self.layers})

    @property
    def columns(self) -> list[int]:
        return sorted({m for _, m in self.layers})

    def share_at(self, n: int, m: int) -> float | None:
        """The share of sentences that are best at n-m; None if there is no such depth."""
        there = [one.share for one in self.shares if (one.encoder_layers, one.decoder_layers) == (n, m)]
        return sum(there) if there else None

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """Of each depth, fastest first."""
        counts = np.bincount(self.chosen, minlength=len(self.layers)).tolist()
        return tuple(
            Share(one.name, *self.layers[place], count, count / len(self.table), one.bleu, one.chrf)
            for place, (one, count) in enumerate(zip(self._singles, counts, strict=True))
        )

    @cached_property
    def choices(self) -> dict[str, Choice]:
        """The oracle beside what needs none."""
        return {
            "oracle": self._choice("each at its best", self.chosen, median(self.timing.oracle)),
            "best single depth": max(self._singles, key=lambda one: one.bleu),
            "deepest": self._singles[self.deepest],
        }

    @cached_property
    def _singles(self) -> list[Choice]:
        seconds = {self.deepest: median(self.timing.deepest)}
        return [
            self._choice(name, np.full_like(self.chosen, place), seconds.get(place))
            for place, name in enumerate(self.table.depths)
        ]

    def _choice(self, name: str, chosen: NDArray[np.intp], seconds: float | None) -> Choice:
        n, m = np.asarray(self.layers, np.float64)[chosen].mean(0).tolist()
        return Choice(name, self.table.bleu(chosen), self.table.chrf(chosen), n, m, seconds)

    @cached_property
    def ties(self) -> dict[str, float]:
        """Shares of sentences: several depths reach the best chrF, all of them do; and how many do on average."""
        table = self.table
        tied = (table.chrf_nk == table.chrf_nk.max(1, keepdims=True)).sum(1)
        return {
            "several": float((tied > 1).mean()),
            "all": float((tied == len(table.depths)).mean()),
            "depths_on_average": float(tied.mean()),
        }

    def gains(self, count: int) -> list[Gain]:
        """The sentences that gain most over the deepest depth, in the order of the file, short ones only if need be."""
        table = self.table
        gain_n = table.chrf_nk.max(1) - table.chrf_nk[:, self.deepest]
        short_n = np.array([len(reference.split()) < WORDS_TO_BE_TELLING for reference in table.references])
        order = np.lexsort((-gain_n, short_n))[:count]
        return [self._gain(row) for row in sorted(order.tolist()) if gain_n[row] > 0]

    def _gain(self, row: int) -> Gain:
        table = self.table
        best, deepest = (
            (table.depths[place], table.outputs[place][row], float(table.chrf_nk[row, place]))
            for place in (int(self.chosen[row]), self.deepest)
        )
        return Gain(row + 1, table.sources[row], table.references[row], best, deepest)

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "choices": {key: asdict(one) for key, one in self.choices.items()},
            "seconds_of_passes": asdict(self.timing),
            "time_ratio": self.timing.ratio,
            "ties": self.ties,
            "depths": [asdict(one) for one in self.shares],
        }


@dataclass(frozen=True)
class OracleResult:
    models: Sequence[ModelOracle]
    conditions: Conditions
    signatures: dict[str, str]

    @property
    def labels(self) -> list[str]:
        return [model.label for model in self.models]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "conditions": asdict(self.conditions),
            "signatures": self.signatures,
            "models": [model.to_json() for model in self.models],
        }


def oracle(
    translators: Mapping[str, Translator | Sequence[Translator]],
    sources: Sequence[str],
    references: Sequence[str],
    options: RunOptions | None = None,
    *,
    repeats: int = 1,
) -> OracleResult:
    """Translate the test set at every depth, and once more with each sentence at its best depth, against the clock.

    Several translators under one label are a family, such as a model trained for each depth. Time is the median of
    `repeats` passes with each sentence at its best depth, and of as many at the deepest, in turn.
    """
    options = options or RunOptions()
    families = make_families(translators)
    check_repeats(repeats)
    everyone = [member for members in families.values() for member in members]
    named = (options.source_name, options.reference_name)
    conditions = Conditions.here(everyone, sources, *named, **options.search, repeats=repeats)
    models = []
    for label, members in families.items():
        table = translate_every_depth(members, sources, references, options, label)
        models.append(_model(label, members, table, options, repeats))
    quality = score(references[:1], references[:1])
    return OracleResult(models, conditions, {"BLEU": quality.bleu_signature, "chrF": quality.chrf_signature})


def _model(
    label: str, members: Sequence[Translator], table: EveryDepth, options: RunOptions, repeats: int
) -> ModelOracle:
    jobs = fastest_first(members, label)
    deepest = table.depths.index(DepthMenu(entry for member in members for entry in member.menu).deepest.name)
    layers = tuple(job.layers for job in jobs)
    with progress_bar(f"{label}: timed passes", (2 if len(jobs) > 1 else 1) * repeats) as advance:
        timing = _time_passes(table, jobs, deepest, options, repeats, advance)
    return ModelOracle(label, table, layers, deepest, timing)


def _time_passes(
    table: EveryDepth,
    jobs: Sequence[Job],
    deepest: int,
    options: RunOptions,
    repeats: int,
    advance: Callable[[int], None],
) -> PassTimes:
    """In turn, so that a slow minute of the machine falls on both."""
    best = table.best()
    ways = [_portions(jobs, table.sources, np.full_like(best, deepest))]
    if len(jobs) > 1:
        ways.append(_portions(jobs, table.sources, best))
    seconds: list[list[float]] = [[] for _ in ways]
    for portions in ways:
        few = slice(WARM_UP_SENTENCES)
        _seconds([(member, texts[few], depths[few]) for member, texts, depths in portions], options)
    for _ in range(repeats):
        for passes, portions in zip(seconds, ways, strict=True):
            passes.append(_seconds(portions, options))
            advance(1)
    return PassTimes(oracle=tuple(seconds[-1]), deepest=tuple(seconds[0]))


def _portions(jobs: Sequence[Job], sources: Sequence[str], chosen: NDArray[np.intp]) -> list[Portion]:
    """What each member of the family has to translate."""
    portions: dict[int, Portion] = {}
    for text, place in zip(sources, chosen.tolist(), strict=True):
        job = jobs[place]
        _, texts, depths = portions.setdefault(id(job.translator), (job.translator, [], []))
        texts.append(text)
        depths.append(job.entry.name)
    return list(portions.values())


def _seconds(portions: Sequence[Portion], options: RunOptions) -> float:
    start = time.perf_counter()
    for translator, texts, depths in portions:
        translator.hypotheses(texts, depth=depths, scores=False, **options.search)
    return time.perf_counter() - start

"""Which depth would have been best, sentence by sentence (Dabre, Rubino and Fujita 2020, Section 4.1).

`oracle` gives a result; oracle_report.py shows it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.depth import DepthMenu
from anydepth.evaluate.every_depth import EveryDepth, fastest_first, translate_every_depth
from anydepth.evaluate.experiment import (
    Conditions,
    DepthRun,
    Example,
    OtherLoad,
    RunOptions,
    Translators,
    make_families,
    pick_telling,
)
from anydepth.evaluate.metrics import score
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar

FORMAT = 1
WARM_UP_SENTENCES = 8

ChosenDepths = NDArray[np.intp]
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
class DepthShare:
    """How many sentences a depth is best for; BLEU and chrF are of the whole test set at this depth."""

    depth: str
    encoder_layers: int
    decoder_layers: int
    count: int
    share: float
    bleu: float
    chrf: float


@dataclass(frozen=True, eq=False)
class ModelOracle:
    """`layers` are n and m of the table's depths, `deepest` is the place of the deepest among them."""

    label: str
    table: EveryDepth
    layers: tuple[tuple[int, int], ...]
    deepest: int
    timing: PassTimes

    @cached_property
    def chosen(self) -> ChosenDepths:
        return self.table.best()

    @cached_property
    def shares(self) -> list[DepthShare]:
        """Of each depth, fastest first."""
        counts = np.bincount(self.chosen, minlength=len(self.layers)).tolist()
        return [
            DepthShare(one.name, *sizes, count, count / len(self.table), one.bleu, one.chrf)
            for one, sizes, count in zip(self._singles, self.layers, counts, strict=True)
        ]

    @property
    def percentages(self) -> dict[tuple[int, int], float]:
        """Of the sentences that are best at n and m layers, the sum where several depths are of that size."""
        found: dict[tuple[int, int], float] = dict.fromkeys(self.layers, 0.0)
        for one, place in zip(self.shares, self.layers, strict=True):
            found[place] += 100 * one.share
        return found

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

    def _choice(self, name: str, chosen: ChosenDepths, seconds: float | None) -> Choice:
        n, m = np.asarray(self.layers, np.float64)[chosen].mean(0).tolist()
        return Choice(name, self.table.bleu(chosen), self.table.chrf(chosen), n, m, seconds)

    @cached_property
    def ties(self) -> dict[str, float]:
        """Shares of sentences: several depths reach the best chrF, all of them do; and how many do on average."""
        chrf_nk = self.table.chrf_nk
        tied = (chrf_nk == chrf_nk.max(1, keepdims=True)).sum(1)
        means = (tied > 1).mean(), (tied == len(self.layers)).mean(), tied.mean()
        return dict(zip(("several", "all", "depths_on_average"), map(float, means), strict=True))

    def gains(self, count: int) -> list[Example]:
        """The sentences that gain most over the deepest depth."""
        table = self.table
        examples = [
            Example(
                row + 1,
                table.sources[row],
                table.references[row],
                {table.depths[k]: (table.outputs[k][row], float(table.chrf_nk[row, k])) for k in (best, self.deepest)},
            )
            for row, best in enumerate(self.chosen.tolist())
        ]
        return [one for one in pick_telling(examples, count) if one.spread > 0]

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
    translators: Translators, sources: Sequence[str], references: Sequence[str], options: RunOptions | None = None
) -> OracleResult:
    """Translate the test set at every depth, and once more with each sentence at its best depth, against the clock.

    Several translators under one label are a family, such as a model trained for each depth. Passes with each sentence
    at its best depth take turns with as many at the deepest.
    """
    options = options or RunOptions()
    families = make_families(translators)
    load, models = OtherLoad(), []
    for label, members in families.items():
        table = translate_every_depth(members, sources, references, options, label)
        runs = fastest_first(members, label)
        deepest = table.depths.index(DepthMenu(entry for member in members for entry in member.menu).deepest.name)
        with progress_bar(f"{label}: timed passes", (2 if len(runs) > 1 else 1) * options.repeats) as advance:
            timing = _time(table, runs, deepest, options, advance)
        models.append(ModelOracle(label, table, tuple(run.layers for run in runs), deepest, timing))
    conditions = replace(Conditions.here(families, len(sources), options), other_load=load.cores())
    return OracleResult(models, conditions, score(references[:1], references[:1]).signatures)


def _time(
    table: EveryDepth, runs: Sequence[DepthRun], deepest: int, options: RunOptions, advance: Callable[[int], None]
) -> PassTimes:
    """In turn, so that a slow minute of the machine falls on both."""
    best = table.best()
    ways = [_portions(runs, table.sources, chosen) for chosen in (np.full_like(best, deepest), best)[: len(runs)]]
    seconds: list[list[float]] = [[] for _ in ways]
    for portions in ways:
        few = slice(WARM_UP_SENTENCES)
        _seconds([(member, texts[few], depths[few]) for member, texts, depths in portions], options)
    for _ in range(options.repeats):
        for passes, portions in zip(seconds, ways, strict=True):
            passes.append(_seconds(portions, options))
            advance(1)
    return PassTimes(oracle=tuple(seconds[-1]), deepest=tuple(seconds[0]))


def _portions(runs: Sequence[DepthRun], sources: Sequence[str], chosen: ChosenDepths) -> list[Portion]:
    """What each member of the family has to translate."""
    portions: dict[int, Portion] = {}
    for text, place in zip(sources, chosen.tolist(), strict=True):
        run = runs[place]
        _, texts, depths = portions.setdefault(id(run.translator), (run.translator, [], []))
        texts.append(text)
        depths.append(run.entry.name)
    return list(portions.values())


def _seconds(portions: Sequence[Portion], options: RunOptions) -> float:
    start = time.perf_counter()
    for translator, texts, depths in portions:
        translator.hypotheses(texts, depth=depths, scores=False, **options.search)
    return time.perf_counter() - start

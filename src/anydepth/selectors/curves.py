"""From trained selectors to the better kind with its threshold, and to all that the report says of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from anydepth.depth import DepthMenu
from anydepth.evaluate.bar import bar
from anydepth.evaluate.calibrate import spread
from anydepth.evaluate.every_depth import EveryDepth
from anydepth.evaluate.experiment import Conditions
from anydepth.evaluate.metrics import score
from anydepth.evaluate.tradeoff import (
    ChoiceOutcome,
    ChoiceTiming,
    TradeOff,
    default_threshold,
    label_thresholds,
    seconds_at,
    seconds_to_choose,
    time_choices,
    token_ids,
    tune_selector,
    value_thresholds,
)
from anydepth.evaluate.tradeoff_result import SelectorCurve, TradeoffResult, fixed_depths
from anydepth.infer.translator import Translator
from anydepth.selectors.calibration import Calibration
from anydepth.selectors.cost import LengthCost
from anydepth.selectors.inputs import Sample
from anydepth.selectors.learnt import LearntSelector, Point

TIMED_SENTENCES = 200
CHOICES_TIMED = 100


@dataclass(frozen=True)
class Part:
    """Held-out sentences: their token ids, and what each depth gives and costs."""

    sources: list[list[int]]
    tradeoff: TradeOff

    @classmethod
    def of(
        cls, translator: Translator, table: EveryDepth, calibration: Calibration, plan: "Part | None" = None
    ) -> "Part":
        sources = token_ids(translator, table.sources)
        costs_k = [calibration.depths[name].single for name in table.depths]
        seconds_nk = seconds_at(costs_k, [len(source) for source in sources])
        return cls(sources, TradeOff(table, seconds_nk, plan.tradeoff if plan else None))

    @property
    def lengths(self) -> list[int]:
        return [len(source) for source in self.sources]

    def outcomes(self, selector: LearntSelector, thresholds: Sequence[float], overhead: float) -> list[ChoiceOutcome]:
        scores_nk = selector.scores(self.sources)
        chosen = {threshold: selector.pick(scores_nk, self.lengths, threshold) for threshold in thresholds}
        return [self.tradeoff.outcome(chosen_n, threshold, overhead) for threshold, chosen_n in chosen.items()]

    def thresholds(self, selector: LearntSelector) -> list[float]:
        """To measure the selector at."""
        scores_nk = selector.scores(self.sources)
        if selector.kind == "labels":
            return label_thresholds(scores_nk)
        rows, seconds_nk = np.arange(len(self.sources)), self.tradeoff.seconds_nk
        return value_thresholds(
            lambda threshold: float(seconds_nk[rows, selector.pick(scores_nk, self.lengths, threshold)].mean())
        )


@dataclass(frozen=True)
class Contender:
    """One kind of selector: a network for each seed, the best of them on the validation part first; its two curves."""

    networks: tuple[LearntSelector, ...]
    valid: SelectorCurve
    test: SelectorCurve
    valid_outcomes: tuple[ChoiceOutcome, ...]  # of the first network
    test_outcomes: tuple[ChoiceOutcome, ...]

    @classmethod
    def measure(
        cls, fitted: Sequence[tuple[LearntSelector, float]], valid: Part, test: Part, console: Console
    ) -> "Contender":
        """From the networks with their validation losses."""
        networks = [network for network, _ in sorted(fitted, key=lambda one: one[1])]
        if networks[0].kind != "labels":
            with bar(console, f"tuning ({networks[0].kind})", len(networks)) as advance:
                networks = [_tuned(network, valid, advance) for network in networks]
        overhead = seconds_to_choose(networks[0], test.sources[:CHOICES_TIMED])
        thresholds = valid.thresholds(networks[0])
        on_valid, on_test = (
            [part.outcomes(network, thresholds, overhead) for network in networks] for part in (valid, test)
        )
        kind = networks[0].kind
        return cls(
            tuple(networks),
            SelectorCurve.from_seeds(kind, on_valid, overhead),
            SelectorCurve.from_seeds(kind, on_test, overhead),
            tuple(on_valid[0]),
            tuple(on_test[0]),
        )

    def to_save(self, valid: Part, test: Part) -> LearntSelector:
        """The best network, with its threshold and the trade-off as measured on the test part."""
        deepest = self.networks[0].deepest
        threshold = default_threshold(self.networks[0].kind, self.valid_outcomes, float(valid.tradeoff.bleu_k[deepest]))
        whole = float(test.tradeoff.seconds_k[deepest])
        points = [Point(one.threshold, one.seconds / whole, one.bleu, one.chrf) for one in self.test_outcomes]
        return self.networks[0].with_threshold(threshold).with_points(points)


def _tuned(network: LearntSelector, valid: Part, advance: Callable[[int], None]) -> LearntSelector:
    found = tune_selector(network, valid.sources, valid.tradeoff)
    advance(1)
    return found


def best_of(contenders: Sequence[Contender]) -> Contender:
    """The furthest above the mixtures, on average, where nothing is reported from: on the validation part."""
    return max(contenders, key=lambda one: one.valid.mean_difference)


def relative_costs(calibration: Calibration, depths: Sequence[str], menu: DepthMenu) -> tuple[LengthCost, ...]:
    """What each depth costs, the deepest taking 1 for a sentence of the calibration's mean length."""
    unit = calibration.depths[menu.deepest.name].single.at(calibration.mean_length)
    costs = (calibration.depths[name].single for name in depths)
    return tuple(LengthCost(cost.base / unit, cost.per_token / unit) for cost in costs)


def timed(translator: Translator, selector: LearntSelector, test: Part, beam: int, console: Console) -> ChoiceTiming:
    table = test.tradeoff.table
    texts = [table.sources[i] for i in spread(range(len(table)), TIMED_SENTENCES)]
    return time_choices(translator, selector, texts, table.depths[0], beam=beam)


def gather(
    translator: Translator,
    sample: Sample,
    sizes: dict[str, int],
    contenders: Sequence[Contender],
    saved: LearntSelector,
    test: Part,
    timing: ChoiceTiming,
    *,
    label: str,
    beam: int,
    batch_size: int,
    fine_tuned_on: str,
) -> TradeoffResult:
    """The result, for the report."""
    best = next(one for one in contenders if one.networks[0].kind == saved.kind)
    depths = [translator.menu[name].subnetwork for name in test.tradeoff.table.depths]
    quality = score(sample.references[:1], sample.references[:1])
    return TradeoffResult(
        label=label,
        conditions=Conditions.here(
            [translator],
            sample.sources,
            sample.name,
            sample.reference_name,
            beam=beam,
            length_penalty=0.6,
            batch_size=batch_size,
            cut_long=False,
            repeats=1,
        ),
        sizes=sizes,
        fixed=fixed_depths(test.tradeoff, [(len(sub.encoder), len(sub.decoder)) for sub in depths]),
        deepest=translator.menu.deepest.name,
        mixture=tuple(test.tradeoff.mixture_line()),
        oracle=test.tradeoff.oracle(),
        curves=tuple(one.test for one in contenders),
        saved_kind=saved.kind,
        threshold=saved.threshold,
        chosen=next(one for one in best.test_outcomes if one.threshold == saved.threshold),
        timing=timing,
        signatures={"BLEU": quality.bleu_signature, "chrF": quality.chrf_signature},
        fine_tuned_on=fine_tuned_on,
    )

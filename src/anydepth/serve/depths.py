"""Which depth a request runs at: the one it names, the best within its budget, or what the selector chooses."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from anydepth.artifact.folder import LanguagePair
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import spread
from anydepth.export.sample import SampleText
from anydepth.export.web import describe_depth
from anydepth.infer.options import AUTO
from anydepth.infer.translator import Translator
from anydepth.selectors.budget import best_within, in_ms
from anydepth.selectors.calibration import LengthCost, by_layers, find_for
from anydepth.serve.schemas import ServerSettings

TIMED, ROUNDS = 6, 3
PATIENCE = 6.0  # seconds: slow models are timed on fewer sentences


@dataclass(frozen=True)
class DepthCosts:
    """What one sentence alone costs on this machine at each depth that the engine can run, and how that is known."""

    costs: dict[str, LengthCost]
    typical_length: float
    origin: str

    def milliseconds(self, depth: str) -> float:
        return 1000 * self.costs[depth].at(self.typical_length)


class DepthChooser:
    """The depths of one language pair. Whatever is wrong with the server's own settings is found when it is made."""

    def __init__(
        self, translator: Translator, pair: LanguagePair, settings: ServerSettings, sample: SampleText
    ) -> None:
        self.translator, self.pair, self.settings = translator, pair, settings
        self.unsupported = _unsupported_depths(translator)
        names = [name for name in translator.menu.names if name not in self.unsupported]
        if not names:
            raise next(iter(self.unsupported.values()))
        self.costs = _find_costs(translator, names, sample, settings.beam)
        measured = {entry.name: entry.quality for entry in translator.menu if entry.name in names}
        self.quality = {name: quality["bleu"] for name, quality in measured.items() if "bleu" in quality}
        best = translator.menu.default.name
        self.default = best if best in names else max(names, key=lambda name: translator.menu[name].layers)
        self.choose(["."], None, None)

    def choose(self, texts: Sequence[str], depth: str | None, budget: float | None) -> list[str]:
        """A depth for each text. Without a depth and a budget, the server's own settings count."""
        if depth is None and budget is None:
            depth, budget = self.settings.depth, self.settings.budget
        if depth is not None and budget is not None:
            raise UserError("depth and budget_ms both choose the depth, give one of the two")
        if budget is not None:
            return self._choose_within(budget, texts)
        if depth == AUTO:
            return self._choose_by_selector(texts)
        name = self.default if depth is None else self.translator.menu[depth].name
        if name in self.unsupported:
            raise self.unsupported[name]
        return [name] * len(texts)

    def _choose_within(self, budget: float, texts: Sequence[str]) -> list[str]:
        if not self.quality:
            raise UserError(
                "a budget needs quality and time of each depth, and none has been measured: run `anydepth sweep`"
            )
        costs = {name: self.costs.costs[name] for name in self.quality}
        lengths = [len(source) for source in self._encode(texts)]
        if not lengths:
            return []
        chosen, seconds = best_within(costs, self.quality, budget, lengths)
        if seconds > budget:
            raise UserError(
                f"a budget of {in_ms(budget)} ms is below the fastest depth, which takes about {in_ms(seconds)} ms per "
                "sentence"
            )
        return [chosen] * len(texts)

    def _choose_by_selector(self, texts: Sequence[str]) -> list[str]:
        selector = self.translator.selector
        if selector is None:
            raise UserError("this model has no selector for auto: name a depth")
        chosen = selector.choose(self._encode(texts))
        return [self.default if name in self.unsupported else name for name in chosen]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.translator.as_read(ids) for ids in self.translator.subwords(texts)]

    def describe(self, examples: Sequence[str]) -> dict[str, Any]:
        """For /model and the page: what can be chosen in this language pair."""
        translator, costs = self.translator, self.costs
        on = translator.menu.measured_on
        return {
            "source": self.pair.source,
            "target": self.pair.target,
            "default": self.default,
            "has_selector": self._has_selector(),
            "has_budget": bool(self.quality),
            "times_from": costs.origin,
            "measured_on": on.get("test_set", on.get("reference", "")),
            "examples": list(examples),
            "depths": [
                describe_depth(translator, entry, costs.milliseconds(entry.name))
                for entry in translator.menu
                if entry.name in costs.costs
            ],
        }

    def _has_selector(self) -> bool:
        try:
            return self.translator.selector is not None
        except UserError:  # it is damaged: depths can still be named
            return False


def _unsupported_depths(translator: Translator) -> dict[str, UserError]:
    """The depths that the engine cannot run, each with the reason; all others are ready to run."""
    found: dict[str, UserError] = {}
    for entry in translator.menu:
        try:
            translator.engine.prepare([entry.subnetwork])
        except UserError as error:
            found[entry.name] = error
    return found


def _find_costs(translator: Translator, names: Sequence[str], sample: SampleText, beam: int) -> DepthCosts:
    """From a calibration under the same conditions, if there is one. Otherwise from translating a few sentences, which
    takes a second or two and warms everything up."""
    known = find_for(translator, beam)
    if known is not None and set(known.depths) >= set(names):
        return DepthCosts({name: known.depths[name].single for name in names}, known.mean_length, "calibration")
    lengths = [len(translator.as_read(ids)) for ids in translator.subwords(sample.sources)]
    usable = [i for i, length in enumerate(lengths) if 1 < length <= translator.longest_source]
    if not usable:
        raise UserError(f"{sample.origin} has no sentence to time the depths with: put some in, or remove it")
    chosen = spread(sorted(usable, key=lengths.__getitem__), TIMED)
    for name in names:
        _time(translator, sample.sources[chosen[0]], name, beam)  # the first run of each is slow
    slowest = max(_time(translator, sample.sources[chosen[-1]], name, beam) for name in names[-1:])
    affordable = int(PATIENCE / max(slowest, 1e-6) / len(names) / ROUNDS)
    chosen = spread(chosen, max(2, min(TIMED, affordable)))
    costs = {}
    for name in names:
        seconds = [median(_time(translator, sample.sources[i], name, beam) for _ in range(ROUNDS)) for i in chosen]
        costs[name] = LengthCost.fit([lengths[i] for i in chosen], seconds)
    mean = sum(lengths[i] for i in chosen) / len(chosen)
    subs = {name: translator.menu[name].subnetwork for name in names}
    layers = {name: (len(sub.encoder), len(sub.decoder)) for name, sub in subs.items()}
    return DepthCosts(by_layers(costs, layers, mean), mean, "a few sentences when the server started")


def _time(translator: Translator, text: str, depth: str, beam: int) -> float:
    began = time.perf_counter()
    translator.translate([text], depth=depth, beam=beam)
    return time.perf_counter() - began

"""Which depth a request runs at: the one it names, what fits its budget, or what the selector says."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from anydepth.artifact.folder import LanguagePair
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import spread
from anydepth.export.sample import Sample
from anydepth.infer.depths import AUTO
from anydepth.infer.translator import Translator
from anydepth.selectors.budget import BudgetSelector, in_ms
from anydepth.selectors.calibration import find
from anydepth.selectors.cost import LengthCost, by_layers
from anydepth.serve.settings import Settings

TIMED, ROUNDS = 6, 3
PATIENCE = 6.0  # seconds: large models are timed on fewer sentences


@dataclass(frozen=True)
class Timing:
    """What a sentence costs alone, on this machine, at each depth that the engine can run; and how that is known."""

    costs: dict[str, LengthCost]
    typical_length: float
    origin: str

    def milliseconds(self, depth: str) -> float:
        return 1000 * self.costs[depth].at(self.typical_length)


def runnable(translator: Translator) -> dict[str, UserError | None]:
    """The depths, each with the reason why the engine cannot run it, if it cannot; all others are ready to run."""
    found: dict[str, UserError | None] = {}
    for entry in translator.menu:
        try:
            translator.engine.prepare([entry.subnetwork])
            found[entry.name] = None
        except UserError as error:
            found[entry.name] = error
    return found


def time_depths(translator: Translator, names: Sequence[str], sample: Sample, beam: int) -> Timing:
    """By a calibration for these conditions, if there is one; else by trying a few sentences, which takes a second or
    two and warms everything up."""
    known = find(
        translator.folder,
        translator.fingerprint,
        device=str(next(translator.model.parameters()).device),
        threads=translator.engine.threads,
        beam=beam,
        pair=translator.pair,
        engine=translator.engine.name,
    )
    if known is not None and set(known.depths) >= set(names):
        return Timing({name: known.depths[name].single for name in names}, known.mean_length, "calibration")
    lengths = [len(translator.as_read(ids)) for ids in translator.tokenizer.encode_many(sample.sources)]
    usable = [i for i, length in enumerate(lengths) if 1 < length <= translator.longest_source]
    if not usable:
        raise UserError(f"{sample.origin} has no sentence to time the depths with: put some in, or remove it")
    chosen = spread(sorted(usable, key=lengths.__getitem__), TIMED)
    for name in names:
        _seconds(translator, sample.sources[chosen[0]], name, beam)  # the first run of each is slow
    slowest = max(_seconds(translator, sample.sources[chosen[-1]], name, beam) for name in names[-1:])
    affordable = int(PATIENCE / max(slowest, 1e-6) / len(names) / ROUNDS)
    chosen = spread(chosen, max(2, min(TIMED, affordable)))
    costs = {}
    for name in names:
        seconds = [median(_seconds(translator, sample.sources[i], name, beam) for _ in range(ROUNDS)) for i in chosen]
        costs[name] = LengthCost.fit([lengths[i] for i in chosen], seconds)
    mean = sum(lengths[i] for i in chosen) / len(chosen)
    subs = {name: translator.menu[name].subnetwork for name in names}
    layers = {name: (len(sub.encoder), len(sub.decoder)) for name, sub in subs.items()}
    return Timing(by_layers(costs, layers, mean), mean, "a few sentences when the server started")


def _seconds(translator: Translator, text: str, depth: str, beam: int) -> float:
    began = time.perf_counter()
    translator.translate([text], depth=depth, beam=beam)
    return time.perf_counter() - began


class Depths:
    """Of one language pair. Whatever can be wrong with the server's own settings is found at once."""

    def __init__(self, translator: Translator, pair: LanguagePair, settings: Settings, sample: Sample) -> None:
        self.translator, self.pair, self.settings = translator, pair, settings
        self.refused = {name: why for name, why in runnable(translator).items() if why is not None}
        names = [name for name in translator.menu.names if name not in self.refused]
        if not names:
            raise next(iter(self.refused.values()))
        self.timing = time_depths(translator, names, sample, settings.beam)
        measured = {entry.name: entry.quality for entry in translator.menu if entry.name in names}
        self.quality = {name: quality["bleu"] for name, quality in measured.items() if "bleu" in quality}
        best = translator.menu.default.name
        self.default = best if best in names else max(names, key=lambda name: translator.menu[name].layers)
        self.choose(["."], None, None)

    @property
    def why_no_budget(self) -> str | None:
        if self.quality:
            return None
        return "the depths of this model have not been measured, so that no budget can be kept: run `anydepth sweep`"

    def choose(self, texts: Sequence[str], depth: str | None, budget: float | None) -> list[str]:
        """A depth for each text; where nothing is asked for, the server's own settings count."""
        if depth is None and budget is None:
            depth, budget = self.settings.depth, self.settings.budget
        if depth is not None and budget is not None:
            raise UserError("depth and budget_ms both choose the depth, give one of the two")
        if budget is not None:
            return self._within(budget, texts)
        if depth == AUTO:
            return self._by_selector(texts)
        name = self.default if depth is None else self.translator.menu[depth].name
        if name in self.refused:
            raise self.refused[name]
        return [name] * len(texts)

    def _within(self, budget: float, texts: Sequence[str]) -> list[str]:
        if self.why_no_budget is not None:
            raise UserError(self.why_no_budget)
        costs = {name: self.timing.costs[name] for name in self.quality}
        sources = self._encoded(texts)
        lengths = [len(source) for source in sources]
        if not lengths:
            return []
        fastest = min(cost.seconds(lengths) for cost in costs.values())
        if fastest > budget:
            raise UserError(
                f"a budget of {in_ms(budget)} ms is below the fastest depth, which takes about {in_ms(fastest)} ms per "
                "sentence"
            )
        return BudgetSelector(costs, self.quality, budget).choose(sources)

    def _by_selector(self, texts: Sequence[str]) -> list[str]:
        selector = self.translator.selector
        if selector is None:
            raise UserError("this model has no selector for auto: name a depth")
        chosen = selector.choose(self._encoded(texts))
        return [self.default if name in self.refused else name for name in chosen]

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.translator.as_read(ids) for ids in self.translator.tokenizer.encode_many(texts)]

"""Which depth a request runs at: the one it names, what fits its budget, or what the selector says."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from anydepth.deploy.sample import Sample
from anydepth.deploy.server.errors import ApiError
from anydepth.deploy.server.settings import Settings
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import spread
from anydepth.infer.translator import AUTO, Translator
from anydepth.select.budget import BudgetSelector, in_ms
from anydepth.select.calibration import find
from anydepth.select.cost import LengthCost, by_layers

TIMED, ROUNDS = 6, 2
PATIENCE = 6.0  # seconds: large models are timed on fewer sentences


@dataclass(frozen=True)
class Timing:
    """What a sentence costs at each depth, alone, on this machine; and where that is known from."""

    costs: dict[str, LengthCost]
    typical_length: float
    origin: str

    def milliseconds(self, depth: str) -> float | None:
        cost = self.costs.get(depth)
        return None if cost is None else 1000 * cost.at(self.typical_length)


def time_depths(translator: Translator, sample: Sample, beam: int) -> Timing:
    """By a calibration for these conditions, if there is one; else by trying a few sentences, which takes a second or
    two and warms everything up."""
    device = str(next(translator.model.parameters()).device)
    known = find(
        translator.folder,
        translator.fingerprint,
        device=device,
        threads=translator.engine.threads,
        beam=beam,
        pair=translator.pair,
        engine=translator.engine.name,
    )
    if known is not None and set(known.depths) >= set(translator.menu.names):
        return Timing({name: one.single for name, one in known.depths.items()}, known.mean_length, "calibration")
    texts = [text for text in sample.sources if text.strip()]
    lengths = [len(translator.as_read(ids)) for ids in translator.tokenizer.encode_many(texts)]
    by_length = sorted(
        (i for i in range(len(texts)) if lengths[i] <= translator.longest_source), key=lengths.__getitem__
    )
    chosen = spread(by_length, TIMED)
    slowest = _seconds(translator, texts[chosen[0]], translator.menu.deepest.name, beam)
    affordable = int(PATIENCE / max(slowest, 1e-6) / len(translator.menu) / (ROUNDS + 1))
    chosen = spread(chosen, max(1, min(TIMED, affordable)))
    costs = {}
    for name in translator.menu.names:
        translator.translate([texts[chosen[0]]], depth=name, beam=beam)
        seconds = [min(_seconds(translator, texts[i], name, beam) for _ in range(ROUNDS)) for i in chosen]
        costs[name] = LengthCost.fit([lengths[i] for i in chosen], seconds)
    mean = sum(lengths[i] for i in chosen) / len(chosen)
    layers = {entry.name: (len(entry.subnetwork.encoder), len(entry.subnetwork.decoder)) for entry in translator.menu}
    return Timing(by_layers(costs, layers, mean), mean, "a few sentences when the server started")


def _seconds(translator: Translator, text: str, depth: str, beam: int) -> float:
    began = time.perf_counter()
    translator.translate([text], depth=depth, beam=beam)
    return time.perf_counter() - began


class Depths:
    """Of one language pair."""

    def __init__(self, translator: Translator, settings: Settings, timing: Timing) -> None:
        self.translator, self.settings, self.timing = translator, settings, timing
        self.quality = {
            e.name: e.quality["bleu"] for e in translator.menu if "bleu" in e.quality and e.name in timing.costs
        }

    @property
    def why_no_budget(self) -> str | None:
        if self.quality:
            return None
        return "the depths of this model have not been measured, so that no budget can be kept: run `anydepth sweep`"

    def choose(self, texts: Sequence[str], depth: str | None, budget: float | None) -> list[str]:
        """A depth for each text."""
        if depth is None and budget is None:
            depth, budget = self.settings.depth, self.settings.budget
        if depth is not None and budget is not None:
            raise ApiError(400, "Invalid request: depth and budget_ms both choose the depth, give one of the two")
        try:
            if budget is not None:
                return self._within(budget, texts)
            if depth == AUTO:
                return self._by_selector(texts)
            return [self.translator.menu[depth].name] * len(texts)
        except UserError as error:
            raise ApiError(400, f"Invalid request: {error}") from error

    def _within(self, budget: float, texts: Sequence[str]) -> list[str]:
        if self.why_no_budget is not None:
            raise UserError(self.why_no_budget)
        costs = {name: self.timing.costs[name] for name in self.quality}
        sources = self._encoded(texts)
        lengths = [len(source) for source in sources if len(source) > 1] or [1]
        fastest = min(cost.seconds(lengths) for cost in costs.values())
        if fastest > budget:
            raise UserError(
                f"budget_ms {in_ms(budget)} is below the fastest depth, which takes about "
                f"{in_ms(fastest)} ms per sentence"
            )
        return BudgetSelector(costs, self.quality, budget).choose(sources)

    def _by_selector(self, texts: Sequence[str]) -> list[str]:
        selector = self.translator.selector
        if selector is None:
            raise UserError("this model has no selector for auto: name a depth")
        return selector.choose(self._encoded(texts))

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.translator.as_read(ids) for ids in self.translator.tokenizer.encode_many(texts)]

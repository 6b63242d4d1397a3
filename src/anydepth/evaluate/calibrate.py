"""Time and score every depth of a model on the machine at hand, and what `anydepth calibrate` reports of it."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.evaluate.experiment import RunOptions, check_paired, now
from anydepth.evaluate.metrics import pareto_front, score
from anydepth.evaluate.report import Column, Report, Section, Text, tabulate
from anydepth.infer.options import TranslateKeywords
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar
from anydepth.selectors.calibration import (
    Calibration,
    CalibrationConditions,
    DepthCost,
    LengthCost,
    by_layers,
    machine_key,
    sentences_per_batch,
    typical_seconds,
)

WARM_UP_SENTENCES = 4
Advance = Callable[[int], None]


def calibrate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    options: RunOptions | None = None,
    *,
    timing_sentences: int = 200,
) -> Calibration:
    """Measure every depth of the menu: quality on all lines, time by length at batch 1 and in batches.

    At batch 1 at most `timing_sentences` are timed, spread over the lengths that occur; in batches, all. Each sentence
    or batch runs at all depths before the next one does, so that a slow second of the machine hits all of them.
    """
    options = options or RunOptions()
    check_paired(sources, references)
    if timing_sentences < 1:
        raise UserError("without a sentence nothing is measured: give 1 or more")
    search: Any = options.search
    translator.hypotheses([], **search)  # refuses bad options
    batch_size, lengths = search.pop("batch_size"), _lengths(translator, sources, options.cut_long)
    by_length = sorted((i for i, length in enumerate(lengths) if length > 1), key=lambda i: -lengths[i])
    plan = _Plan(
        translator,
        sources,
        search,
        singles=spread(by_length, timing_sentences),
        batches=[by_length[start : start + batch_size] for start in range(0, len(by_length), batch_size)],
    )
    with progress_bar("calibrate", plan.work * options.repeats) as advance:
        plan.run(options.repeats, advance)
    conditions = CalibrationConditions(
        machine=machine_key(),
        device=translator.device,
        threads=translator.engine.threads,
        beam=options.beam,
        length_penalty=options.length_penalty,
        batch_size=batch_size,
        sentences_per_batch=sentences_per_batch(len(by_length), batch_size),
        repeats=options.repeats,
        timed_sentences=len(plan.singles),
        lines=len(sources),
        source_file=Path(options.source_name).name,
        reference_file=Path(options.reference_name).name,
        date=now(),
        pair=translator.pair,
        engine=translator.engine.name,
    )
    counts = Counter(lengths[i] for i in by_length)
    depths = {name: plan.cost(name, lengths, references) for name in translator.menu.names}
    measured = Calibration(conditions, dict(sorted(counts.items())), depths)
    return replace(measured, depths=_evened_out(measured, translator.menu))


def calibration_report(calibration: Calibration) -> Report:
    """A table of all depths, with the Pareto fronts of both ways of translating."""
    length, names = calibration.mean_length, list(calibration.depths)
    bleu = {name: one.quality["bleu"] for name, one in calibration.depths.items()}
    single = {name: one.single.at(length) for name, one in calibration.depths.items()}
    batched = {name: one.batched.at(length) for name, one in calibration.depths.items()}
    fronts = [
        {names[place] for place in pareto_front([(seconds[name], bleu[name]) for name in names])}
        for seconds in (single, batched)
    ]
    columns = [
        Column("depth", lambda name: name),
        Column("BLEU", bleu.get, ".2f"),
        Column("chrF", lambda name: calibration.depths[name].quality["chrf"], ".2f"),
        Column("ms, batch 1", lambda name: 1000 * single[name], ".2f"),
        Column("", lambda name: "*" if name in fronts[0] else ""),
        Column(f"ms, batch {calibration.conditions.batch_size}", lambda name: 1000 * batched[name], ".2f"),
        Column("", lambda name: "*" if name in fronts[1] else ""),
        Column("sent/s", lambda name: 1 / batched[name], ".1f"),
    ]
    sections: list[Section] = [
        tabulate(columns, calibration.depths),
        Text("ms per sentence, fitted over lengths and layers"),
        Text("* on the Pareto front: no other depth is faster and at least as good"),
    ]
    return Report("Every depth on this machine", sections, asdict(calibration))


def _evened_out(measured: Calibration, menu: DepthMenu) -> dict[str, DepthCost]:
    """What a layer costs is measured at many depths: together they say it better than each alone."""
    depths, length = measured.depths, measured.mean_length
    layers = {name: (len(menu[name].subnetwork.encoder), len(menu[name].subnetwork.decoder)) for name in depths}
    single = by_layers({name: cost.single for name, cost in depths.items()}, layers, length)
    batched = by_layers({name: cost.batched for name, cost in depths.items()}, layers, length)
    return {name: DepthCost(single[name], batched[name], cost.quality) for name, cost in depths.items()}


def spread(by_length: Sequence[int], count: int) -> list[int]:
    """`count` of them at even distances, so that their lengths are distributed as those of all; both ends included."""
    if count >= len(by_length):
        return list(by_length)
    if count == 1:
        return [by_length[len(by_length) // 2]]
    return [by_length[round(step * (len(by_length) - 1) / (count - 1))] for step in range(count)]


@dataclass
class _Plan:
    """The sentences, by their place in the file, to be timed one by one and batch by batch; what came of it so far."""

    translator: Translator
    sources: Sequence[str]
    options: TranslateKeywords
    singles: list[int]
    batches: list[list[int]]
    single_passes: dict[str, list[list[float]]] = field(default_factory=dict)
    batched_passes: dict[str, list[list[float]]] = field(default_factory=dict)
    outputs: dict[str, list[str]] = field(default_factory=dict)

    @property
    def in_batches(self) -> list[int]:
        return [i for batch in self.batches for i in batch]

    @property
    def work(self) -> int:
        """Sentences to translate in one pass."""
        return (len(self.singles) + len(self.in_batches)) * len(self.translator.menu)

    def run(self, repeats: int, advance: Advance) -> None:
        names = self.translator.menu.names
        for name in names:
            self._timed(name, self.batches[0])  # warms up
            for i in self.singles[:WARM_UP_SENTENCES]:
                self._timed(name, [i])
        for _ in range(repeats):
            for passes in (self.single_passes, self.batched_passes):
                for name in names:
                    passes.setdefault(name, []).append([])
            for i, name in product(self.singles, names):
                self.single_passes[name][-1].append(self._timed(name, [i])[0])
                advance(1)
            for batch, name in product(self.batches, names):
                self._time_batch(name, batch)
                advance(len(batch))

    def cost(self, name: str, lengths: Sequence[int], references: Sequence[str]) -> DepthCost:
        quality = score(self.outputs[name], references)
        return DepthCost(
            LengthCost.fit([lengths[i] for i in self.singles], typical_seconds(self.single_passes[name])),
            LengthCost.fit([lengths[i] for i in self.in_batches], typical_seconds(self.batched_passes[name])),
            {"bleu": quality.bleu, "chrf": quality.chrf},
        )

    def _time_batch(self, name: str, batch: list[int]) -> None:
        """Its time is spread evenly over its sentences."""
        taken, texts = self._timed(name, batch)
        self.batched_passes[name][-1].extend([taken / len(batch)] * len(batch))
        outputs = self.outputs.setdefault(name, [""] * len(self.sources))
        for i, text in zip(batch, texts, strict=True):
            outputs[i] = text

    def _timed(self, name: str, chosen: Sequence[int]) -> tuple[float, list[str]]:
        """From text to text: that is what a user waits for."""
        texts = [self.sources[i] for i in chosen]
        began = time.perf_counter()
        options: TranslateKeywords = {**self.options, "batch_size": len(texts)}
        outputs = self.translator.translate(texts, depth=name, **options)
        return time.perf_counter() - began, outputs


def _lengths(translator: Translator, sources: Sequence[str], cut_long: bool) -> list[int]:
    """As the encoder reads them, as in selectors/calibration.py."""
    found, limit = translator.subwords(sources), translator.longest_source
    for number, length in enumerate(map(len, found), 1):
        if length > limit and not cut_long:
            raise UserError(
                f"line {number:,} of the source has {length:,} subwords, the limit is {limit:,}: "
                "leave it out, with its reference, or cut it with cut_long=True"
            )
    return [len(translator.as_read(ids[:limit])) for ids in found]

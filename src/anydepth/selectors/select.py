"""The work behind `anydepth select`: from sentences to a saved selector, and to the report on whether it is worth it.

Each step is kept in the folder of the run, so that the same command again goes on with it.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import calibrate, spread
from anydepth.evaluate.every_depth import EveryDepth, split_by_source, split_rows, take_rows
from anydepth.evaluate.experiment import Conditions, RunOptions
from anydepth.evaluate.metrics import score
from anydepth.evaluate.render import write_report
from anydepth.evaluate.report import Report
from anydepth.evaluate.tradeoff import (
    ChoiceOutcome,
    ChoiceTiming,
    Tradeoff,
    default_threshold,
    label_thresholds,
    seconds_at,
    seconds_to_choose,
    time_choices,
    token_ids,
    tune_selector,
    value_thresholds,
)
from anydepth.evaluate.tradeoff_report import FORMAT, RECORD, tradeoff_report, write_record
from anydepth.evaluate.tradeoff_result import SelectorCurve, TradeoffResult, fixed_depths
from anydepth.files import read_json
from anydepth.infer.runner import Runner, local
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar
from anydepth.selectors.calibration import Calibration, LengthCost, find_for, refuse_newer, save
from anydepth.selectors.data import ParallelText, add_likelihood, pieces_folder, translate_sample
from anydepth.selectors.learned import LearnedSelector, TradeoffPoint, save_selector
from anydepth.selectors.network import DEFAULTS, PAPER, SelectorKind
from anydepth.selectors.training import fine_tune, fit_selector, quiet_training, search_selector

log = logging.getLogger(__name__)

FEWEST = 5  # sentences in a part
ENOUGH = 5000
CALIBRATION_SENTENCES = 200
TIMED_SENTENCES = 200
CHOICES_TIMED = 100


@dataclass(frozen=True)
class SelectOptions:
    """How to train: `kinds` of selector, `trials` of the search for each, networks of `seeds` seeds."""

    kinds: Sequence[SelectorKind]
    seeds: int
    trials: int
    beam: int
    batch_size: int
    seed: int
    steps: int | None = None  # as in the configuration of the kind
    paper_size: bool = False  # networks by labels as large as the paper's


def check_model(translator: Translator) -> Path:
    """Before hours of work, not after. The model's folder is returned."""
    folder, reason = translator.folder, translator.loaded.why_no_selector()
    if reason is not None:
        raise UserError(reason)
    if folder is None or not os.access(folder, os.W_OK):
        raise UserError(f"a selector is saved inside the model folder, and {folder} cannot be written to: copy it")
    refuse_newer(folder, translator.fingerprint)
    return folder


@dataclass(frozen=True)
class SelectorRun:
    """A selector to be trained on `sample`, fine-tuned on `dev` if there is one, in `folder`."""

    translator: Translator
    sample: ParallelText
    dev: ParallelText | None
    folder: Path
    options: SelectOptions
    runner: Runner = local  # where sentences are translated at every depth

    def check(self) -> None:
        parts = split_rows(self.sample.sources, self.options.seed)
        if min(map(len, parts.values())) < FEWEST:
            raise UserError(
                f"{len(self.sample):,} sentences are too few to train, validate and test on: give thousands"
            )
        if len(self.sample) < ENOUGH:
            log.info(
                f"note: little can be learned or shown from {len(self.sample):,} sentences; give {ENOUGH:,} or more"
            )

    def run(self, label: str) -> Report:
        """All of it: train, save the best selector in the model folder, write the report."""
        key = start_or_resume(self.folder, self._key)
        calibration = find_or_measure(self.translator, self.sample, self.options)
        table = self._translate(self.sample, "table")
        dev = self._translate(self.dev, "dev") if self.dev else None
        parts = split_by_source(table, self.options.seed)
        dev = None if dev is None else _without_held_out(dev, parts)
        valid = MeasuredPart.measure(self.translator, parts["valid"], calibration)
        test = MeasuredPart.measure(self.translator, parts["test"], calibration, plan=valid)
        contenders = [
            Contender.measure(self._fit(kind, parts, dev, calibration), valid, test) for kind in self.options.kinds
        ]
        # The best is the furthest above the mixtures on the validation part, of which nothing is reported.
        best = max(contenders, key=lambda one: one.valid.mean_difference)
        saved = best.to_save(valid, test)
        self._save(saved)
        sources = test.tradeoff.table.sources
        texts = [sources[i] for i in spread(range(len(sources)), TIMED_SENTENCES)]
        shallowest = test.tradeoff.table.depths[0]
        timing = time_choices(self.translator, saved, texts, shallowest, beam=self.options.beam)
        sizes = {name: len(part) for name, part in parts.items()}
        result = self._result(label, sizes, contenders, best, saved, test, timing)
        report = tradeoff_report(result, key)
        log.info(f"report: {write_report(report, self.folder, RECORD)}")
        return report

    @property
    def _key(self) -> dict[str, Any]:
        """What the translations in the folder are made from. The networks there know for themselves."""
        made_by = {"model": self.translator.fingerprint, "beam": self.options.beam}
        samples = {"table": self.sample, "dev": self.dev}
        return {name: one and {"sentences": one.checksum, **made_by} for name, one in samples.items()}

    def _translate(self, sample: ParallelText, name: str) -> EveryDepth:
        folder = self.folder / name
        search = {"beam": self.options.beam, "batch_size": self.options.batch_size}
        table = translate_sample(self.translator, sample, folder, **search, run=self.runner)
        if "likelihood" not in self.options.kinds:
            return table
        return add_likelihood(self.translator, table, folder, self.runner)

    def _fit(
        self, kind: SelectorKind, parts: dict[str, EveryDepth], dev: EveryDepth | None, calibration: Calibration
    ) -> list[tuple[LearnedSelector, float]]:
        """A network for each seed, with its validation loss."""
        options, train, valid = self.options, parts["train"], parts["valid"]
        large = kind == "labels" and options.paper_size
        home = self.folder / (f"{kind}-paper-size" if large else kind)
        costs = relative_costs(calibration, train.depths, self.translator.menu)
        steps = {} if options.steps is None else {"steps": options.steps}
        base = (PAPER if large else DEFAULTS[kind]).model_copy(update={"seed": options.seed, **steps})
        log.info(f"{kind}: learning from {len(train):,} sentences")
        config, _ = search_selector(self.translator, train, valid, costs, base, home, options.trials)
        fitted = []
        with progress_bar(f"networks of other seeds ({kind})", options.seeds) as advance, quiet_training():
            for number in range(1, options.seeds + 1):
                seeded = config.model_copy(update={"seed": options.seed + number})
                one = fit_selector(self.translator, train, costs, seeded, home / f"seed-{number}", valid)
                if dev is not None:
                    one = fine_tune(self.translator, one[0], dev, home / f"tuned-{number}", valid)
                fitted.append(one)
                advance(1)
        return fitted

    def _save(self, selector: LearnedSelector) -> None:
        folder = self.translator.folder
        assert folder is not None  # see check_model
        save_selector(folder, selector)
        log.info(f"saved in {folder}: a selector by {selector.kind}, threshold {selector.threshold:g}")

    def _result(
        self,
        label: str,
        sizes: dict[str, int],
        contenders: Sequence["Contender"],
        best: "Contender",
        saved: LearnedSelector,
        test: "MeasuredPart",
        timing: ChoiceTiming,
    ) -> TradeoffResult:
        translator, sample, tradeoff = self.translator, self.sample, test.tradeoff
        depths = [translator.menu[name].subnetwork for name in tradeoff.table.depths]
        quality = score(sample.references[:1], sample.references[:1])
        return TradeoffResult(
            label=label,
            conditions=Conditions.here({label: [translator]}, len(sample), _run_options(sample, self.options)),
            sizes=sizes,
            fixed=fixed_depths(tradeoff, [(len(sub.encoder), len(sub.decoder)) for sub in depths]),
            deepest=translator.menu.deepest.name,
            mixture=tuple(tradeoff.mixture_line()),
            oracle=tradeoff.oracle(),
            curves=tuple(one.test for one in contenders),
            saved_kind=saved.kind,
            threshold=saved.threshold,
            chosen=next(one for one in best.test_outcomes if one.threshold == saved.threshold),
            timing=timing,
            signatures={"BLEU": quality.bleu_signature, "chrF": quality.chrf_signature},
            fine_tuned_on=self.dev.name if self.dev else "",
        )


def start_or_resume(folder: Path, key: dict[str, Any]) -> dict[str, Any]:
    """Keep the translations in `folder` that were made from the same; delete others, and say so.

    `key` says for each of its sub-folders what that is made from, or None if it is not needed now. The key of what is
    kept is returned.
    """
    there: dict[str, Any] = {}
    if (folder / RECORD).is_file():
        record = read_json(folder / RECORD, "delete the folder, or choose another output folder")
        if record.get("format", 0) > FORMAT:
            raise UserError(f"{folder} was written by a newer anydepth: upgrade it, or choose another output folder")
        there = record.get("key") or {}
    for name, made_from in key.items():
        paths = [path for path in (folder / name, pieces_folder(folder / name)) if path.exists()]
        if paths and made_from is not None and there.get(name) != made_from:
            log.info(f"{paths[0]} holds translations of other sentences or of another model: translating anew")
            for path in paths:
                shutil.rmtree(path)
    kept = {name: there.get(name) if made_from is None else made_from for name, made_from in key.items()}
    write_record(folder, kept)
    return kept


def find_or_measure(translator: Translator, sample: ParallelText, options: SelectOptions) -> Calibration:
    """What each depth costs on this machine; measured now if it has not been."""
    threads, beam = translator.engine.threads, options.beam
    found = find_for(translator, beam)
    if found is not None and set(found.depths) >= set(translator.menu.names):
        return found
    log.info(f"no depth has been timed on this machine with {threads} threads and beam {beam}: calibrating first")
    chosen = spread(range(len(sample)), CALIBRATION_SENTENCES)
    calibration = calibrate(
        translator,
        [sample.sources[i] for i in chosen],
        [sample.references[i] for i in chosen],
        _run_options(sample, options),
    )
    log.info(f"stored in {save(calibration, translator.folder, translator.fingerprint)}")
    return calibration


def _run_options(sample: ParallelText, options: SelectOptions) -> RunOptions:
    named = RunOptions(source_name=sample.name, reference_name=sample.reference_name)
    return replace(named, beam=options.beam, batch_size=options.batch_size)


def _without_held_out(dev: EveryDepth, parts: dict[str, EveryDepth]) -> EveryDepth:
    """Without the sentences that the selector is validated and tested on: it must not be tuned to those."""
    held_out = {*parts["valid"].sources, *parts["test"].sources}
    kept = [row for row, source in enumerate(dev.sources) if source not in held_out]
    if len(kept) < len(dev):
        log.info(f"{len(dev) - len(kept):,} sentences to fine-tune on are among those to test on: left out")
    if not kept:
        raise UserError("all sentences to fine-tune on are among those to test on: give others with dev_source=…")
    return take_rows(dev, kept)


def relative_costs(calibration: Calibration, depths: Sequence[str], menu: DepthMenu) -> tuple[LengthCost, ...]:
    """What each depth costs, the deepest taking 1 for a sentence of the calibration's mean length."""
    unit = calibration.depths[menu.deepest.name].single.at(calibration.mean_length)
    costs = (calibration.depths[name].single for name in depths)
    return tuple(LengthCost(cost.base / unit, cost.per_token / unit) for cost in costs)


@dataclass(frozen=True)
class MeasuredPart:
    """Held-out sentences: their token ids, and what each depth gives and costs."""

    sources: list[list[int]]
    tradeoff: Tradeoff

    @classmethod
    def measure(
        cls, translator: Translator, table: EveryDepth, calibration: Calibration, plan: "MeasuredPart | None" = None
    ) -> "MeasuredPart":
        sources = token_ids(translator, table.sources)
        costs_k = [calibration.depths[name].single for name in table.depths]
        seconds_nk = seconds_at(costs_k, [len(source) for source in sources])
        return cls(sources, Tradeoff(table, seconds_nk, plan.tradeoff if plan else None))

    @property
    def lengths(self) -> list[int]:
        return [len(source) for source in self.sources]

    def outcomes(self, selector: LearnedSelector, thresholds: Sequence[float], overhead: float) -> list[ChoiceOutcome]:
        scores_nk = selector.scores(self.sources)
        chosen = {threshold: selector.pick(scores_nk, self.lengths, threshold) for threshold in thresholds}
        return [
            self.tradeoff.outcome(chosen_n, threshold, overhead, with_error=True)
            for threshold, chosen_n in chosen.items()
        ]

    def thresholds(self, selector: LearnedSelector) -> list[float]:
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

    networks: tuple[LearnedSelector, ...]
    valid: SelectorCurve
    test: SelectorCurve
    valid_outcomes: tuple[ChoiceOutcome, ...]  # of the first network
    test_outcomes: tuple[ChoiceOutcome, ...]

    @classmethod
    def measure(
        cls, fitted: Sequence[tuple[LearnedSelector, float]], valid: MeasuredPart, test: MeasuredPart
    ) -> "Contender":
        """From the networks with their validation losses."""
        networks = [network for network, _ in sorted(fitted, key=lambda one: one[1])]
        kind = networks[0].kind
        if kind != "labels":
            with progress_bar(f"tuning ({kind})", len(networks)) as advance:
                for number, network in enumerate(networks):
                    networks[number] = tune_selector(network, valid.sources, valid.tradeoff)
                    advance(1)
        overhead = seconds_to_choose(networks[0], test.sources[:CHOICES_TIMED])
        thresholds = valid.thresholds(networks[0])
        on_valid, on_test = (
            [part.outcomes(network, thresholds, overhead) for network in networks] for part in (valid, test)
        )
        return cls(
            tuple(networks),
            SelectorCurve.from_seeds(kind, on_valid, overhead),
            SelectorCurve.from_seeds(kind, on_test, overhead),
            tuple(on_valid[0]),
            tuple(on_test[0]),
        )

    def to_save(self, valid: MeasuredPart, test: MeasuredPart) -> LearnedSelector:
        """The best network, with its threshold and the trade-off as measured on the test part."""
        deepest = self.networks[0].deepest
        threshold = default_threshold(self.networks[0].kind, self.valid_outcomes, float(valid.tradeoff.bleu_k[deepest]))
        whole = float(test.tradeoff.seconds_k[deepest])
        points = [TradeoffPoint(one.threshold, one.seconds / whole, one.bleu, one.chrf) for one in self.test_outcomes]
        return self.networks[0].with_threshold(threshold).with_points(points)

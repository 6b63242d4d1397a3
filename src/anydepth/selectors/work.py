"""The work behind `anydepth select`, each step of which is kept, so that the same command again goes on with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.every_depth import EveryDepth, split_by_source, split_rows, take_rows
from anydepth.evaluate.render import to_terminal, write_report
from anydepth.evaluate.tradeoff_report import RECORD, tradeoff_report
from anydepth.infer.runner import Runner, here
from anydepth.infer.translator import Translator
from anydepth.selectors.calibration import Calibration
from anydepth.selectors.config import DEFAULTS, Kind
from anydepth.selectors.curves import Contender, Part, best_of, gather, relative_costs, timed
from anydepth.selectors.fitting import fine_tune, fit_selector, search_selector
from anydepth.selectors.inputs import Sample, calibration_here, start_or_resume, translations, with_likelihood
from anydepth.selectors.learnt import LearntSelector
from anydepth.selectors.selector_folder import save_selector

FEWEST = 5  # sentences in a part
ENOUGH = 5000


@dataclass(frozen=True)
class Work:
    """What the user asked for."""

    translator: Translator
    sample: Sample
    dev: Sample | None
    folder: Path
    kinds: list[Kind]
    seeds: int
    trials: int
    beam: int
    batch_size: int
    seed: int
    steps: int | None
    console: Console
    run: Runner = here  # where sentences are translated at every depth

    @property
    def key(self) -> dict[str, Any]:
        """What the translations in the folder are made from. The networks there know for themselves."""
        made_by = {"model": self.translator.fingerprint, "beam": self.beam}
        samples = {"table": self.sample, "dev": self.dev}
        return {name: one and {"sentences": one.checksum, **made_by} for name, one in samples.items()}

    def check(self) -> None:
        parts = split_rows(self.sample.sources, self.seed)
        if min(map(len, parts.values())) < FEWEST:
            raise UserError(
                f"{len(self.sample):,} sentences are too few to train, validate and test on: give thousands"
            )
        if len(self.sample) < ENOUGH:
            self.console.print(
                f"note: of {len(self.sample):,} sentences little can be learnt or proved; give {ENOUGH:,} or more"
            )

    def carry_out(self, label: str, results: Console) -> None:
        """All of it, up to the report. What a user asked to see goes to `results`."""
        key = start_or_resume(self.folder, self.key, self.console)
        calibration = calibration_here(
            self.translator, self.sample, self.console, beam=self.beam, batch_size=self.batch_size
        )
        table = self._translations(self.sample, "table")
        dev = self._translations(self.dev, "dev") if self.dev else None
        parts = split_by_source(table, self.seed)
        dev = None if dev is None else _unseen(dev, parts, self.console)
        valid = Part.of(self.translator, parts["valid"], calibration)
        test = Part.of(self.translator, parts["test"], calibration, plan=valid)
        contenders = [
            Contender.measure(self._fitted(kind, parts, dev, calibration), valid, test, self.console)
            for kind in self.kinds
        ]
        saved = best_of(contenders).to_save(valid, test)
        self._save(saved)
        result = gather(
            self.translator,
            self.sample,
            {name: len(part) for name, part in parts.items()},
            contenders,
            saved,
            test,
            timed(self.translator, saved, test, self.beam, self.console),
            label=label,
            beam=self.beam,
            batch_size=self.batch_size,
            fine_tuned_on=self.dev.name if self.dev else "",
        )
        report = tradeoff_report(result, key)
        page = write_report(report, self.folder, RECORD)
        to_terminal(report, results)
        self.console.print(f"report: {page}")

    def _translations(self, sample: Sample, name: str) -> EveryDepth:
        folder = self.folder / name
        search = {"beam": self.beam, "batch_size": self.batch_size}
        table = translations(self.translator, sample, folder, self.console, **search, run=self.run)
        if "likelihood" not in self.kinds:
            return table
        return with_likelihood(self.translator, table, folder, self.console, self.run)

    def _fitted(
        self, kind: Kind, parts: dict[str, EveryDepth], dev: EveryDepth | None, calibration: Calibration
    ) -> list[tuple[LearntSelector, float]]:
        """A network for each seed, with its validation loss."""
        costs = relative_costs(calibration, parts["train"].depths, self.translator.menu)
        train, valid, home = parts["train"], parts["valid"], self.folder / kind
        base = DEFAULTS[kind] if self.steps is None else DEFAULTS[kind].model_copy(update={"steps": self.steps})
        self.console.print(f"{kind}: learning from {len(train):,} sentences")
        config, _ = search_selector(
            self.translator, train, valid, costs, kind, home, self.console, self.seed, self.trials, base
        )
        fitted, quiet = [], Console(quiet=True)
        with bar(self.console, f"networks of other seeds ({kind})", self.seeds) as advance:
            for number in range(1, self.seeds + 1):
                of_seed = config.model_copy(update={"seed": self.seed + number})
                run = home / f"seed-{number}"
                one = fit_selector(self.translator, train, costs, of_seed, run, valid, quiet)
                if dev is not None:
                    one = fine_tune(self.translator, one[0], dev, home / f"tuned-{number}", valid, quiet)
                fitted.append(one)
                advance(1)
        return fitted

    def _save(self, selector: LearntSelector) -> None:
        folder = self.translator.folder
        assert folder is not None  # checked before all the work
        save_selector(folder, selector)
        self.console.print(f"saved in {folder}: a selector by {selector.kind}, threshold {selector.threshold:g}")


def _unseen(dev: EveryDepth, parts: dict[str, EveryDepth], console: Console) -> EveryDepth:
    """Without the sentences that the selector is validated and tested on: it must not be tuned to those."""
    held_out = {*parts["valid"].sources, *parts["test"].sources}
    kept = [row for row, source in enumerate(dev.sources) if source not in held_out]
    if len(kept) < len(dev):
        console.print(f"{len(dev) - len(kept):,} sentences to fine-tune on are among those to test on: left out")
    if not kept:
        raise UserError("all sentences to fine-tune on are among those to test on: give others with --dev-source")
    return take_rows(dev, kept)

"""Translate a test set at every depth of one or more models, and measure how well and how fast.

`sweep` gives a result, `remember` writes it into the model folder; sweep_report.py shows it.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from anydepth.artifact import model as artifact
from anydepth.depth import DepthMenu
from anydepth.evaluate.depth_comparison import Comparison, compare
from anydepth.evaluate.experiment import (
    Conditions,
    Job,
    OtherLoad,
    RunOptions,
    check_paired,
    check_repeats,
    make_families,
    make_jobs,
)
from anydepth.evaluate.measurement import Measurement, ModelSweep
from anydepth.evaluate.metrics import score
from anydepth.infer.translator import Hypothesis, Translator
from anydepth.progress import progress_bar

FORMAT = 1
WARM_UP_SENTENCES = 8
DOUBTFUL_SPREAD = 0.2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepResult:
    models: tuple[ModelSweep, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]
    conditions: Conditions
    comparison: Comparison | None = None

    @property
    def labels(self) -> list[str]:
        return [model.label for model in self.models]

    @property
    def signatures(self) -> dict[str, str]:
        quality = self.models[0].measurements[0].quality
        return {"BLEU": quality.bleu_signature, "chrF": quality.chrf_signature}

    @property
    def reference_repetition_rate(self) -> float:
        return self.models[0].measurements[0].quality.reference_repetition_rate

    @property
    def doubt(self) -> str | None:
        """Why the times cannot be believed, in a sentence; None if they can."""
        everything = [one for model in self.models for one in model.measurements]
        unsteady = [one for one in everything if one.spread > DOUBTFUL_SPREAD]
        reasons = []
        if self.conditions.is_machine_busy:
            reasons.append(f"other programs kept {self.conditions.other_load:.1f} cores busy")
        if unsteady:
            most = max(one.spread for one in unsteady)
            reasons.append(f"passes over {len(unsteady)} of {len(everything)} depths differ by up to {most:.0%}")
        return f"Do not trust these times: {' and '.join(reasons)}." if reasons else None

    def model(self, label: str) -> ModelSweep:
        return next(model for model in self.models if model.label == label)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "conditions": asdict(self.conditions),
            "doubt": self.doubt,
            "signatures": self.signatures,
            "models": [model.to_json() for model in self.models],
            "comparison": self.comparison.to_json() if self.comparison else None,
        }


def sweep(
    translators: Mapping[str, Translator | Sequence[Translator]],
    sources: Sequence[str],
    references: Sequence[str],
    options: RunOptions | None = None,
    *,
    depths: Sequence[str] | None = None,
    force: str | None = None,
    repeats: int = 3,
    samples: int = 1000,
) -> SweepResult:
    """Measure every depth of every model, or `depths` alone; with several models, each where it has them.

    Each translator runs on its own engine, whose outputs are scored and whose time is taken. Several translators under
    one label are a family, such as a model trained for each depth: their depths together count as one model's. `force`
    names a strategy of depth/assignment.py whose depths replace those of the menus. Time is the median of `repeats`
    passes. A pass goes round all depths before the next one starts, so that a slow minute of the machine spreads over
    all of them. `samples` are those of the paired bootstrap between models.
    """
    options = options or RunOptions()
    families = make_families(translators, force)
    check_paired(sources, references)
    check_repeats(repeats)
    jobs = make_jobs(families, depths)
    members = [member for members in families.values() for member in members]
    named = (options.source_name, options.reference_name)
    conditions = Conditions.here(members, sources, *named, **options.search, repeats=repeats, forced=force)
    conditions = replace(conditions, other_load=_run(jobs, sources, options, repeats))
    models = tuple(
        ModelSweep(label, tuple(_measurement(job, references) for job in jobs if job.label == label))
        for label in families
    )
    comparison = compare(models, references, samples=samples) if len(models) > 1 else None
    return SweepResult(models, tuple(sources), tuple(references), conditions, comparison)


def remember(translator: Translator, result: SweepResult, label: str | None = None) -> bool:
    """Record the measurements of the model called `label` (by default the only one) in its folder; say if it was done.

    Depth selection and the model card read them there. Of a family each member gets those of its own depths. What a
    model did at depths that it was forced to is not recorded: nobody should pick one of them. A sweep of some depths
    joins the others' measurements only if those were made in the same way: costs from two machines in one menu would
    mislead whoever picks a depth by them.
    """
    if translator.folder is None or result.conditions.forced:
        return False
    model = result.models[0] if label is None else result.model(label)
    own = [one for one in model.measurements if one.depth in translator.menu.names]
    measured_on = _measured_on(result, translator)
    if not own:
        return False
    if not _comparable(translator.menu, own, measured_on):
        log.warning(
            f"warning: {translator.folder.name} keeps its earlier measurements, made under other conditions: "
            "sweep all its depths to replace them"
        )
        return False
    for one in own:
        translator.menu.measured(one.depth, _cost(one), _quality(one))
    translator.menu.measured_on = measured_on
    try:
        artifact.record_measurements(translator.folder, translator.menu)
    except OSError as error:
        log.warning(f"warning: the measurements are not recorded in {translator.folder}: {error.strerror}")
        return False
    return True


def _run(jobs: list[Job], sources: Sequence[str], options: RunOptions, repeats: int) -> float | None:
    """Fill the jobs; say how many cores others kept busy meanwhile."""
    for job in jobs:
        _hypotheses(job, sources[:WARM_UP_SENTENCES], options)
    load = OtherLoad()
    with progress_bar(f"sweep of {len(jobs)} depths", repeats * len(jobs) * len(sources)) as advance:
        for _ in range(repeats):
            for job in jobs:
                _run_pass(job, sources, options, advance)
    return load.cores()


def _run_pass(job: Job, sources: Sequence[str], options: RunOptions, on_ready: Callable[[int], None]) -> None:
    start = time.perf_counter()
    hypotheses = _hypotheses(job, sources, options, on_ready)
    job.seconds.append(time.perf_counter() - start)
    if not job.outputs:
        job.outputs = tuple(one.text for one in hypotheses)
        job.output_tokens = sum(len(one.tokens) for one in hypotheses)


def _hypotheses(
    job: Job, sources: Sequence[str], options: RunOptions, on_ready: Callable[[int], None] | None = None
) -> list[Hypothesis]:
    lists = job.translator.hypotheses(sources, depth=job.entry.name, progress=on_ready, **options.search)
    return [best for best, *_ in lists]


def _measurement(job: Job, references: Sequence[str]) -> Measurement:
    return Measurement(
        depth=job.entry.name,
        encoder_layers=job.layers[0],
        decoder_layers=job.layers[1],
        quality=score(job.outputs, references),
        seconds=median(job.seconds),
        seconds_of_passes=tuple(job.seconds),
        output_tokens=job.output_tokens,
        parameters=job.translator.parameters(job.entry.name),
        bytes=job.translator.bytes(job.entry.name),
        outputs=job.outputs,
    )


def _measured_on(result: SweepResult, translator: Translator) -> dict[str, Any]:
    conditions, engine = result.conditions, translator.engine.name
    return {
        "device": conditions.device,
        "threads": conditions.threads,
        **({} if engine == "torch" else {"engine": engine}),
        "machine": conditions.machine,
        "batch_size": conditions.batch_size,
        "beam": conditions.beam,
        "length_penalty": conditions.length_penalty,
        "cut_long": conditions.cut_long,
        "bleu_signature": result.signatures["BLEU"],
        "chrf_signature": result.signatures["chrF"],
        "test_set": conditions.source_file,
        "reference": conditions.reference_file,
        "lines": conditions.lines,
        "date": conditions.date,
    }


def _comparable(menu: DepthMenu, measurements: Sequence[Measurement], measured_on: dict[str, Any]) -> bool:
    swept = {one.depth for one in measurements}
    others_measured = any(entry.cost for entry in menu if entry.name not in swept)
    return not others_measured or _without_date(menu.measured_on) == _without_date(measured_on)


def _without_date(measured_on: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in measured_on.items() if key != "date"}


def _cost(one: Measurement) -> dict[str, float]:
    return {
        "seconds_per_sentence": one.seconds_per_sentence,
        "sentences_per_second": one.sentences_per_second,
        "tokens_per_second": one.tokens_per_second,
        "parameters": one.parameters,
        "bytes": one.bytes,
    }


def _quality(one: Measurement) -> dict[str, float]:
    return {
        "bleu": one.quality.bleu,
        "chrf": one.quality.chrf,
        "length_ratio": one.quality.length_ratio,
        "repetition_rate": one.quality.repetition_rate,
    }

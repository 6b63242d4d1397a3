"""Translate a test set at every depth of one or more models, and measure how well and how fast."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anydepth.depth import MenuEntry
from anydepth.errors import UserError
from anydepth.evaluate.compare import compare
from anydepth.evaluate.measurement import Measurement, ModelSweep
from anydepth.evaluate.metrics import score
from anydepth.evaluate.result import Conditions, SweepResult, now, versions
from anydepth.infer.translator import Hypothesis, Translator

WARM_UP_SENTENCES = 8


@dataclass
class _Job:
    """One depth of one model, and what its passes over the test set have given so far."""

    label: str
    translator: Translator
    entry: MenuEntry
    seconds: list[float] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    output_tokens: int = 0


def sweep(
    translators: Mapping[str, Translator],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    depths: Sequence[str] | None = None,
    beam: int = 1,
    length_penalty: float = 0.6,
    batch_size: int = 32,
    cut_long: bool = False,
    repeats: int = 3,
    samples: int = 1000,
    source_name: str = "",
    reference_name: str = "",
    console: Console | None = None,
) -> SweepResult:
    """Measure every depth of every model, or `depths` alone; with several models, each where it has them.

    Time is the median of `repeats` passes. A pass goes round all depths before the next one starts, so that a
    slow minute of the machine spreads over all of them. `samples` are those of the paired bootstrap between
    models; `source_name` and `reference_name` appear in the report. The bar goes to `console`, by default stderr.
    """
    _check(translators, sources, references, repeats)
    conditions = Conditions(
        source_file=Path(source_name).name,
        reference_file=Path(reference_name).name,
        lines=len(sources),
        beam=beam,
        length_penalty=length_penalty,
        batch_size=batch_size,
        cut_long=cut_long,
        repeats=repeats,
        device=_devices(translators),
        threads=torch.get_num_threads(),
        machine=platform.machine(),
        date=now(),
        versions=versions(),
    )
    jobs = _jobs(translators, depths)
    _run(jobs, sources, conditions, console or Console(stderr=True))
    models = tuple(
        ModelSweep(label, tuple(_measurement(job, references) for job in jobs if job.label == label))
        for label in translators
    )
    comparison = compare(models, references, samples=samples) if len(models) > 1 else None
    return SweepResult(models, tuple(sources), tuple(references), conditions, comparison)


def _check(
    translators: Mapping[str, Translator], sources: Sequence[str], references: Sequence[str], repeats: int
) -> None:
    if not translators:
        raise UserError("give at least one model to evaluate")
    if len(sources) != len(references):
        raise UserError(
            f"the source has {len(sources)} lines but the reference has {len(references)}: "
            "give two files that correspond line by line"
        )
    if not sources:
        raise UserError("there are no lines to translate: give a source and a reference file with text")
    if repeats < 1:
        raise UserError(f"{repeats} passes measure nothing: give 1 or more")


def _devices(translators: Mapping[str, Translator]) -> str:
    devices = (str(next(translator.model.parameters()).device) for translator in translators.values())
    return ", ".join(dict.fromkeys(devices))


def _jobs(translators: Mapping[str, Translator], depths: Sequence[str] | None) -> list[_Job]:
    wanted = None if depths is None else list(dict.fromkeys(depths))
    menus = {label: translator.menu for label, translator in translators.items()}
    known = {name for menu in menus.values() for name in menu.names}
    jobs = []
    for label, menu in menus.items():
        names = menu.names if wanted is None else [name for name in wanted if name in menu.names]
        unknown = [name for name in wanted or [] if name not in known]
        # The menu itself refuses what no model has, and the first wish if this model has none of them.
        refused = unknown or (wanted if wanted and not names else [])
        jobs += [_Job(label, translators[label], menu[name]) for name in [*refused, *names]]
    if not jobs:
        raise UserError("there are no depths to measure: name at least one, or none to measure them all")
    return jobs


def _run(jobs: list[_Job], sources: Sequence[str], conditions: Conditions, console: Console) -> None:
    current = TextColumn("{task.description}", markup=False)
    columns = (current, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # A lazy refresh: the bar must not take time from what it watches.
    with Progress(*columns, console=console, refresh_per_second=2, disable=not console.is_terminal) as progress:
        bar = progress.add_task("warming up", total=len(jobs) * conditions.repeats * len(sources))
        for job in jobs:
            _hypotheses(job, sources[:WARM_UP_SENTENCES], conditions)
        for repeat in range(conditions.repeats):
            for job in jobs:
                description = f"{job.label} {job.entry.name}, pass {repeat + 1} of {conditions.repeats}"
                progress.update(bar, description=description)
                _run_pass(job, sources, conditions, lambda count: progress.advance(bar, count))


def _run_pass(job: _Job, sources: Sequence[str], conditions: Conditions, on_ready: Callable[[int], None]) -> None:
    start = time.perf_counter()
    hypotheses = _hypotheses(job, sources, conditions, on_ready)
    job.seconds.append(time.perf_counter() - start)
    if not job.outputs:
        job.outputs = tuple(one.text for one in hypotheses)
        job.output_tokens = sum(len(one.tokens) for one in hypotheses)


def _hypotheses(
    job: _Job, sources: Sequence[str], conditions: Conditions, on_ready: Callable[[int], None] | None = None
) -> list[Hypothesis]:
    lists = job.translator.hypotheses(
        sources,
        depth=job.entry.name,
        beam=conditions.beam,
        length_penalty=conditions.length_penalty,
        batch_size=conditions.batch_size,
        cut_long=conditions.cut_long,
        progress=on_ready,
    )
    return [best for best, *_ in lists]


def _measurement(job: _Job, references: Sequence[str]) -> Measurement:
    return Measurement(
        depth=job.entry.name,
        encoder_layers=len(job.entry.subnetwork.encoder),
        decoder_layers=len(job.entry.subnetwork.decoder),
        quality=score(job.outputs, references),
        seconds=median(job.seconds),
        seconds_of_passes=tuple(job.seconds),
        output_tokens=job.output_tokens,
        parameters=job.translator.parameters(job.entry.name),
        bytes=job.translator.bytes(job.entry.name),
        outputs=job.outputs,
    )

"""Translate a test set at every depth of one or more models, and measure how well and how fast."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anydepth.errors import UserError
from anydepth.evaluate.jobs import Job, families_of, jobs_of
from anydepth.evaluate.measurement import Measurement, ModelSweep
from anydepth.evaluate.metrics import score
from anydepth.evaluate.paired import check_paired
from anydepth.evaluate.result import Conditions, SweepResult
from anydepth.evaluate.shared_depths import compare
from anydepth.infer.translator import Hypothesis, Translator

WARM_UP_SENTENCES = 8


def sweep(
    translators: Mapping[str, Translator | Sequence[Translator]],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    depths: Sequence[str] | None = None,
    force: str | None = None,
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

    Several translators under one label are a family, such as a model trained for each depth: their depths together
    count as one model's. `force` names a strategy of depth/assignment.py whose depths replace those of the menus.
    Time is the median of `repeats` passes. A pass goes round all depths before the next one starts, so that a
    slow minute of the machine spreads over all of them. `samples` are those of the paired bootstrap between
    models; `source_name` and `reference_name` appear in the report. The bar goes to `console`, by default stderr;
    where that is no terminal, a line for each pass.
    """
    families = families_of(translators, force)
    _check(sources, references, repeats)
    jobs = jobs_of(families, depths)
    conditions = Conditions.here(
        (member for members in families.values() for member in members),
        sources,
        source_name,
        reference_name,
        beam=beam,
        length_penalty=length_penalty,
        batch_size=batch_size,
        cut_long=cut_long,
        repeats=repeats,
        forced=force,
    )
    _run(jobs, sources, conditions, console or Console(stderr=True))
    models = tuple(
        ModelSweep(label, tuple(_measurement(job, references) for job in jobs if job.label == label))
        for label in families
    )
    comparison = compare(models, references, samples=samples) if len(models) > 1 else None
    return SweepResult(models, tuple(sources), tuple(references), conditions, comparison)


def _check(sources: Sequence[str], references: Sequence[str], repeats: int) -> None:
    check_paired(sources, references)
    if repeats < 1:
        raise UserError(f"{repeats} passes measure nothing: give 1 or more")


def _run(jobs: list[Job], sources: Sequence[str], conditions: Conditions, console: Console) -> None:
    current = TextColumn("{task.description}", markup=False)
    columns = (current, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    passes = [(repeat, job) for repeat in range(1, conditions.repeats + 1) for job in jobs]
    # A lazy refresh: the bar must not take time from what it watches.
    with Progress(*columns, console=console, refresh_per_second=2, disable=not console.is_terminal) as progress:
        bar = progress.add_task("warming up", total=len(passes) * len(sources))
        for job in jobs:
            _hypotheses(job, sources[:WARM_UP_SENTENCES], conditions)
        for done, (repeat, job) in enumerate(passes, 1):
            name = f"{job.label} {job.entry.name}"
            progress.update(bar, description=f"{name}, pass {repeat} of {conditions.repeats}")
            _run_pass(job, sources, conditions, lambda count: progress.advance(bar, count))
            if not console.is_terminal:
                line = f"sweep: {name}, {done} of {len(passes)} done"
                console.print(line, markup=False, highlight=False, soft_wrap=True)


def _run_pass(job: Job, sources: Sequence[str], conditions: Conditions, on_ready: Callable[[int], None]) -> None:
    start = time.perf_counter()
    hypotheses = _hypotheses(job, sources, conditions, on_ready)
    job.seconds.append(time.perf_counter() - start)
    if not job.outputs:
        job.outputs = tuple(one.text for one in hypotheses)
        job.output_tokens = sum(len(one.tokens) for one in hypotheses)


def _hypotheses(
    job: Job, sources: Sequence[str], conditions: Conditions, on_ready: Callable[[int], None] | None = None
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

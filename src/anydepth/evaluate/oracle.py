"""Which depth would have been best, sentence by sentence (Dabre, Rubino and Fujita 2020, Section 4.1)."""

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.every_depth import EveryDepth, fastest_first, translate_every_depth
from anydepth.evaluate.experiment import Conditions, Job, make_families
from anydepth.evaluate.metrics import score
from anydepth.evaluate.oracle_result import ModelOracle, OracleResult, Timing
from anydepth.infer.translator import Translator

WARM_UP_SENTENCES = 8

Share = tuple[Translator, list[str], list[str]]  # a member of the family, its texts, their depths


def oracle(
    translators: Mapping[str, Translator | Sequence[Translator]],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    beam: int = 1,
    length_penalty: float = 0.6,
    batch_size: int = 32,
    cut_long: bool = False,
    repeats: int = 1,
    source_name: str = "",
    reference_name: str = "",
    console: Console | None = None,
) -> OracleResult:
    """Translate the test set at every depth, and once more with each sentence at its best depth, against the clock.

    Several translators under one label are a family, such as a model trained for each depth. Time is the median of
    `repeats` passes with each sentence at its best depth, and of as many at the deepest, in turn.
    """
    families = make_families(translators)
    if repeats < 1:
        raise UserError(f"{repeats} passes measure nothing: give 1 or more")
    console = console or Console(stderr=True)
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
    )
    models = [_model(label, members, sources, references, conditions, console) for label, members in families.items()]
    quality = score(references[:1], references[:1])
    return OracleResult(models, conditions, {"BLEU": quality.bleu_signature, "chrF": quality.chrf_signature})


def _model(
    label: str,
    members: Sequence[Translator],
    sources: Sequence[str],
    references: Sequence[str],
    conditions: Conditions,
    console: Console,
) -> ModelOracle:
    jobs = fastest_first(members, label)
    table = translate_every_depth(
        members,
        sources,
        references,
        beam=conditions.beam,
        length_penalty=conditions.length_penalty,
        batch_size=conditions.batch_size,
        cut_long=conditions.cut_long,
        console=console,
        label=label,
    )
    layers = tuple(job.layers for job in jobs)
    deepest = table.depths.index(DepthMenu(entry for member in members for entry in member.menu).deepest.name)
    return ModelOracle(label, table, layers, deepest, _timing(label, table, jobs, deepest, conditions, console))


def _timing(
    label: str, table: EveryDepth, jobs: Sequence[Job], deepest: int, conditions: Conditions, console: Console
) -> Timing:
    """In turn, so that a slow minute of the machine falls on both."""
    best = table.best()
    ways = [_shares(jobs, table.sources, np.full_like(best, deepest))]
    if len(jobs) > 1:
        ways.append(_shares(jobs, table.sources, best))
    seconds: list[list[float]] = [[] for _ in ways]
    for shares in ways:
        few = slice(WARM_UP_SENTENCES)
        _seconds([(member, texts[few], depths[few]) for member, texts, depths in shares], conditions)
    with bar(console, f"{label}: timed passes", len(ways) * conditions.repeats) as advance:
        for _ in range(conditions.repeats):
            for passes, shares in zip(seconds, ways, strict=True):
                passes.append(_seconds(shares, conditions))
                advance(1)
    return Timing(oracle=tuple(seconds[-1]), deepest=tuple(seconds[0]))


def _shares(jobs: Sequence[Job], sources: Sequence[str], chosen: NDArray[np.intp]) -> list[Share]:
    """What each member of the family has to translate."""
    shares: dict[int, Share] = {}
    for text, place in zip(sources, chosen.tolist(), strict=True):
        job = jobs[place]
        _, texts, depths = shares.setdefault(id(job.translator), (job.translator, [], []))
        texts.append(text)
        depths.append(job.entry.name)
    return list(shares.values())


def _seconds(shares: Sequence[Share], conditions: Conditions) -> float:
    start = time.perf_counter()
    for translator, texts, depths in shares:
        translator.hypotheses(
            texts,
            depth=depths,
            beam=conditions.beam,
            length_penalty=conditions.length_penalty,
            batch_size=conditions.batch_size,
            cut_long=conditions.cut_long,
            scores=False,
        )
    return time.perf_counter() - start

"""Translate a test set at every depth of a model, and score each translation of each sentence."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.depth_table import STATISTICS, EveryDepth, Floats, Ints
from anydepth.evaluate.experiment import Job, check_paired, make_jobs
from anydepth.evaluate.metrics import sentence_bleu_statistics, sentence_chrf
from anydepth.infer.hypothesis import TooLongError
from anydepth.infer.translator import Translator

__all__ = ["EveryDepth", "every_depth_of", "fastest_first", "translate_every_depth"]

CHUNK = 1024  # sentences translated and scored together; memory does not grow with the corpus


def fastest_first(members: Sequence[Translator], label: str = "") -> list[Job]:
    """The depths of a model, or of all the members of a family, in the order of Eq. 1."""
    jobs = make_jobs({label or "the family": tuple(members)}, None)
    return sorted(jobs, key=lambda job: job.layers[::-1])


def translate_every_depth(
    members: Sequence[Translator],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    beam: int = 1,
    length_penalty: float = 0.6,
    batch_size: int = 32,
    cut_long: bool = False,
    console: Console | None = None,
    label: str = "",
) -> EveryDepth:
    """Translate every sentence at every depth and score it. Several members are a family; its depths are joined."""
    _check(members, sources, references)
    depths = len(fastest_first(members, label))
    options = {"beam": beam, "length_penalty": length_penalty, "batch_size": batch_size, "cut_long": cut_long}
    with bar(console or Console(stderr=True), what_is_done(depths, label), len(sources) * depths) as advance:
        return every_depth_of(members, sources, references, options, advance, label)


def what_is_done(depths: int, label: str) -> str:
    """As a bar says it."""
    return f"{label + ': ' if label else ''}translations at {depths} depth{'s' if depths > 1 else ''}"


def every_depth_of(
    members: Sequence[Translator],
    sources: Sequence[str],
    references: Sequence[str],
    options: dict[str, Any],
    advance: Callable[[int], None],
    label: str = "",
) -> EveryDepth:
    """The same; `advance` is called with the number of translations that have become ready."""
    jobs = fastest_first(members, label)
    outputs: list[list[str]] = [[] for _ in jobs]
    chrf_nk = np.zeros((len(sources), len(jobs)), np.float32)
    bleu_nks = np.zeros((len(sources), len(jobs), STATISTICS), np.int32)
    for rows in _chunks(len(sources)):
        found: dict[str, list[str]] = {}
        for member in members:
            found |= _translate(member, sources, rows, options, advance)
        columns = [found[job.entry.name] for job in jobs]
        chrf_nk[rows], bleu_nks[rows] = _scores(columns, references[rows])
        for all_lines, lines in zip(outputs, columns, strict=True):
            all_lines += lines
    depths = tuple(job.entry.name for job in jobs)
    return EveryDepth(depths, tuple(sources), tuple(references), tuple(map(tuple, outputs)), chrf_nk, bleu_nks)


def _check(members: Sequence[Translator], sources: Sequence[str], references: Sequence[str]) -> None:
    if not members:
        raise UserError("give at least one model to evaluate")
    check_paired(sources, references)


def _chunks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def _translate(
    member: Translator, sources: Sequence[str], rows: slice, options: dict[str, Any], advance: Callable[[int], None]
) -> dict[str, list[str]]:
    """The best translations at each of its depths."""
    depths = len(member.menu)
    try:
        found = member.every_depth(
            sources[rows], scores=False, progress=lambda count: advance(count * depths), **options
        )
    except TooLongError as error:
        raise TooLongError(rows.start + error.number, error.length, error.limit) from error
    return {depth: [best.text for best, *_ in lists] for depth, lists in found.items()}


def _scores(columns: Sequence[Sequence[str]], references: Sequence[str]) -> tuple[Floats, Ints]:
    """Depths agree on most sentences, and scoring takes long: each distinct output is scored once."""
    pairs: dict[tuple[int, str], int] = {}
    place_nk = [
        [pairs.setdefault((row, output), len(pairs)) for output in outputs]
        for row, outputs in enumerate(zip(*columns, strict=True))
    ]
    distinct = [output for _, output in pairs]
    their_references = [references[row] for row, _ in pairs]
    chrf = np.array(sentence_chrf(distinct, their_references), np.float32)
    return chrf[place_nk], sentence_bleu_statistics(distinct, their_references)[place_nk]

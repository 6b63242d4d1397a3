"""Sequence-level distillation: a corpus with a model's translations in place of people's (Kim and Rush, 2016)."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from sacrebleu.metrics import CHRF

from anydepth.data.corpus import Pair, read_lines
from anydepth.errors import UserError
from anydepth.files import only_process
from anydepth.infer.distill_files import (
    DistillCounts,
    Identity,
    Journal,
    PairWriter,
    output_names,
    refuse_foreign,
    text_identity,
)
from anydepth.infer.options import HypothesesKeywords, Progress
from anydepth.infer.runner import Runner, local
from anydepth.infer.translator import Hypothesis, Translator
from anydepth.progress import progress_bar

__all__ = ["ChunkResult", "DistillCounts", "DistillOptions", "distill", "distill_chunk", "output_names"]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DistillOptions:
    """What decides the output: the same options, model and lines give the same bytes."""

    depth: str | None = None  # None is the default of the menu
    beam: int = 4
    length_penalty: float = 1.0  # with less, a weak model prefers to break off: it lost 1 sentence in 14 (lab notes)
    batch_size: int = 64
    max_length: int | None = None  # longest output in subwords; by default twice the source and 10 more
    nbest: int | None = None  # candidates to choose from with references; by default the whole beam
    keep_all: bool = False  # a line for every line, whatever it is
    chunk: int = 2048  # lines between two entries in the journal; sentences of like length meet within a chunk

    def settled(self, translator: Translator, with_references: bool) -> "DistillOptions":
        """The options with their defaults put in. Refuses those that make no sense, before any work is done."""
        if self.chunk < 1:
            raise UserError("a chunk must have at least 1 line")
        if self.nbest is not None and not with_references:
            raise UserError("nbest is for choosing by a reference: give references as well")
        nbest = 1
        if with_references:
            if self.beam < 2:
                raise UserError("choosing by a reference needs something to choose from: use a beam of 2 or more")
            nbest = self.beam if self.nbest is None else self.nbest
            if not 2 <= nbest <= self.beam:
                raise UserError(f"nbest is {nbest} but the beam is {self.beam}: use 2 <= nbest <= beam")
        settled = replace(self, depth=translator.menu[self.depth].name, nbest=nbest)
        translator.hypotheses([], depth=settled.depth, **settled.for_search())
        return settled

    def for_search(self) -> HypothesesKeywords:
        return {
            "beam": self.beam,
            "nbest": self.nbest or 1,
            "length_penalty": self.length_penalty,
            "batch_size": self.batch_size,
            "max_length": self.max_length,
        }


@dataclass(frozen=True)
class ChunkResult:
    pairs: list[Pair]  # those kept, in order
    counts: DistillCounts


Chunk = tuple[list[str], list[str] | None]  # lines, and their references if there are any


def distill_chunk(
    translator: Translator, chunk: Chunk, progress: Progress | None, *, options: DistillOptions
) -> ChunkResult:
    """Translate some lines; with references, choose among the best candidates the one closest to each."""
    sources, references = chunk
    lengths = map(len, translator.subwords(sources))
    faults = [_fault_of_source(length, translator.longest_source) for length in lengths]
    wanted = [i for i, fault in enumerate(faults) if options.keep_all or fault is None]
    if progress is not None:
        progress(len(sources) - len(wanted))
    search: HypothesesKeywords = {**options.for_search(), "cut_long": True, "scores": False, "progress": progress}
    found = translator.hypotheses([sources[i] for i in wanted], depth=options.depth, **search)
    chrf = CHRF()
    pairs = []
    for i, candidates in zip(wanted, found, strict=True):
        best = candidates[0] if references is None else _closest(candidates, references[i], chrf)
        faults[i] = faults[i] or _fault_of_output(best)
        if options.keep_all or faults[i] is None:
            pairs.append((sources[i], best.text))
    kinds = Counter(fault for fault in faults if fault is not None)
    return ChunkResult(pairs, DistillCounts(len(sources), len(pairs), **kinds))


def _fault_of_source(length: int, longest: int) -> str | None:
    if length == 0:
        return "source_empty"
    return "source_too_long" if length > longest else None


def _fault_of_output(output: Hypothesis) -> str | None:
    if not output.ended:
        return "output_cut_off"
    return None if output.text.strip() else "output_empty"


def _closest(candidates: Sequence[Hypothesis], reference: str, chrf: CHRF) -> Hypothesis:
    """By sentence chrF, which needs no words and so no knowledge of the language (Kim and Rush took smoothed BLEU);
    of equals the one the model prefers, which comes first."""

    def merit(one: Hypothesis) -> tuple[bool, float]:
        return _fault_of_output(one) is None, float(chrf.sentence_score(one.text, [reference]).score)

    return max(candidates, key=merit)


def distill(
    translator: Translator,
    source: Path,
    out: Path,
    options: DistillOptions,
    references: Path | None,
    run: Runner = local,
) -> DistillCounts:
    """Translate the file `source` into a corpus in the folder `out`, or go on where it stopped, killed or not."""
    options = options.settled(translator, references is not None)
    refuse_foreign(out)
    with only_process(out, "distilling"):
        identity = _identity(translator, source, references, options)
        journal = Journal.open(out, identity, translator.languages)
        if journal.finished:
            journal.check_finished()
            log.info("%s was finished before: nothing is left to do", out)
        else:
            if journal.lines < identity.source.lines:
                _distill_the_rest(translator, source, references, options, journal, run)
            journal.finish()
    log.info(journal.counts.summary())
    return journal.counts


def _identity(translator: Translator, source: Path, references: Path | None, options: DistillOptions) -> Identity:
    """All that the output depends on. How many lines are translated together may change, should memory run out."""
    of_source = text_identity(source)
    of_references = None if references is None else text_identity(references)
    if of_references is not None and of_references.lines != of_source.lines:
        raise UserError(
            f"{source} has {of_source.lines:,} lines but {references} has {of_references.lines:,}: "
            "line n of one must be the translation of line n of the other"
        )
    return Identity(
        source=of_source,
        reference=of_references,
        model=translator.fingerprint,
        layers=str(translator.menu[options.depth].subnetwork),
        options={name: value for name, value in asdict(options).items() if name not in ("batch_size", "chunk")}
        | ({} if translator.tag is None else {"tag": translator.tag})
        | ({} if translator.engine.name == "torch" else {"engine": translator.engine.name}),
    )


def _distill_the_rest(
    translator: Translator,
    source: Path,
    references: Path | None,
    options: DistillOptions,
    journal: Journal,
    run: Runner,
) -> None:
    total = journal.identity.source.lines
    if journal.lines:
        log.info("resuming after line %s of %s", f"{journal.lines:,}", f"{total:,}")
    with PairWriter(journal) as writer, progress_bar("distill", total, journal.lines) as advance:
        chunks = _chunks(source, references, journal.lines, options.chunk)
        for result in run(partial(distill_chunk, options=options), translator, chunks, advance):
            writer.append(result.pairs)
            journal.record(result.counts.read, writer.sizes(), result.counts)
    if journal.lines != total:
        raise UserError(f"{source} changed while it was read: restore it, or begin anew in another folder")


def _chunks(source: Path, references: Path | None, done: int, size: int) -> Iterator[Chunk]:
    """What is left of the files, with no more than a chunk in memory."""
    lines = islice(read_lines(source), done, None)
    theirs = None if references is None else islice(read_lines(references), done, None)
    while chunk := list(islice(lines, size)):
        yield chunk, None if theirs is None else list(islice(theirs, size))

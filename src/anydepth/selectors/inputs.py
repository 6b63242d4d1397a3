"""What a selector is trained from: sentences, what each depth costs here, and their translations at every depth."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from anydepth.data.corpus import read_lines
from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.calibrate import calibrate, spread
from anydepth.evaluate.every_depth import TABLE, EveryDepth, join_tables, score_every_depth, what_is_done
from anydepth.evaluate.perplexity import likelihood_every_depth
from anydepth.evaluate.tradeoff_report import FORMAT, RECORD, write_record
from anydepth.files import read_json
from anydepth.infer.runner import Progress, Runner, here
from anydepth.infer.translator import Translator
from anydepth.selectors.calibration import Calibration, find, refuse_newer, save

PIECE = 2048  # sentences; of a killed run, no more than one piece is translated again
CALIBRATION_SENTENCES = 200


@dataclass(frozen=True)
class Sample:
    """Sentences with their translations."""

    sources: tuple[str, ...]
    references: tuple[str, ...]
    name: str
    reference_name: str

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def checksum(self) -> str:
        text = json.dumps([self.sources, self.references], ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_sample(
    translator: Translator,
    source: Path,
    reference: Path,
    console: Console,
    sentences: int | None = None,
    seed: int = 1,
) -> Sample:
    """Lines that can be translated, at most `sentences` of them, drawn at random; what is left out is counted."""
    pairs = _usable(translator, source, reference, console)
    if sentences is not None and sentences < len(pairs):
        chosen = sorted(random.Random(seed).sample(range(len(pairs)), sentences))
        pairs = [pairs[i] for i in chosen]
    return Sample(tuple(one for one, _ in pairs), tuple(other for _, other in pairs), source.name, reference.name)


def _usable(translator: Translator, source: Path, reference: Path, console: Console) -> list[tuple[str, str]]:
    sources, references = list(read_lines(source)), list(read_lines(reference))
    if len(sources) != len(references):
        raise UserError(
            f"{source} has {len(sources):,} lines but {reference} has {len(references):,}: "
            "give two files that correspond line by line"
        )
    lengths = [len(ids) for ids in translator.tokenizer.encode_many(sources)]
    lines = zip(sources, references, lengths, strict=True)
    pairs = [(s, r) for s, r, length in lines if 0 < length <= translator.longest_source and r.strip()]
    if not pairs:
        raise UserError(f"{source} has no line that can be translated: all are empty or too long for the model")
    if len(pairs) < len(sources):
        console.print(f"{source.name}: {len(sources) - len(pairs):,} lines left out, empty or too long for the model")
    return pairs


def check_model(translator: Translator) -> Path:
    """Before hours of work, not after. The model's folder is returned."""
    folder, reason = translator.folder, translator.why_no_selector
    if reason is not None:
        raise UserError(reason)
    if folder is None or not os.access(folder, os.W_OK):
        raise UserError(f"a selector is saved inside the model folder, and {folder} cannot be written to: copy it")
    refuse_newer(folder, translator.fingerprint)
    return folder


def start_or_resume(folder: Path, key: dict[str, Any], console: Console) -> dict[str, Any]:
    """Keep the translations in `folder` that were made from the same; throw others away, and say so.

    `key` says for each of its sub-folders what that is made from, or None if it is not needed now. That of all that
    is kept is returned.
    """
    there: dict[str, Any] = {}
    if (folder / RECORD).is_file():
        record = read_json(folder / RECORD, "delete the folder, or give another with --out")
        if record.get("format", 0) > FORMAT:
            raise UserError(f"{folder} was written by a newer anydepth: upgrade it, or give another folder with --out")
        there = record.get("key") or {}
    for name, made_from in key.items():
        paths = [path for path in (folder / name, _pieces(folder / name)) if path.exists()]
        if paths and made_from is not None and there.get(name) != made_from:
            console.print(f"{paths[0]} holds translations of other sentences or of another model: translating anew")
            for path in paths:
                shutil.rmtree(path)
    kept = {name: there.get(name) if made_from is None else made_from for name, made_from in key.items()}
    write_record(folder, kept)
    return kept


def calibration_here(
    translator: Translator, sample: Sample, console: Console, *, beam: int, batch_size: int
) -> Calibration:
    """What each depth costs on this machine; measured now if it has not been."""
    device, engine = str(next(translator.model.parameters()).device), translator.engine
    threads = engine.threads
    found = find(
        translator.folder, translator.fingerprint, device=device, threads=threads, beam=beam, engine=engine.name
    )
    if found is not None and set(found.depths) >= set(translator.menu.names):
        return found
    console.print(f"no depth has been timed on this machine with {threads} threads and beam {beam}: calibrating first")
    chosen = spread(range(len(sample)), CALIBRATION_SENTENCES)
    calibration = calibrate(
        translator,
        [sample.sources[i] for i in chosen],
        [sample.references[i] for i in chosen],
        beam=beam,
        batch_size=batch_size,
        source_name=sample.name,
        reference_name=sample.reference_name,
    )
    console.print(f"stored in {save(calibration, translator.folder, translator.fingerprint)}")
    return calibration


Texts = tuple[Sequence[str], Sequence[str]]  # sentences and their references


def translations(
    translator: Translator,
    sample: Sample,
    folder: Path,
    console: Console,
    *,
    beam: int,
    batch_size: int,
    run: Runner = here,
) -> EveryDepth:
    """The sample at every depth, from `folder` if it is there; otherwise piece by piece, each kept as it is ready."""
    if (folder / TABLE).is_file():
        console.print(f"translations at every depth: from {folder}")
        return EveryDepth.load(folder)
    pieces = {_pieces(folder) / f"{number:05d}": texts for number, texts in enumerate(_cut(sample), 1)}
    left = {path: texts for path, texts in pieces.items() if not (path / TABLE).is_file()}
    if 0 < len(left) < len(pieces):
        console.print(f"going on after {len(pieces) - len(left)} of {len(pieces)} pieces of {sample.name}")
    work = partial(label_piece, options={"beam": beam, "batch_size": batch_size})
    depths = len(translator.menu)
    total = depths * sum(len(sources) for sources, _ in left.values())
    with bar(console, what_is_done(depths, sample.name), total) as advance:
        made = run(work, translator, iter(left.values()), advance)
        for path, table in zip(left, made, strict=True):
            table.save(path)
    whole = join_tables([EveryDepth.load(path) for path in pieces])
    whole.save(folder)
    shutil.rmtree(_pieces(folder))
    return whole


def label_piece(translator: Translator, texts: Texts, progress: Progress, *, options: dict[str, Any]) -> EveryDepth:
    return score_every_depth([translator], *texts, options, progress)


def with_likelihood(
    translator: Translator, table: EveryDepth, folder: Path, console: Console, run: Runner = here
) -> EveryDepth:
    """How likely each depth finds the references: once computed, kept with the translations."""
    if table.likelihood_nk is not None:
        return table
    work = partial(likelihood_of_piece, depths=table.depths)
    with bar(console, "likelihood of the references", len(table)) as advance:
        found_nk = np.concatenate(list(run(work, translator, _cut(table), advance)))
    table = replace(table, likelihood_nk=found_nk)
    table.save(folder)
    return table


def likelihood_of_piece(
    translator: Translator, texts: Texts, progress: Progress, *, depths: Sequence[str]
) -> NDArray[np.float32]:
    return likelihood_every_depth(translator, *texts, depths, progress)


def _cut(texts: Sample | EveryDepth) -> Iterator[Texts]:
    for start in range(0, len(texts), PIECE):
        rows = slice(start, start + PIECE)
        yield texts.sources[rows], texts.references[rows]


def _pieces(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-pieces")

"""Keeps text out of training: the lines of test sets, and what another language pair validates with."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from anydepth.config.data import CorpusConfig
from anydepth.data.cleaning import digest
from anydepth.data.corpus import Pair, is_csv, normalise, read_labelled, read_lines
from anydepth.data.parts import PairCorpus, keep_pairs
from anydepth.errors import UserError


def decontaminate(parts: Sequence[PairCorpus], test_sets: Sequence[Path], folder: Path) -> None:
    """Drop the lines of the test sets, and what another pair validates with, such as the English side of two."""
    held_out = {digest(normalise(text)) for path in test_sets for text in _texts_in(path, parts[0].pair.training[0])}
    if len(parts) > 1:
        held_out |= {digest(side) for part in parts for pair in part.valid for side in pair}
    for part in parts if held_out else ():
        _drop_held_out(part, held_out, folder)
        if part.train_counts.kept == 0:
            raise UserError(
                f"decontamination removed all of the {part.training_corpus}: it has no text besides the validation "
                "text and data.decontaminate; give other files as valid, or as data.decontaminate"
            )


def _texts_in(path: Path, corpus: CorpusConfig) -> Iterator[str]:
    """Every line of a file; where texts have labels, also the text behind a label, or the texts of a CSV file."""
    labelled = corpus.kind == "labels"
    if labelled and is_csv(path):
        yield from (text for text, _ in read_labelled(path, corpus.text_column, corpus.label_column))
        return
    for line in read_lines(path):
        yield line
        if labelled and "\t" in line:
            yield line.partition("\t")[2]


def _drop_held_out(part: PairCorpus, held_out: set[int], folder: Path) -> None:
    counts = part.train_counts

    def keep(pair: Pair) -> bool:
        sides = pair[:1] if part.pair.kind == "labels" else pair
        if not any(digest(side) in held_out for side in sides):
            return True
        counts.held_out += 1
        counts.kept -= 1
        return False

    for name in part.files:
        keep_pairs(folder, name, keep)
    part.seen_in_train -= held_out

"""Models that classify, and the texts that each is tested on: a file, or what was left out of its fold."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anydepth.artifact import short_name
from anydepth.artifact.model import resolve
from anydepth.data.corpus import read_labelled
from anydepth.errors import UserError
from anydepth.infer.classifier import Classifier
from anydepth.word_depths.table import WordDepths

PART = re.compile(r"(seed|fold)-(\d+)")


@dataclass(frozen=True)
class LabelledTexts:
    """A test set, under the bare name of its file."""

    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, text_column: str = "text", label_column: str = "label") -> "LabelledTexts":
        texts, labels = zip(*read_labelled(path, text_column, label_column), strict=True)
        return cls(path.name, texts, labels)


@dataclass(frozen=True)
class Member:
    """One model, and the texts that it did not see in training."""

    name: str
    path: Path
    test: LabelledTexts
    word_depths: Path | None = None  # instead of its own
    special: str | None = None  # likewise
    unseen: str | None = None

    def load(self, device: str = "cpu", engine: str = "auto", threads: int | None = None) -> Classifier:
        classifier = Classifier.load(self.path, engine=engine, device=device, threads=threads)
        if not any((self.word_depths, self.special, self.unseen)):
            return classifier
        table = None if self.word_depths is None else WordDepths.load(self.word_depths)
        return classifier.with_word_depths(table, special=self.special, unseen=self.unseen)


Systems = Mapping[str, Sequence[Member]]


def find_members(paths: Sequence[Path], test: LabelledTexts | None, word_depths: Path | None = None) -> list[Member]:
    """Of models, of finished runs, and of folders with runs seed-1, fold-1 and so on.

    A run on a fold has kept its own test set, and that counts; the others are tested on `test`.
    """
    members = []
    for path in paths:
        for run in list(_runs_in(path)):  # all of them finished, before any test set is read
            name = short_name(run) if run == path else str(run.relative_to(path))
            own = _kept_test(run, name) or test
            if own is None:
                raise UserError(f"{name} was trained on no fold and has no test set of its own: give one with test=…")
            members.append(Member(name, run, own, word_depths))
    return members


def _runs_in(path: Path) -> Iterator[Path]:
    is_model = (path / "config.json").is_file() or (path / "model" / "config.json").is_file()
    found = [] if is_model or not path.is_dir() else [(one, PART.fullmatch(one.name)) for one in path.iterdir()]
    parts = sorted((part[1], int(part[2]), one) for one, part in found if part)
    if not parts:
        resolve(path)  # says what is wrong
        yield path
    for _, _, part in parts:
        yield from _runs_in(part)


def _kept_test(run: Path, name: str) -> LabelledTexts | None:
    folder = resolve(run)
    kept = folder.parent / "data" / "test.tsv"
    if folder.name != "model" or not kept.is_file():
        return None
    read = LabelledTexts.read(kept)
    return LabelledTexts(f"{read.name} of {name}", read.texts, read.labels)

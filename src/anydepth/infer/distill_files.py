"""The files of a distillation: two that grow line by line, and the journal that says how far they are good.

distill.json                     the journal, and the record once it has finished
distilled.fr.part, ...en.part    while it goes; what lies past the sizes in the journal is dropped at a restart
distilled.fr, distilled.en       once all lines are there
"""

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PrivateAttr, ValidationError

from anydepth.data.corpus import BYTE_ORDER_MARK, Pair, read_lines
from anydepth.errors import UserError
from anydepth.files import read_json, sync_path, write_atomically

JOURNAL = "distill.json"
FORMAT = 1


@dataclass(frozen=True)
class DistillCounts:
    """How many lines were read and kept, and how many of each kind are no good to train on."""

    read: NonNegativeInt = 0
    kept: NonNegativeInt = 0
    source_empty: NonNegativeInt = 0
    source_too_long: NonNegativeInt = 0
    output_empty: NonNegativeInt = 0
    output_cut_off: NonNegativeInt = 0  # it ran into the length limit

    def __add__(self, other: "DistillCounts") -> "DistillCounts":
        mine, others = asdict(self), asdict(other)
        return DistillCounts(**{name: mine[name] + others[name] for name in mine})

    def summary(self) -> str:
        text = f"{self.read:,} read, {self.kept:,} kept"
        faults = [(name.replace("_", " "), number) for name, number in list(asdict(self).items())[2:] if number]
        if not faults:
            return text
        are = "left out" if self.kept < self.read else "among them"
        return f"{text}, {are}: {', '.join(f'{name} {number:,}' for name, number in faults)}"


class TextIdentity(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lines: NonNegativeInt
    sha256: str


class Identity(BaseModel):
    """What the work is about: with another one of these it would be other work."""

    model_config = ConfigDict(extra="forbid")

    source: TextIdentity
    reference: TextIdentity | None
    model: str
    layers: str
    options: dict[str, str | int | float | bool | None]


class Journal(BaseModel):
    """How far the work has come. On disk it never runs ahead of the data."""

    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    finished: bool = False
    lines: NonNegativeInt = 0  # of the source that are done
    counts: DistillCounts = DistillCounts()
    files: dict[str, NonNegativeInt]  # the two names, source first, with their sizes in bytes
    identity: Identity
    _folder: Path = PrivateAttr()

    @classmethod
    def open(cls, folder: Path, identity: Identity, languages: tuple[str, str]) -> "Journal":
        """The folder's journal if it is about the same work, or a new one."""
        for left in folder.glob(f".{JOURNAL}.tmp-*"):
            left.unlink()  # of a killed process: we hold the lock
        if (folder / JOURNAL).exists():
            journal = cls._read(folder)
            journal._refuse_other(identity, languages)
            return journal
        journal = cls(files=dict.fromkeys(output_names(languages), 0), identity=identity)
        journal._folder = folder
        journal._write()
        return journal

    @classmethod
    def _read(cls, folder: Path) -> "Journal":
        advice = f"delete {folder} and give the same command again"
        content = read_json(folder / JOURNAL, advice)
        if isinstance(content.get("format"), int) and content["format"] > FORMAT:
            raise UserError(f"{folder / JOURNAL} was written by a newer anydepth: upgrade, or use another folder")
        try:
            journal = cls.model_validate(content)
        except ValidationError as error:
            raise UserError(f"{folder / JOURNAL} is damaged: {advice}") from error
        if not journal.counts.kept <= journal.counts.read == journal.lines <= journal.identity.source.lines:
            raise UserError(f"{folder / JOURNAL} is damaged: {advice}")
        journal._folder = folder
        return journal

    def _refuse_other(self, identity: Identity, languages: tuple[str, str]) -> None:
        same = {name: getattr(self.identity, name) == value for name, value in identity if name != "options"}
        same["languages"] = tuple(self.files) == output_names(languages)
        earlier, now = self.identity.options, identity.options  # engine torch and no tag are left out
        same |= {name.replace("_", " "): earlier.get(name) == now.get(name) for name in {**now, **earlier}}
        changed = [name for name, is_same in same.items() if not is_same]
        if changed:  # with the languages, tag and layers change by themselves
            what = f"another {', '.join(changed)}" if same["languages"] else "other languages"
            raise UserError(f"{self._folder} was begun with {what}: give the same options to go on, or another folder")

    def _write(self) -> None:
        write_atomically(self._folder / JOURNAL, self.model_dump_json(indent=1) + "\n")

    @property
    def parts(self) -> list[Path]:
        return [self._folder / f"{name}.part" for name in self.files]

    @property
    def finals(self) -> list[Path]:
        return [self._folder / name for name in self.files]

    @property
    def sizes(self) -> list[int]:
        return list(self.files.values())

    def record(self, lines: int, sizes: list[int], counts: DistillCounts) -> None:
        """So many more lines are done, and their output is safe on disk."""
        self.lines += lines
        self.counts += counts
        self.files = dict(zip(self.files, sizes, strict=True))
        self._write()

    def finish(self) -> None:
        """Give the files their names; one that has it already got it from a process killed at this point."""
        for part, final in zip(self.parts, self.finals, strict=True):
            if part.exists():
                part.rename(final)
        self.check_finished()
        sync_path(self._folder)
        self.finished = True
        self._write()

    def check_finished(self) -> None:
        for final, size in zip(self.finals, self.sizes, strict=True):
            _check_size(final, size, exact=True)


def _check_size(path: Path, size: int, exact: bool) -> None:
    found = path.stat().st_size if path.is_file() else None
    if found is None or found < size or (exact and found > size):
        state = "is gone" if found is None else f"has {found:,} bytes where {size:,} were written"
        raise UserError(f"{path} {state}: restore it, or delete {path.parent} and give the same command again")


class PairWriter:
    """The two growing files, cut back to what the journal vouches for."""

    def __init__(self, journal: Journal) -> None:
        if journal.lines:
            for part, size in zip(journal.parts, journal.sizes, strict=True):
                _check_size(part, size, exact=False)
        with ExitStack() as stack:
            self._files = [stack.enter_context(open(part, "ab")) for part in journal.parts]
            for file, size in zip(self._files, journal.sizes, strict=True):
                file.truncate(size)
            self._open = stack.pop_all()

    def __enter__(self) -> "PairWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def append(self, pairs: Iterable[Pair]) -> None:
        """When this returns they are on disk."""
        for file, texts in zip(self._files, zip(*pairs, strict=True), strict=False):
            size = os.fstat(file.fileno()).st_size
            file.write(b"".join(encode_line(text, first=size + i == 0) for i, text in enumerate(texts)))
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())

    def sizes(self) -> list[int]:
        return [os.fstat(file.fileno()).st_size for file in self._files]


def encode_line(text: str, first: bool) -> bytes:
    """A line that `read_lines` gives back as it was: it takes a carriage return off the end, and a mark off the start.

    `first` says that the line opens its file.
    """
    mark = BYTE_ORDER_MARK if first and text.startswith(BYTE_ORDER_MARK) else ""
    end = "\r\n" if text.endswith("\r") else "\n"
    return f"{mark}{text}{end}".encode()


def output_names(languages: tuple[str, str]) -> tuple[str, str]:
    source, target = (re.sub(r"[^\w-]+", "-", language).strip("-") for language in languages)
    if not source or not target or source.casefold() == target.casefold():
        source, target = "source", "target"
    return f"distilled.{source}", f"distilled.{target}"


def refuse_foreign(folder: Path) -> None:
    """Before anything is written: the folder must be new, empty or ours."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: give a folder for the corpus")
    if not folder.is_dir() or (folder / JOURNAL).exists():
        return
    begun = (".lock", f".{JOURNAL}.tmp-")  # all that a process killed before its first entry leaves
    if any(not path.name.startswith(begun) for path in folder.iterdir()):
        raise UserError(f"{folder} is not empty and not a distillation: give another folder")


def text_identity(path: Path) -> TextIdentity:
    """The number of lines and their checksum, in one pass that refuses what cannot be read."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is not a regular file: it is read more than once, so write it to a file first")
    digest, lines = hashlib.sha256(), 0
    for lines, line in enumerate(read_lines(path), start=1):  # noqa: B007
        digest.update(f"{line}\n".encode())
    return TextIdentity(lines=lines, sha256=digest.hexdigest())

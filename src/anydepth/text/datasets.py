"""Ready-made data: real translations to begin with, fetched, checked and split the same way every time."""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anydepth.errors import UserError
from anydepth.files import atomic_folder, sha256_of
from anydepth.text.corpus import Pair, decode_lines
from anydepth.text.split import split_pairs

# The Tatoeba pairs travel in the source archive of this package. Only its data are read; its code never runs.
PACKAGE = "nmt"
VERSION = "0.0.6"
ARCHIVE_SHA256 = "65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096"

SIZES = {"valid": 1000, "test": 2000}
SPLIT_SEED = 1
CHECKSUMS = "checksums.sha256"


@dataclass(frozen=True)
class DataSet:
    source_language: str
    target_language: str
    zip_member: str  # in the archive, below its top folder
    text_member: str  # in the zip: English, tab, the other language, tab, attribution


DATA_SETS = {
    "tatoeba-en-fr": DataSet("en", "fr", "data/fra-eng.zip", "fra.txt"),
    "tatoeba-en-es": DataSet("en", "es", "data/spa-eng.zip", "spa.txt"),
}

README = """\
# {name}

{train:,} sentence pairs to train on, {valid:,} to validate, {test:,} to test; line n of `.{source}` and line n of
`.{target}` translate each other.

The sentences come from the Tatoeba project (tatoeba.org), in the selection of www.manythings.org/anki of 2020-08-23.
The author of every sentence is named in the third column of `{text_member}` in `{zip_member}` of the source archive
{package}-{version}.tar.gz, where they were taken from.

Pairs with an equal source or an equal target count as one group. `valid` and `test` take one pair each of groups
drawn at random, and the rest of those groups is left out, so none of their sentences occurs in `train`, in either
language. That holds within this data set: about a third of its test sentences in English are in `train` of the data
set of another language. Spaces at the ends of sentences were removed; the text is otherwise unchanged.
"""

LICENSE = """\
The sentences are licensed under CC BY 2.0 FR: https://creativecommons.org/licenses/by/2.0/fr/
Attribution: tatoeba.org and www.manythings.org/anki; the authors as described in README.md.
"""


def fetch(name: str, folder: Path, archive: Path | None = None) -> dict[str, Any]:
    """Make `folder` hold the data set; with `archive`, a source archive already at hand, without the network."""
    if name not in DATA_SETS:
        raise UserError(f"there is no data set {name!r}: choose from {', '.join(DATA_SETS)}")
    data_set = DATA_SETS[name]
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        _check_finished(folder, name)
        return _summary(name, folder, already_there=True)
    with TemporaryDirectory() as downloads:
        checked = _checked(archive if archive is not None else _download(Path(downloads)))
        pairs = list(_read_archive(checked, data_set))
    with atomic_folder(folder) as work:
        _write(work, name, split_pairs(pairs, SIZES, SPLIT_SEED))
    return _summary(name, folder, already_there=False)


def _write(work: Path, name: str, parts: dict[str, list[Pair]]) -> None:
    data_set = DATA_SETS[name]
    for part, pairs in parts.items():
        for side, language in enumerate((data_set.source_language, data_set.target_language)):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (work / f"{part}.{language}").write_bytes(text.encode("utf-8"))
    readme = README.format(
        name=name,
        source=data_set.source_language,
        target=data_set.target_language,
        text_member=data_set.text_member,
        zip_member=data_set.zip_member,
        package=PACKAGE,
        version=VERSION,
        **{part: len(pairs) for part, pairs in parts.items()},
    )
    (work / "README.md").write_text(readme, encoding="utf-8")
    (work / "LICENSE.txt").write_text(LICENSE, encoding="utf-8")
    sums = "".join(f"{sha256_of(work / file)}  {file}\n" for file in _file_names(data_set))
    (work / CHECKSUMS).write_text(sums, encoding="utf-8")


def _file_names(data_set: DataSet) -> list[str]:
    languages = (data_set.source_language, data_set.target_language)
    texts = [f"{part}.{language}" for part in ("train", *SIZES) for language in languages]
    return sorted([*texts, "README.md", "LICENSE.txt"])


def _check_finished(folder: Path, name: str) -> None:
    """Complain unless the folder holds exactly what `fetch` writes for this data set."""
    names = _file_names(DATA_SETS[name])
    try:
        rows = [line.split("  ", 1) for line in (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        rows = []
    if [row[-1] for row in rows] != names or any(len(row) != 2 for row in rows):
        raise UserError(f"{folder} exists and is not the data set {name}: choose another folder")
    for expected, file in rows:
        if not (folder / file).is_file() or sha256_of(folder / file) != expected:
            raise UserError(f"{folder / file} does not match {CHECKSUMS}: delete {folder} and fetch it again")


def _summary(name: str, folder: Path, *, already_there: bool) -> dict[str, Any]:
    source, target = DATA_SETS[name].source_language, DATA_SETS[name].target_language
    lines = {part: (folder / f"{part}.{source}").read_bytes().count(b"\n") for part in ("train", *SIZES)}
    return {
        "name": name,
        "folder": str(folder),
        "source_language": source,
        "target_language": target,
        "pairs": lines,
        "already_there": already_there,
    }


def _checked(archive: Path) -> Path:
    if not archive.is_file():
        raise UserError(f"{archive} is not a file: give {PACKAGE}-{VERSION}.tar.gz")
    found = sha256_of(archive)
    if found != ARCHIVE_SHA256:
        raise UserError(
            f"{archive} is not {PACKAGE}-{VERSION}.tar.gz or is damaged: its sha256 is {found[:12]}..., "
            f"not {ARCHIVE_SHA256[:12]}..."
        )
    return archive


def _read_archive(archive: Path, data_set: DataSet) -> Iterator[Pair]:
    with tarfile.open(archive, "r:gz") as members:
        path = next(name for name in members.getnames() if name.endswith(data_set.zip_member))
        zipped = members.extractfile(path)
        assert zipped is not None
        text = zipfile.ZipFile(io.BytesIO(zipped.read())).read(data_set.text_member)
    for line in decode_lines(io.BytesIO(text), data_set.text_member):
        source, target, _attribution = line.split("\t")
        yield source.strip(), target.strip()


def _download(folder: Path) -> Path:
    """Fetch the source archive from where pip would, without building or running it."""
    from unearth import PackageFinder

    wanted = f"{PACKAGE}=={VERSION}"
    settings = _pip_settings()
    indexes, links = settings.get("index-url", []), settings.get("find-links", [])
    attempts: list[dict[str, list[str]]] = [{"index_urls": indexes}]  # none: the default index
    extra = settings.get("extra-index-url", [])
    if links or extra:
        attempts.insert(0, {"index_urls": extra, "find_links": links})
    reason = "no index has it"
    umask = os.umask(0o022)
    for sources in attempts:
        try:
            finder = PackageFinder(no_binary=[PACKAGE], **sources)
            best = finder.find_best_match(wanted).best
            if best is None:
                continue
            link = best.link
            finder.download_and_unpack(link, folder / "unpacked", download_dir=folder)
            return Path(link.file_path) if link.is_file else folder / link.filename
        # Whatever goes wrong, from name resolution to a bad certificate, the way out is the same.
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
        finally:
            os.umask(umask)  # unpacking clears it, and whatever is written next would be writable for all
    raise UserError(
        f"{wanted} cannot be downloaded ({reason}): fetch its source archive {PACKAGE}-{VERSION}.tar.gz "
        "elsewhere and pass it with --archive"
    )


def _pip_settings() -> dict[str, list[str]]:
    """Where the user has told pip to look. Later lines of pip's list override earlier ones."""
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    settings: dict[str, list[str]] = {}
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        setting = key.rsplit(".", 1)[-1]
        if setting in ("index-url", "extra-index-url", "find-links"):
            settings[setting] = str(literal_eval(value)).split()
    return settings

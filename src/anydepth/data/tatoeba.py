"""Translations of the Tatoeba project, split so that no sentence is shared."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anydepth.data.corpus import Pair, decode_lines
from anydepth.data.packages import Package
from anydepth.data.split import split_pairs

PACKAGE = Package(
    "nmt", "0.0.6", "nmt-0.0.6.tar.gz", "65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096"
)
SIZES = {"valid": 1000, "test": 2000}
SPLIT_SEED = 1

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


@dataclass(frozen=True)
class Tatoeba:
    """Sentence pairs of two languages, a file for each part and language."""

    name: str
    source_language: str
    target_language: str
    zip_member: str  # in the archive, below its top folder
    text_member: str  # in the zip: English, tab, the other language, tab, attribution
    package: Package = PACKAGE

    @property
    def files(self) -> list[str]:
        languages = (self.source_language, self.target_language)
        texts = [f"{part}.{language}" for part in ("train", *SIZES) for language in languages]
        return [*texts, "README.md", "LICENSE.txt"]

    def write(self, archive: Path, work: Path) -> None:
        parts = split_pairs(list(self._read(archive)), SIZES, SPLIT_SEED)
        for part, pairs in parts.items():
            for side, language in enumerate((self.source_language, self.target_language)):
                text = "".join(pair[side] + "\n" for pair in pairs)
                (work / f"{part}.{language}").write_bytes(text.encode("utf-8"))
        readme = README.format(
            name=self.name,
            source=self.source_language,
            target=self.target_language,
            text_member=self.text_member,
            zip_member=self.zip_member,
            package=self.package.name,
            version=self.package.version,
            **{part: len(pairs) for part, pairs in parts.items()},
        )
        (work / "README.md").write_text(readme, encoding="utf-8")
        (work / "LICENSE.txt").write_text(LICENSE, encoding="utf-8")

    def summary(self, folder: Path) -> dict[str, Any]:
        source = self.source_language
        lines = {part: (folder / f"{part}.{source}").read_bytes().count(b"\n") for part in ("train", *SIZES)}
        return {
            "source_language": source,
            "target_language": self.target_language,
            "pairs": lines,
            "contents": ", ".join(f"{part} {count:,}" for part, count in lines.items()) + " pairs",
        }

    def _read(self, archive: Path) -> Iterator[Pair]:
        with tarfile.open(archive, "r:gz") as members:
            path = next(name for name in members.getnames() if name.endswith(self.zip_member))
            zipped = members.extractfile(path)
            assert zipped is not None
            text = zipfile.ZipFile(io.BytesIO(zipped.read())).read(self.text_member)
        for line in decode_lines(io.BytesIO(text), self.text_member):
            source, target, _attribution = line.split("\t")
            yield source.strip(), target.strip()

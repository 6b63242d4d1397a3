"""Reads corpora, one pair at a time: text, TSV and CSV files with translations or labels, or the Hugging Face hub."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.config import CorpusConfig

Pair = tuple[str, str]

SAMPLE_FILE = "sample.tsv"  # in a model folder: source, tab, reference
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = "\ufeff"
# C0 and C1 controls (tab and line ends among them) and the two Unicode line separators.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
LARGEST_FIELD = 2**31 - 1  # characters; the csv module stops at 131,072 by itself


def normalise(text: str) -> str:
    """The text on one line, without control characters."""
    return CONTROLS.sub(" ", text).strip()


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of a UTF-8 stream. Only a line feed ends a line, so that two files stay aligned."""
    for number, raw in enumerate(stream, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number}: not valid UTF-8; convert the file to UTF-8, or drop the invalid bytes with "
                "`iconv -c -f utf-8 -t utf-8`"
            ) from error
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        yield line.removesuffix("\n").removesuffix("\r")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, plain or gzipped."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: give a text file")
    number = 0
    try:
        with open(path, "rb") as file:
            zipped = file.peek(2)[:2] == GZIP_MAGIC
            stream = io.BufferedReader(gzip.GzipFile(fileobj=file)) if zipped else file
            for number, line in enumerate(decode_lines(stream, str(path)), start=1):  # noqa: B007
                yield line
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: the gzip file is damaged after line {number}; fetch or pack it again") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if number == 0:
        raise UserError(f"{path} is empty: give a file with one sentence per line")


def read_pairs(config: "CorpusConfig") -> Iterator[Pair]:
    """All pairs of a corpus, in order, with no more than one in memory; a text is paired with itself, or its label."""
    if config.source is not None and config.target is not None:
        return _read_two_files(config.source, config.target)
    if config.tsv is not None:
        return _read_tsv(config.tsv, int(config.source_column), int(config.target_column))
    if config.labelled is not None:
        return read_labelled(config.labelled, config.text_column, config.label_column)
    if config.text is not None:
        return ((line, line) for line in read_lines(config.text))
    return _read_huggingface(config)


def _read_two_files(source: Path, target: Path) -> Iterator[Pair]:
    source_count = target_count = 0
    for source_line, target_line in zip_longest(read_lines(source), read_lines(target)):
        source_count += source_line is not None
        target_count += target_line is not None
        if source_count == target_count:
            yield source_line, target_line
    if source_count != target_count:
        raise UserError(
            f"{source} has {source_count} lines but {target} has {target_count}: "
            "line n of one must be the translation of line n of the other"
        )


def _read_tsv(path: Path, source_column: int, target_column: int) -> Iterator[Pair]:
    needed = max(source_column, target_column)
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t") if line.strip() else [""] * needed  # a blank line is an empty pair
        if len(cells) < needed:
            raise UserError(
                f"{path}, line {number}: {len(cells)} columns split by tabs where {needed} are needed; "
                "fix the line or set source_column and target_column"
            )
        yield cells[source_column - 1], cells[target_column - 1]


def _read_huggingface(config: "CorpusConfig") -> Iterator[Pair]:
    name = config.huggingface
    if isinstance(config.source_column, int) or isinstance(config.target_column, int):
        raise UserError(f"data set {name}: set source_column and target_column to its column or language names")
    for row in _huggingface_rows(config):
        inner = row.get("translation")
        cells = inner if isinstance(inner, dict) and config.source_column not in row else row
        missing = [column for column in (config.source_column, config.target_column) if column not in cells]
        if missing:
            raise UserError(f"data set {name} has no column {missing[0]!r}: choose from {', '.join(sorted(cells))}")
        yield str(cells[config.source_column] or ""), str(cells[config.target_column] or "")


def _huggingface_rows(config: "CorpusConfig") -> Iterator[dict[str, Any]]:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            "reading a Hugging Face data set needs one more package: pip install 'anydepth[huggingface]'"
        ) from error
    try:
        rows = datasets.load_dataset(config.huggingface, config.subset, split=config.split, streaming=True)
        yield from cast(Iterator[dict[str, Any]], rows)
    # The library lets errors of many others through: network, file formats, hub.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"data set {config.huggingface} (split {config.split}) cannot be read: {reason}") from error


def read_labelled(path: Path, text_column: str = "text", label_column: str = "label") -> Iterator[tuple[str, str]]:
    """Each text with its label, in order, one at a time. The columns are those of a CSV file; other files have none."""
    if path.is_file() and path.stat().st_size == 0:
        raise UserError(f"{path} is empty: give lines of label, tab, text, or a .csv file with a header")
    if is_csv(path):
        yield from _read_csv(path, text_column, label_column)
    else:
        yield from _read_tab_separated(path)


def is_csv(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".csv.gz"))


def _read_tab_separated(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        label, tab, text = line.partition("\t")
        if not tab:
            raise UserError(f"{path}, line {number}: there is no tab; write the label, a tab and the text")
        yield text, _checked_label(label, path, number)


def _read_csv(path: Path, text_column: str, label_column: str) -> Iterator[tuple[str, str]]:
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_FIELD))
    # With line ends, or the lines of one field would run together. Strict, or a missing quote would silently swallow
    # texts.
    rows = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    header: list[str] | None = None
    empty = True
    try:
        for row in rows:
            if not row:  # a blank line
                continue
            if header is None:
                header = [name.strip() for name in row]
                text, label = (_column_index(header, name, path) for name in (text_column, label_column))
                continue
            if len(row) != len(header):
                raise UserError(
                    f"{path}, line {rows.line_num}: {len(row)} fields where the header has {len(header)}; "
                    "put quotes around texts with commas in them"
                )
            empty = False
            yield row[text], _checked_label(row[label], path, rows.line_num)
    except csv.Error as error:
        raise UserError(f"{path}, line {rows.line_num}: this is not CSV ({error}); fix its quotes") from error
    if empty:
        raise UserError(f"{path} has no rows below its header: give a file with texts and labels")


def _column_index(header: list[str], name: str, path: Path) -> int:
    if name not in header:
        raise UserError(f"{path} has no column {name!r}: choose from {', '.join(header)}")
    return header.index(name)


def _checked_label(label: str, path: Path, number: int) -> str:
    label = normalise(label)  # on one line and without tabs, as it will be written
    if not label:
        raise UserError(f"{path}, line {number}: the label is empty; give every text a label")
    return label

"""Sentence pairs from files or from the Hugging Face hub, one at a time."""

import gzip
import io
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

from anydepth.config import CorpusConfig
from anydepth.errors import UserError

Pair = tuple[str, str]

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = "\ufeff"


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of a UTF-8 stream. Only a line feed ends a line, so that two files stay aligned."""
    for number, raw in enumerate(stream, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{name}, line {number}: not valid UTF-8; convert the file to UTF-8") from error
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


def read_pairs(config: CorpusConfig) -> Iterator[Pair]:
    """All pairs of a corpus, in order, with no more than one in memory; a text is paired with itself, or its label."""
    if config.source is not None and config.target is not None:
        return _read_two_files(config.source, config.target)
    if config.tsv is not None:
        return _read_tsv(config.tsv, int(config.source_column), int(config.target_column))
    if config.labelled is not None:
        from anydepth.data.labelled import read_labelled  # which reads lines as this file does

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
                "mend the line or set source_column and target_column"
            )
        yield cells[source_column - 1], cells[target_column - 1]


def _read_huggingface(config: CorpusConfig) -> Iterator[Pair]:
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


def _huggingface_rows(config: CorpusConfig) -> Iterator[dict[str, Any]]:
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

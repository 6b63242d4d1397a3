"""Texts with labels, from lines of `label<TAB>text` or from a CSV file with a header."""

import csv
from collections.abc import Iterator
from pathlib import Path

from anydepth.data.cleaning import normalise
from anydepth.data.corpus import read_lines
from anydepth.errors import UserError

LARGEST_FIELD = 2**31 - 1  # characters; the csv module stops at 131,072 by itself


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
    # Without their ends, the lines of a field of several would run together. Strict, for else a quote that is
    # missing swallows texts without a word.
    rows = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    header: list[str] | None = None
    empty = True
    try:
        for row in rows:
            if not row:  # a blank line
                continue
            if header is None:
                header = [name.strip() for name in row]
                text, label = (_place(header, name, path) for name in (text_column, label_column))
                continue
            if len(row) != len(header):
                raise UserError(
                    f"{path}, line {rows.line_num}: {len(row)} fields where the header has {len(header)}; "
                    "put quotes around texts with commas in them"
                )
            empty = False
            yield row[text], _checked_label(row[label], path, rows.line_num)
    except csv.Error as error:
        raise UserError(f"{path}, line {rows.line_num}: this is not CSV ({error}); mend its quotes") from error
    if empty:
        raise UserError(f"{path} has no rows below its header: give a file with texts and labels")


def _place(header: list[str], name: str, path: Path) -> int:
    if name not in header:
        raise UserError(f"{path} has no column {name!r}: choose from {', '.join(header)}")
    return header.index(name)


def _checked_label(label: str, path: Path, number: int) -> str:
    label = normalise(label)  # on one line and without tabs, as it will be written
    if not label:
        raise UserError(f"{path}, line {number}: the label is empty; give every text a label")
    return label

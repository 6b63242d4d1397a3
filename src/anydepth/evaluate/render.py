"""Renders a report: as text on the terminal, as one HTML page that needs nothing else, as JSON, as a folder."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from anydepth.errors import UserError
from anydepth.evaluate.report import (
    Column,
    Details,
    Levels,
    Report,
    Section,
    ShownRow,
    Table,
    Text,
    Word,
    Words,
)
from anydepth.files import write_atomically

PAGE = "index.html"


def write_report(report: Report, folder: Path, json_name: str | None = None, *, stale: Sequence[str] = ()) -> Path:
    """Write the page, its charts as PNGs, the files and the data, `json_name`, into `folder`; return the page's path.

    Files that match the patterns of `stale` and are not of this report are removed: they were of an earlier one.
    """
    drawn = _draw(report)
    files: dict[str, str | bytes] = {**report.files, **{f"{name}.png": png for name, (png, _) in drawn.items()}}
    if json_name is not None:
        files[json_name] = to_json(report)
    page = folder / PAGE
    try:
        for old in [path for pattern in stale for path in folder.glob(pattern)]:
            if old.relative_to(folder).as_posix() not in files:
                old.unlink()
        for name, content in files.items():
            write_atomically(folder / name, content)
        write_atomically(page, _html(report, {name: svg for name, (_, svg) in drawn.items()}, list(files)))
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return page


def to_json(report: Report) -> str:
    return json.dumps(report.data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_html(report: Report) -> str:
    return _html(report, {name: svg for name, (_, svg) in _draw(report).items()}, [])


def to_terminal(report: Report, console: Console) -> None:
    """Tables and text; lines and colour on a terminal, bare columns in a file or a pipe."""
    print_sections(report.sections, console)


def print_sections(sections: Sequence[Section], console: Console) -> None:
    """Some sections alone, such as those that are ready before the others."""
    for section in sections:
        if isinstance(section, Details):
            if section.terminal:
                print_sections(section.sections, console)
        elif isinstance(section, Text | Table | Words | Levels) and section.where != "page":
            _print_section(section, console)


def _print_section(section: Text | Table | Words | Levels, console: Console) -> None:
    match section:
        case Text():
            _say(console, section.text, {"strong": "bold", "warning": "bold yellow"}.get(section.style, ""))
        case Table():
            print_table(section, console)
            console.print()
        case Words():
            console.print()
            if section.title:
                _say(console, section.title)
            for line in _word_lines(section.words, _level_colours(section.levels), console.width):
                console.print(line, soft_wrap=True)
            if not section.words:
                _say(console, "(no words)")
        case Levels():
            legend = RichText(f"{section.name}:")
            for level, (ground, letters) in enumerate(_level_colours(section.levels)[1:], 1):
                legend.append(" ").append(f" {level} ", f"{letters} on {ground}")
            console.print(legend)


def print_table(table: Table, console: Console) -> None:
    """A table alone; in parts below each other if it is wider than the terminal."""
    columns = [place for place, column in enumerate(table.columns) if column.where != "page"]
    whole = _rich_table(table, columns, console)
    if _width(whole, console) <= console.width:
        console.print(whole)
    else:
        for part in _parts(table, columns, console):
            console.print(part)
    if table.note:
        _say(console, table.note)


def _draw(report: Report) -> dict[str, tuple[bytes, str]]:
    figures = report.figures()
    if not figures:
        return {}
    from anydepth.evaluate.figures import draw  # matplotlib takes long to import

    return {figure.name: draw(figure) for figure in figures}


def _html(report: Report, svgs: dict[str, str], files: Sequence[str]) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"blocks": _blocks, "runs": _runs}
    environment.globals |= {"level_colours": _level_colours}
    # What figures.py made of matplotlib's SVG: its texts are escaped already.
    pictures = {name: Markup(svg) for name, svg in svgs.items()}
    return environment.get_template("report.html.j2").render(report=report, pictures=pictures, files=files)


def _blocks(sections: Sequence[Section]) -> list[tuple[str, list[Section]]]:
    """Those for the page by kind, neighbours of one kind together: charts and tables stand beside each other."""
    shown = [section for section in sections if getattr(section, "where", "both") != "terminal"]
    return [(kind, list(group)) for kind, group in groupby(shown, lambda section: type(section).__name__)]


def _runs(columns: Sequence[Column]) -> list[tuple[str, list[Column]]]:
    """Neighbouring columns of one group; those without one stand alone."""
    groups = groupby(enumerate(columns), lambda pair: (pair[1].group, pair[1].group or pair[0]))
    return [(name, [column for _, column in group]) for (name, _), group in groups]


def _level_colours(levels: int) -> list[tuple[str, str]]:
    from anydepth.evaluate.figures import level_colours

    return level_colours(levels)


def _parts(table: Table, columns: Sequence[int], console: Console) -> Iterator[RichTable]:
    """The first column with as many others as fit; columns of one group stay together."""
    first, *others = columns
    longest = max(16, console.width // 3)
    chunk: list[int] = []
    groups = groupby(others, lambda place: (table.columns[place].group, table.columns[place].group or place))
    for group in (list(places) for _, places in groups):
        wider = _rich_table(table, [first, *chunk, *group], console, longest)
        if chunk and _width(wider, console) > console.width:
            yield _rich_table(table, [first, *chunk], console, longest)
            chunk = []
        chunk += group
    yield _rich_table(table, [first, *chunk], console, longest)


def _rich_table(table: Table, columns: Sequence[int], console: Console, longest: int | None = None) -> RichTable:
    rich = RichTable(
        title=RichText(table.title, style="bold", no_wrap=True, overflow="ignore") if table.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
    )
    is_grouped = any(table.columns[place].group for place in columns)
    rows, foot = table.shown()
    rooms = [max((len(row.cells[place].mark) for row in (*rows, *foot)), default=0) for place in columns]
    before = ""
    for place, room in zip(columns, rooms, strict=True):
        column = table.columns[place]
        over = f"{column.group if column.group != before else ''}\n" if is_grouped else ""
        before = column.group
        header = RichText(over + column.name + " " * room)
        rich.add_column(header, justify="left" if place == columns[0] else column.align, no_wrap=True)
    for row in rows:
        if longest is not None and not any(row.cells[place].text for place in columns[1:]):
            continue  # in this part of a wide table it has nothing
        rich.add_row(*_rich_cells(row, columns, rooms, longest), style="bold" if row.strong else None)
    if foot:
        rich.add_section()
    for row in foot:
        rich.add_row(*_rich_cells(row, columns, rooms, longest))
    return rich


def _rich_cells(row: ShownRow, columns: Sequence[int], rooms: Sequence[int], longest: int | None) -> list[RichText]:
    """Marks stand below each other, beside the numbers."""
    found = []
    for number, (place, room) in enumerate(zip(columns, rooms, strict=True)):
        cell = row.cells[place]
        text = RichText(("  " if row.indent and number == 0 else "") + (cell.text or ""))
        if number == 0 and longest is not None:
            text.truncate(longest, overflow="ellipsis")
        text.append(cell.mark.ljust(room))
        text.stylize("bold" if cell.strong else "dim" if cell.soft else "")
        found.append(text)
    return found


def _width(table: RichTable, console: Console) -> int:
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(RichText(line, style), soft_wrap=not console.is_terminal)  # there wrapped at spaces


def _word_lines(words: Sequence[Word], colours: Sequence[tuple[str, str]], width: int) -> Iterator[RichText]:
    """As many words to a line as there is room for, and below it the line of their levels. The text is as it was
    written: words without a space between them stand together, over one level or, if they differ, over several."""
    above, below = RichText(), RichText()
    for group in _written_together(words):
        levels = [str(word.level) for word in group if word.level]
        number = ",".join(levels if len(set(levels)) > 1 else levels[:1])
        text = sum(cell_len(word.text) for word in group)
        cells = max(text, len(number))
        gap = " " if above else ""
        if above and above.cell_len + len(gap) + cells > width:
            yield from (above, below)
            above, below, gap = RichText(), RichText(), ""
        above.append(gap)
        for word in group:
            ground, letters = colours[word.level]
            above.append(word.text, f"{letters} on {ground}" if word.level else "")
        above.append(" " * (cells - text))
        below.append(gap + number.center(cells))
    if above:
        above.rstrip()
        below.rstrip()
        yield from (above, below)


def _written_together(words: Sequence[Word]) -> list[list[Word]]:
    groups: list[list[Word]] = []
    for word in words:
        if word.spaced or not groups:
            groups.append([])
        groups[-1].append(word)
    return groups

"""A report as text, page, data and folder. What is in it, every experiment says for itself."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from anydepth.errors import UserError
from anydepth.evaluate.figures import SERIES, Scale, depth_map, draw, tip_points
from anydepth.evaluate.render import to_html, to_json, to_terminal, write_report
from anydepth.evaluate.report import (
    Cell,
    Column,
    Details,
    Figure,
    Heading,
    Report,
    Row,
    Table,
    Terms,
    Text,
    Tile,
    Tiles,
    Word,
    Words,
    file_stems,
)

BAD = '<script>alert("1")</script> & $x^2$'


def curve(canvas) -> None:
    axes = canvas.subplots()
    axes.plot([1, 2], [3, 4], color=SERIES[0], label=BAD)
    axes.set_title(BAD)
    axes.legend()
    tip_points(axes, [1, 2], [3, 4], [BAD, "2-2: 4.00 BLEU"])


def made_report() -> Report:
    table = Table(
        [Column("depth"), Column("BLEU", help=BAD, format=".2f"), Column("hidden", where="terminal"), Column("note")],
        [
            Row(["1-1", Cell(12.345, mark="!"), "on the terminal", BAD], strong=True),
            ["2-2", Cell(13.0, heat=0.5)],
            Row(["indented"], indent=True),
        ],
        title="Table " + BAD,
        note="A note.",
        foot=[["mean", 12.6725]],
    )
    return Report(
        "Title " + BAD,
        [
            Tiles([Tile("Best", "2-2", BAD)]),
            Text(BAD, "warning"),
            Heading("Charts"),
            Figure("curve", "A curve", curve, caption=BAD),
            table,
            Words([Word(BAD, 2, tip=BAD), Word("plain")], levels=3),
            Details("More " + BAD, [Terms({"source": BAD}, boxed=True), Text("inside details")]),
        ],
        {"format": 1, "text": BAD},
        lead=BAD,
        files={"outputs/a.txt": "one\n"},
    )


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)


def print_to_text(report: Report, width: int = 1000, **options) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), **options)  # noqa: SIM115
    to_terminal(report, console)
    return console.export_text()


def test_the_page_escapes_every_text_and_runs_no_script():
    page = to_html(made_report())
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.seen
    assert page.count("&lt;script&gt;") >= 12
    assert "http" not in page  # nothing comes from elsewhere


def test_the_page_follows_the_theme_and_fits_a_phone():
    page = to_html(made_report())
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert "var(--series-1)" in page
    assert "overflow-x: auto" in page


def test_rows_cells_and_foot_are_on_the_page():
    page = to_html(made_report())
    assert "12.35" in page  # rounded as the column says
    assert "12.67" in page
    assert "<sup>!</sup>" in page
    assert 'data-heat style="--heat: 50%"' in page
    assert "on the terminal" not in page


def test_the_terminal_has_tables_and_texts_but_no_details():
    text = print_to_text(made_report())
    assert re.search(r"1-1\s+12\.35!\s+on the terminal", text)
    assert re.search(r"2-2\s+13\.00", text)
    assert re.search(r"mean\s+12\.67", text)
    assert "A note." in text
    assert BAD in text
    assert "inside details" not in text
    assert "Charts" not in text
    assert "─" not in text  # bare columns where there is no terminal


def test_a_table_too_wide_for_the_terminal_comes_in_parts_that_keep_groups_together():
    columns = [Column("n"), *(Column(f"{letter}{m}", group=f"m={m}") for m in range(6) for letter in "ab")]
    rows = [[str(n), *(f"{n}.{number:05d}" for number in range(12))] for n in range(3)]
    text = print_to_text(Report("wide", [Table(columns, rows)], {}), width=50)
    lines = text.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 50
    headers = [line.split() for line in lines if line.startswith("n")]
    assert len(headers) > 1
    assert all(len(header) % 2 == 1 for header in headers)  # n, and both columns of each group
    for number in range(12):
        assert f"2.{number:05d}" in text


def test_json_holds_the_data():
    assert json.loads(to_json(made_report())) == {"format": 1, "text": BAD}


def test_a_chart_has_tips_and_the_same_bytes_each_time():
    figure = Figure("curve", "A curve", curve)
    png, svg = draw(figure)
    assert png.startswith(b"\x89PNG")
    assert "<title>2-2: 4.00 BLEU</title>" in svg
    assert "tip:" not in svg
    assert "width=" not in svg.split(">", 1)[0]
    assert (png, svg) == draw(figure)


def test_a_heat_map_names_depth_and_value_of_each_cell():
    cells = {(n, m): 10.0 * n + m for n, m in ((1, 3), (2, 1), (2, 3))}
    _, svg = draw(depth_map("map", "BLEU", cells, Scale("viridis", "BLEU")))
    assert re.findall(r"<title>(.*?)</title>", svg) == ["1-3: 13.0 BLEU", "2-1: 21.0 BLEU", "2-3: 23.0 BLEU"]
    assert "<image" not in svg


def test_a_folder_has_page_data_charts_and_files_and_loses_stale_ones(tmp_path: Path):
    (tmp_path / "old.tsv").write_text("of an earlier report")
    page = write_report(made_report(), tmp_path, "numbers.json", stale=("*.tsv",))
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert names == ["curve.png", "index.html", "numbers.json", "outputs/a.txt"]
    assert 'href="outputs/a.txt"' in page.read_text("utf-8")
    assert json.loads((tmp_path / "numbers.json").read_text("utf-8"))["format"] == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match=r"cannot write the report to .*taken"):
        write_report(made_report(), tmp_path / "taken", "numbers.json")


def test_file_names_of_labels_differ():
    assert file_stems(["a b", "a/b", "é", "..."]) == {"a b": "a_b", "a/b": "a_b-2", "é": "é", "...": "model"}

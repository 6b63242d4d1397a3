"""The comparison as a grid, with numbers made by hand."""

import io
from dataclasses import replace

from constructed_sweeps import make_result, with_bleu
from rich.console import Console

from anydepth.evaluate.render import to_html, to_terminal
from anydepth.evaluate.report import Cell
from anydepth.evaluate.sweep import SweepResult
from anydepth.evaluate.sweep_report import grid_table, sweep_report

BASE = {(1, 1): 10.0, (1, 2): 20.0, (2, 1): 30.0}  # no 2-2
FLEXIBLE = {(1, 1): 11.0, (1, 2): 20.0, (2, 1): 29.5, (2, 2): 41.0}  # wins 1-1, ties at 1-2
DROPPED = {(1, 1): 9.0, (2, 1): 31.5, (2, 2): 40.0}  # wins 2-1


def three_models() -> SweepResult:
    result = make_result(with_bleu("base", BASE), with_bleu("flexible", FLEXIBLE), with_bleu("dropped", DROPPED))
    assert result.comparison is not None
    rows = (
        replace(row, p_values={label: 0.01 if abs(value) > 1 else 0.5 for label, value in row.differences.items()})
        for row in result.comparison.shared
    )
    return replace(result, comparison=replace(result.comparison, shared=tuple(rows)))


def grid(result: SweepResult) -> dict[tuple[str, str], dict[str, Cell]]:
    """The cells that show something, by the names of row and group, and the model."""
    assert result.comparison is not None
    table = grid_table(result.models, result.comparison)
    rows, foot = table.shown()
    found: dict[tuple[str, str], dict[str, Cell]] = {}
    for first, *cells in (row.cells for row in (*rows, *foot)):
        for column, cell in zip(table.columns[1:], cells, strict=True):
            if cell.text:
                found.setdefault((first.text, column.group), {})[column.help] = cell
    return found


def texts(cells: dict[str, Cell]) -> dict[str, str]:
    return {label: cell.text for label, cell in cells.items()}


def on_terminal(result: SweepResult, width: int) -> str:
    stream = io.StringIO()
    to_terminal(sweep_report(result), Console(file=stream, width=width))
    return stream.getvalue()


def printed(result: SweepResult, width: int) -> str:
    """From the grid on."""
    text = on_terminal(result, width)
    return text[text.index("BLEU of the models") :]


def test_cells_show_the_first_model_and_differences_to_it() -> None:
    cells = grid(three_models())
    assert set(cells) == {(n, m) for n in ("1", "2", "mean") for m in ("m=1", "m=2", "mean")}
    assert texts(cells["1", "m=1"]) == {"base": "10.00", "flexible": "+1.00", "dropped": "-1.00"}
    assert texts(cells["1", "m=2"]) == {"base": "20.00", "flexible": "+0.00"}
    best = {place: [label for label, one in cell.items() if "*" in one.mark] for place, cell in cells.items()}
    assert {place: labels for place, labels in best.items() if labels} == {
        ("1", "m=1"): ["flexible"],
        ("2", "m=1"): ["dropped"],
    }
    assert cells["2", "m=1"]["dropped"].mark == "*!"
    assert cells["2", "m=1"]["flexible"].mark == ""


def test_where_the_first_has_nothing_the_others_stand_for_themselves() -> None:
    result = three_models()
    assert texts(grid(result)["2", "m=2"]) == {"flexible": "41.00", "dropped": "40.00"}
    assert all(cell.soft for cell in grid(result)["2", "m=2"].values())
    assert not any(cell.soft for cell in grid(result)["1", "m=1"].values())
    assert result.comparison is not None
    assert "Without a sign" in grid_table(result.models, result.comparison).note


def test_means_are_over_what_the_two_share() -> None:
    result = three_models()
    cells = grid(result)
    assert texts(cells["1", "mean"]) == {"base": "15.00", "flexible": "+0.50", "dropped": "-1.00"}
    assert texts(cells["2", "mean"]) == {"base": "30.00", "flexible": "-0.50", "dropped": "+1.50"}
    assert texts(cells["mean", "m=2"]) == {"base": "20.00", "flexible": "+0.00"}
    assert result.comparison is not None
    assert texts(cells["mean", "mean"]) == {
        "base": f"{result.comparison.mean_bleu['base']:.2f}",
        "flexible": f"{result.comparison.mean_differences['flexible']:+.2f}",
        "dropped": f"{result.comparison.mean_differences['dropped']:+.2f}",
    }


def test_verdict_counts_wins_and_ties() -> None:
    comparison = three_models().comparison
    assert comparison is not None
    assert comparison.verdict == "flexible is best at 1 of 3 depths, dropped at 1, base at 0; ties: 1"


def test_terminal_shows_the_grid_with_its_marks() -> None:
    assert "flexible is best at 1 of 3 depths" in on_terminal(three_models(), 100)
    lines = printed(three_models(), 100).splitlines()
    assert lines[1].split() == ["m=1", "m=2", "mean"]
    assert lines[2].split() == ["n", *["A", "B-A", "C-A"] * 3]
    assert lines[3].split() == ["1", "10.00", "+1.00*", "-1.00", "20.00", "+0.00", "15.00", "+0.50", "-1.00"]
    assert lines[4].split() == ["2", "30.00", "-0.50", "+1.50*!", "41.00", "40.00", "30.00", "-0.50", "+1.50"]
    text = " ".join(" ".join(lines).split())
    assert "A base: BLEU; B flexible, C dropped: difference to A" in text
    assert "! p < 0.05 against base" in text


def test_winner_is_bold_on_a_terminal() -> None:
    stream = io.StringIO()
    to_terminal(
        sweep_report(three_models()), Console(file=stream, width=120, force_terminal=True, color_system="standard")
    )
    assert "\x1b[1m+1.00*" in stream.getvalue()
    assert "\x1b[2m41.00" in stream.getvalue()


def test_narrow_terminal_gets_the_grid_in_parts() -> None:
    text = printed(three_models(), 55)
    assert "…" not in text
    table = text.split("rows: encoder depth")[0]
    assert all(len(line) <= 55 for line in table.splitlines())
    assert [line.split() for line in table.splitlines() if "m=" in line] == [["m=1", "m=2"]]
    assert table.count("BLEU of the models") == 2  # the means stand below


def test_one_column_of_depths_is_a_list() -> None:
    result = make_result(*(with_bleu(label, {(1, 1): 10.0, (2, 1): 12.0}) for label in ("one", "two")))
    assert "m=1" not in printed(result, 200)


def test_page_has_the_grid_and_marks_the_best() -> None:
    page = to_html(sweep_report(three_models()))
    assert "<b>+1.00</b><sup>*</sup></td>" in page
    assert "<b>+1.50</b><sup>*!</sup></td>" in page
    assert "<td><i>41.00</i></td>" in page
    assert "A base: BLEU" in page
    assert "flexible is best at 1 of 3 depths, dropped at 1, base at 0; ties: 1." in page

"""The comparison as a grid, with numbers made by hand."""

import io
from dataclasses import replace

import pytest
from constructed_sweeps import result_of, with_bleu
from rich.console import Console

from anydepth.evaluate.depth_comparison import GridCell, lay_out
from anydepth.evaluate.render import to_html, to_terminal
from anydepth.evaluate.sweep import SweepResult
from anydepth.evaluate.sweep_report import sweep_report

BASE = {(1, 1): 10.0, (1, 2): 20.0, (2, 1): 30.0}  # no 2-2
FLEXIBLE = {(1, 1): 11.0, (1, 2): 20.0, (2, 1): 29.5, (2, 2): 41.0}  # wins 1-1, ties at 1-2
DROPPED = {(1, 1): 9.0, (2, 1): 31.5, (2, 2): 40.0}  # wins 2-1


def three_models() -> SweepResult:
    result = result_of(with_bleu("base", BASE), with_bleu("flexible", FLEXIBLE), with_bleu("dropped", DROPPED))
    assert result.comparison is not None
    rows = (
        replace(row, p_values={label: 0.01 if abs(value) > 1 else 0.5 for label, value in row.differences.items()})
        for row in result.comparison.shared
    )
    return replace(result, comparison=replace(result.comparison, shared=tuple(rows)))


def texts(figures: GridCell) -> dict[str, str]:
    return {label: figure.text for label, figure in figures.items()}


def on_terminal(result: SweepResult, width: int) -> str:
    stream = io.StringIO()
    to_terminal(sweep_report(result), Console(file=stream, width=width))
    return stream.getvalue()


def printed(result: SweepResult, width: int) -> str:
    """From the grid on."""
    text = on_terminal(result, width)
    return text[text.index("BLEU of the models") :]


def test_cells_show_the_first_model_and_differences_to_it() -> None:
    result = three_models()
    assert result.comparison is not None
    grid = lay_out(result.comparison, result.models)
    assert (grid.rows, grid.columns) == ((1, 2), (1, 2))
    assert texts(grid.cells[1, 1]) == {"base": "10.00", "flexible": "+1.00", "dropped": "-1.00"}
    assert texts(grid.cells[1, 2]) == {"base": "20.00", "flexible": "+0.00"}
    best = {place: [label for label, one in cell.items() if one.is_best] for place, cell in grid.cells.items()}
    assert best == {(1, 1): ["flexible"], (1, 2): [], (2, 1): ["dropped"], (2, 2): []}
    assert grid.cells[2, 1]["dropped"].is_significant
    assert not grid.cells[2, 1]["flexible"].is_significant


def test_where_the_first_has_nothing_the_others_stand_for_themselves() -> None:
    result = three_models()
    assert result.comparison is not None
    grid = lay_out(result.comparison, result.models)
    assert texts(grid.cells[2, 2]) == {"flexible": "41.00", "dropped": "40.00"}
    assert grid.has_uncounted
    assert not any(one.counts for one in grid.cells[2, 2].values())


def test_means_are_over_what_the_two_share() -> None:
    result = three_models()
    assert result.comparison is not None
    grid = lay_out(result.comparison, result.models)
    assert texts(grid.row_means[1]) == {"base": "15.00", "flexible": "+0.50", "dropped": "-1.00"}
    assert texts(grid.row_means[2]) == {"base": "30.00", "flexible": "-0.50", "dropped": "+1.50"}
    assert texts(grid.column_means[2]) == {"base": "20.00", "flexible": "+0.00"}
    assert grid.overall["dropped"].value == pytest.approx(result.comparison.mean_differences["dropped"])
    assert grid.overall["base"].value == pytest.approx(result.comparison.mean_bleu["base"])


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
    result = result_of(*(with_bleu(label, {(1, 1): 10.0, (2, 1): 12.0}) for label in ("one", "two")))
    assert "m=1" not in printed(result, 200)


def test_page_has_the_grid_and_marks_the_best() -> None:
    page = to_html(sweep_report(three_models()))
    assert "<b>+1.00</b><sup>*</sup></td>" in page
    assert "<b>+1.50</b><sup>*!</sup></td>" in page
    assert "<td><i>41.00</i></td>" in page
    assert "A base: BLEU" in page
    assert "flexible is best at 1 of 3 depths, dropped at 1, base at 0; ties: 1." in page

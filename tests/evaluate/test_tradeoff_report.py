"""The report of a trade-off: files, page, pictures, table; and what it takes to choose, on a real model."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import constructed_conditions
import numpy as np
import pytest
from conftest import toy_pairs
from constructed_tables import noisy_table, with_costs
from rich.console import Console

from anydepth.errors import UserError
from anydepth.evaluate.figures import draw
from anydepth.evaluate.render import to_html, to_terminal, write_report
from anydepth.evaluate.tradeoff import ChoiceTiming, Tradeoff, seconds_to_choose, time_choices, token_ids
from anydepth.evaluate.tradeoff_report import RECORD, tradeoff_report, write_record
from anydepth.evaluate.tradeoff_result import SelectorCurve, TradeoffResult, fixed_depths
from anydepth.infer.translator import Translator

CONDITIONS = replace(
    constructed_conditions.CONDITIONS,
    source_file="test.fr",
    lines=300,
    date="2026-01-02T03:04:05+00:00",
    versions={"anydepth": "0"},
)


FILES = {"curve.png", "depths.png", "depths-oracle.png", "select.json"}


def lucky_curve(tradeoff: Tradeoff, kind: str, thresholds: list[float], luck: float) -> SelectorCurve:
    """Of a selector that knows the best depth of a share of the sentences and takes the rest to the last one."""
    deepest = len(tradeoff.table.depths) - 1
    best_n = tradeoff.table.best()

    def chosen(seed: int, threshold: float) -> np.ndarray:
        known_n = np.random.default_rng(seed).uniform(size=len(best_n)) < luck * (1 - threshold)
        return np.where(known_n, best_n, deepest)

    seeds = [[tradeoff.outcome(chosen(seed, one), one, 0.0001) for one in thresholds] for seed in range(3)]
    return SelectorCurve.from_seeds(kind, seeds, 0.0001)


def make_result(depths: dict[str, float], label: str = "demo") -> TradeoffResult:
    seconds = [0.002 * int(name[-1]) + 0.001 * int(name[0]) for name in depths]
    tradeoff = with_costs(noisy_table(depths, count=80), *seconds)
    values = lucky_curve(tradeoff, "values", [0.0, 0.25, 0.75, 1.0], luck=0.9)
    labels = lucky_curve(tradeoff, "labels", [0.0, 0.5], luck=0.1)
    layers = [(int(name[0]), int(name[-1])) for name in depths]
    chosen = next(point for point in values.points if point.threshold == 0.25).seeds[0]
    return TradeoffResult(
        label=label,
        conditions=CONDITIONS,
        sizes={"train": 210, "valid": 30, "test": 80},
        fixed=fixed_depths(tradeoff, layers),
        deepest=list(depths)[-1],
        mixture=tuple(tradeoff.mixture_line()),
        oracle=tradeoff.oracle(),
        curves=(values, labels),
        saved_kind="values",
        threshold=0.25,
        chosen=chosen,
        timing=ChoiceTiming(80, 0.004, 0.008, 0.002, 0.0001),
        signatures={"BLEU": "nrefs:1", "chrF": "nc:6"},
    )


@pytest.fixture(scope="module")
def result() -> TradeoffResult:
    return make_result({"1-1": 0.6, "2-1": 0.65, "1-2": 0.8, "2-2": 0.9})


def test_the_folder_is_whole(result: TradeoffResult, tmp_path: Path) -> None:
    page = write_report(tradeoff_report(result, {"table": {"beam": 1}}), tmp_path, RECORD)
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"index.html"}
    record = json.loads((tmp_path / "select.json").read_text("utf-8"))
    assert record["key"] == {"table": {"beam": 1}}
    assert record["result"]["verdict"] == result.verdict
    points = record["result"]["curves"][0]["points"]
    assert [point["threshold"] for point in points] == [point.threshold for point in result.curves[0].points]
    assert all(len(point["seeds"]) == 3 for point in points)
    html = page.read_text("utf-8")
    assert html.count("<figure") == 3
    links = re.findall(r"""(?:src|href)=["'](?!data:|#)([^"']*)""", html)
    assert set(links) == FILES  # nothing from elsewhere
    assert html.count("<tr") == html.count("</tr>")


def test_the_page_has_the_figures_and_the_verdicts(result: TradeoffResult) -> None:
    html = to_html(tradeoff_report(result, {}))
    assert result.verdict in html
    assert "50 %" in html  # 4 ms for 8
    assert "all sentences at one depth: no choice" in html
    for curve in result.curves:
        assert curve.verdict in html
        for point in curve.points:
            cells = f">{point.threshold:g}</td><td>{1000 * point.seconds:.2f}</td><td>{point.bleu:.2f}</td>"
            assert cells in html
    for one in result.fixed:
        assert f">{one.name}</td><td>{1000 * one.seconds:.2f}</td>" in html


def test_names_cannot_break_the_page(result: TradeoffResult) -> None:
    html = to_html(tradeoff_report(replace(result, label="<b>&me"), {}))
    assert "<b>&me" not in html
    assert "&lt;b&gt;&amp;me" in html


def test_a_folder_that_cannot_be_written_to(result: TradeoffResult, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="give another folder"):
        write_report(tradeoff_report(result, {}), tmp_path / "file", RECORD)


def test_the_record_before_there_is_a_result(tmp_path: Path) -> None:
    write_record(tmp_path, {"table": None})
    assert json.loads((tmp_path / "select.json").read_text("utf-8"))["result"] is None


def test_the_printed_table(result: TradeoffResult) -> None:
    said = io.StringIO()
    to_terminal(tradeoff_report(result, {}), Console(file=said, width=200))
    lines = said.getvalue().splitlines()
    assert lines[0].strip() == "values"
    assert lines[1].split() == ["threshold", "ms", "BLEU", "mixture", "difference", "mostly", "at"]
    rows = [line.split() for line in lines[2 : 2 + len(result.curves[0].points)]]
    for row, point in zip(rows, result.curves[0].points, strict=True):
        assert row[:4] == [
            f"{point.threshold:g}",
            f"{1000 * point.seconds:.2f}",
            f"{point.bleu:.2f}",
            f"{point.mixture_bleu:.2f}",
        ]
        assert row[4:7] == [f"{point.difference:+.2f}", "±", f"{point.standard_error:.2f}"]
    assert lines[-1] == result.verdict
    assert "0.50 of 2-2's 8.00 ms; choosing takes 0.10 ms, 5% of 1-1's 2.00 ms" in lines[-2]


def test_pictures_show_their_data_and_are_the_same_again(result: TradeoffResult) -> None:
    def drawn(one: TradeoffResult) -> dict[str, tuple[bytes, str]]:
        return {figure.name: draw(figure) for figure in tradeoff_report(one, {}).figures()}

    first, again, other = drawn(result), drawn(result), drawn(replace(result, chosen=result.oracle))
    assert first == again
    assert first["curve"] != other["curve"]
    assert first["depths"] != other["depths"]
    for name, (png, svg) in first.items():
        assert png.startswith(b"\x89PNG")
        assert svg.count("<title>") >= len(result.fixed), name
    assert f"<title>1-1: {result.fixed[0].bleu:.2f} BLEU, 3.00 ms</title>" in first["curve"][1]
    assert drawn(replace(result, curves=result.curves[:1]))["curve"] != first["curve"]


def test_shares_add_up_over_the_heat_map(result: TradeoffResult) -> None:
    cells = result.percentages(result.oracle)
    assert sum(cells.values()) == pytest.approx(100)
    assert cells[1, 2] == 100 * result.oracle.share_k[2]
    assert (3, 1) not in cells


def test_many_depths_and_holes_in_the_menu() -> None:
    many = {f"{n}-{m}": 0.5 + 0.01 * n + 0.06 * m for m in range(1, 7) for n in range(1, 7) if (n, m) != (2, 3)}
    result = make_result(many)
    for figure in tradeoff_report(result, {}).figures():
        assert draw(figure)[0].startswith(b"\x89PNG")


class ByLength:
    """Chooses the shallowest depth for short sentences, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[list[int]]] = []

    def choose(self, sources: list[list[int]]) -> list[str]:
        self.asked.append(sources)
        return ["1-1" if len(source) < 8 else "2-2" for source in sources]


def test_choices_against_the_clock_are_made_one_by_one(toy_run: Path) -> None:
    translator, selector = Translator.load(toy_run, engine="torch", device="cpu"), ByLength()
    texts = [source for source, _ in toy_pairs(6, 4)]
    timing = time_choices(translator, selector, texts, "1-1", beam=1)
    assert timing.sentences == 6
    assert min(timing.auto, timing.deepest, timing.shallowest, timing.choosing) > 0
    assert timing.ratio == timing.auto / timing.deepest
    assert timing.overhead == timing.choosing / timing.shallowest
    ids = token_ids(translator, texts)
    assert all(len(asked) == 1 for asked in selector.asked)
    assert [asked[0] for asked in selector.asked[4:10]] == ids  # after the warm-up, as decoding hands them over
    before = len(selector.asked)
    assert seconds_to_choose(selector, ids[:2]) > 0
    assert len(selector.asked) == before + 2 + 3 * 2  # a warm-up and three passes

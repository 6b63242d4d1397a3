"""What the oracle reports, from a table made by hand and from real models."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import toy_pairs
from constructed_conditions import CONDITIONS
from matplotlib.image import imread
from rich.console import Console
from saved_models import REFERENCES, SOURCES, save_model

from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.evaluate.every_depth import EveryDepth, translate_every_depth
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.figures import draw
from anydepth.evaluate.oracle import ModelOracle, OracleResult, PassTimes, oracle
from anydepth.evaluate.oracle_report import lines, oracle_report
from anydepth.evaluate.render import to_html, to_terminal, write_report
from anydepth.infer.translator import Translator
from anydepth.progress import show_progress

TEXTS = ("<b>one</b> of the four lines", "two\tof the four lines", "three of the four lines", "four")
CHRF = [[50, 40, 50], [10, 30, 20], [90, 90, 90], [0, 80, 5]]  # depths 1-1, 2-1, 1-2


def made(label: str = "tied", chrf: list[list[float]] = CHRF) -> ModelOracle:
    """1-1 is best for two lines, 2-1 for two; 1-2 is the deepest of three depths, and there is no 2-2."""
    outputs = tuple(tuple(f"{text} at {depth}" for text in TEXTS) for depth in "abc"[: len(chrf[0])])
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 9, (len(TEXTS), len(chrf[0]), 10)).astype(np.int32)
    depths, layers = ("1-1", "2-1", "1-2"), ((1, 1), (2, 1), (1, 2))
    k = len(chrf[0])
    table = EveryDepth(depths[:k], TEXTS, TEXTS, outputs, np.array(chrf, np.float32), counts)
    return ModelOracle(label, table, layers[:k], k - 1, PassTimes(oracle=(3.0, 1.0, 2.0), deepest=(4.0, 4.0, 9.0)))


def make_result(*models: ModelOracle) -> OracleResult:
    conditions = replace(CONDITIONS, repeats=3)
    return OracleResult(models, conditions, {"BLEU": "its|signature", "chrF": "another|signature"})


def test_figures_by_hand() -> None:
    model = made()
    assert [(one.depth, one.count, one.share) for one in model.shares] == [
        ("1-1", 2, 0.5),
        ("2-1", 2, 0.5),
        ("1-2", 0, 0),
    ]
    assert model.percentages == {(1, 1): 50, (2, 1): 50, (1, 2): 0}
    best, single, deepest = model.choices.values()
    assert (best.chrf, best.encoder_layers, best.decoder_layers, best.seconds) == (62.5, 1.5, 1, 2)
    assert (deepest.name, deepest.chrf, deepest.seconds) == ("1-2", 41.25, 4)
    assert single.bleu == max(one.bleu for one in model.shares)
    assert best.bleu == model.table.bleu([0, 1, 0, 1])
    assert model.timing.ratio == 0.5
    assert model.ties == {"several": 0.5, "all": 0.25, "depths_on_average": (2 + 1 + 3 + 1) / 4}


def test_examples_are_what_gains_most_but_not_the_shortest() -> None:
    gains = made().gains(2)
    assert [(one.line, one.translations) for one in gains] == [
        (2, {"2-1": ("two\tof the four lines at b", 30), "1-2": ("two\tof the four lines at c", 20)})
    ]
    assert [one.line for one in made().gains(4)] == [2, 4]
    assert [one.spread for one in made().gains(4)] == [10, 75]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[Translator]:
    folder = tmp_path_factory.mktemp("family")
    deep = DepthMenu.of([SubNetwork.prefix(2, 2), SubNetwork.prefix(2, 1)])
    return [save_model(folder / "deep", 2, deep), save_model(folder / "shallow", 1)]


def test_a_trained_model_gains_by_the_best_depths(toy_run: Path) -> None:
    translator = Translator.load(toy_run, engine="torch", device="cpu")
    pairs = zip(toy_pairs(40, 5), toy_pairs(40, 6), strict=True)
    sources, references = zip(*((f"{a[:-1]} {b}", f"{c[:-1]} {d}") for (a, c), (b, d) in pairs), strict=True)
    (model,) = oracle({"toy": translator}, sources, references, RunOptions(repeats=2)).models
    assert model.label == "toy"
    assert sum(one.count for one in model.shares) == 40
    assert sum(one.count > 0 for one in model.shares) > 1
    assert model.choices["oracle"].chrf > max(one.chrf for one in model.shares)
    assert model.choices["deepest"].name == translator.menu.deepest.name == "2-2"
    assert len(model.timing.oracle) == len(model.timing.deepest) == 2
    assert min(model.timing.oracle + model.timing.deepest) > 0


def test_a_family_beside_a_model(members: list[Translator]) -> None:
    said = io.StringIO()
    show_progress(Console(file=said, width=200))
    try:
        both = {"individual": members, "alone": members[1]}
        result = oracle(both, SOURCES, REFERENCES, RunOptions(source_name="some/where/test.en"))
    finally:
        show_progress(Console(quiet=True))
    family, alone = result.models
    assert family.table.depths == ("1-1", "2-1", "2-2")
    assert family.layers == ((1, 1), (2, 1), (2, 2))
    assert family.deepest == 2
    assert family.table.outputs == translate_every_depth(members, SOURCES, REFERENCES).outputs
    assert alone.table.depths == ("1-1",)
    assert alone.timing.ratio == 1
    assert alone.ties["all"] == 1
    assert (result.conditions.source_file, result.conditions.lines) == ("test.en", len(SOURCES))
    assert said.getvalue().count("timed passes: 6 of 6") == 1  # three of each


def test_what_is_refused(members: list[Translator]) -> None:
    with pytest.raises(UserError, match="0 passes"):
        oracle({"alone": members[1]}, SOURCES, REFERENCES, RunOptions(repeats=0))
    with pytest.raises(UserError, match="at least one model"):
        oracle({}, SOURCES, REFERENCES)
    with pytest.raises(UserError, match="lines"):
        oracle({"alone": members[1]}, SOURCES, REFERENCES[1:])


def test_the_lines_of_the_tsv() -> None:
    header, *rows = (line.split("\t") for line in lines(made()).splitlines())
    assert header == ["line", "best depth", "chrF", "chrF at the deepest", "source", "best output"]
    assert rows[1] == ["2", "2-1", "30.00", "20.00", "two of the four lines", "two of the four lines at b"]
    assert [row[1] for row in rows] == ["1-1", "2-1", "1-1", "2-1"]
    assert {len(row) for row in rows} == {6}


def test_each_model_has_a_picture_on_one_scale() -> None:
    (alone,) = oracle_report(make_result(made())).figures()
    first, second = oracle_report(make_result(made(), made("b", [[1, 2, 3]] * 4))).figures()
    assert (alone.name, first.name, second.name) == ("distribution", "distribution-tied", "distribution-b")
    png, svg = draw(alone)
    assert imread(io.BytesIO(png)).shape[1] >= 500
    assert "<title>2-1: 50.0 % of the sentences</title>" in svg
    assert draw(alone) == (png, svg)
    assert draw(first)[1] != svg  # where 100 % is the darkest, 50 % is lighter


def write_oracle_report(result: OracleResult, folder: Path) -> Path:
    return write_report(oracle_report(result), folder, "oracle.json", stale=("oracle*.tsv", "distribution*.png"))


def test_the_folder_of_a_report(tmp_path: Path) -> None:
    write_oracle_report(make_result(made("runs/a"), made("runs a")), tmp_path)
    files = {"index.html", "oracle.json"}
    of_models = {
        f"{name}runs_a{number}.{kind}"
        for name, kind in (("oracle.", "tsv"), ("distribution-", "png"))
        for number in ("", "-2")
    }
    assert {path.name for path in tmp_path.iterdir()} == files | of_models
    write_oracle_report(make_result(made("runs/a")), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == files | {"oracle.tsv", "distribution.png"}
    (model,) = json.loads((tmp_path / "oracle.json").read_text("utf-8"))["models"]
    assert model["time_ratio"] == 0.5
    assert model["choices"]["oracle"]["chrf"] == 62.5
    assert [one["count"] for one in model["depths"]] == [2, 2, 0]


def test_the_page_needs_nothing_from_outside_and_shows_text_as_text(tmp_path: Path) -> None:
    chrf = [[60.0, 40.0, 50.0], *CHRF[1:]]
    page = write_oracle_report(make_result(made("a & b", chrf), made("plain")), tmp_path).read_text("utf-8")
    assert "http://" not in page
    assert "https://" not in page
    for link in re.findall(r'(?:src|href)="([^"]*)', page):  # a mark within a chart, or a file of the folder
        assert link.startswith("#") or (tmp_path / link).is_file()
    assert "&lt;b&gt;one&lt;/b&gt; of the four lines at a" in page
    assert "<b>one</b>" not in page
    assert "a &amp; b" in page
    for figure in ("62.50", "50 %", "its|signature"):
        assert figure in page


def test_a_page_of_one_depth(tmp_path: Path) -> None:
    page = write_oracle_report(make_result(made(chrf=[[1.0], [2.0], [3.0], [4.0]])), tmp_path).read_text("utf-8")
    assert "one depth only" in page
    assert "no other depth does better" in page


def test_a_folder_that_cannot_be_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", "utf-8")
    with pytest.raises(UserError, match="give another folder"):
        write_oracle_report(make_result(made()), tmp_path / "taken")


def test_the_same_oracle_gives_the_same_bytes() -> None:
    first, again = (oracle_report(make_result(made(), made("other"))) for _ in range(2))
    assert to_html(first) == to_html(again)
    assert [draw(figure) for figure in first.figures()] == [draw(figure) for figure in again.figures()]


def test_the_tables_are_plain_in_a_pipe() -> None:
    stream = io.StringIO()
    to_terminal(oracle_report(make_result(made("model [bold]"), made("other"))), Console(file=stream, width=90))
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "…" not in text
    assert "model [bold]" in text
    assert re.search(r"^oracle +each at its best +\d+\.\d\d +62\.50 +1\.50 +1\.00 +2\.00 +0\.50 *$", text, re.MULTILINE)
    assert re.search(r"^deepest +1-2 +\d+\.\d\d +41\.25 +1\.00 +2\.00 +4\.00 +1\.00 *$", text, re.MULTILINE)
    assert re.search(r"^1 +50\.0 +0\.0 +50\.0 *\n2 +50\.0 +50\.0 *\nall +100\.0 +0\.0 +100\.0 *$", text, re.MULTILINE)
    assert "tie for the best on 50% of the sentences, all 3 on 25%" in text

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from balanced_page import BalancedPage
from constructed_sweeps import SOURCES, make_result, measurement, single, with_holes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.image import imread
from matplotlib.path import Path as MatplotlibPath
from rich.console import Console

from anydepth.artifact import bundled_model
from anydepth.depth.subnetwork import parse_depth
from anydepth.errors import UserError
from anydepth.evaluate.figures import draw
from anydepth.evaluate.render import to_html, to_terminal
from anydepth.evaluate.render import write_report as write
from anydepth.evaluate.sweep import ModelSweep, SweepResult
from anydepth.evaluate.sweep_report import barely_worse_trade, fastest_trade, sweep_report


def big_grid(label: str) -> ModelSweep:
    return ModelSweep(label, tuple(measurement(n, m, n + 2.0 * m) for n in range(1, 7) for m in range(1, 7)))


RESULTS = {
    "holes": make_result(with_holes()),
    "single": make_result(single()),
    "grid": make_result(big_grid("tied")),
    "two models": make_result(with_holes("runs/a"), with_holes("runs a", best=SOURCES)),
    "nothing shared": make_result(with_holes(), single()),
}


@pytest.fixture(params=RESULTS)
def result(request: pytest.FixtureRequest) -> SweepResult:
    return RESULTS[request.param]


def pixels(png: bytes) -> tuple[int, ...]:
    shape: tuple[int, ...] = imread(io.BytesIO(png)).shape
    return shape


def write_report(result: SweepResult, folder: Path) -> Path:
    return write(sweep_report(result), folder, "sweep.json")


def print_table(result: SweepResult, console: Console) -> None:
    to_terminal(sweep_report(result), console)


def test_every_picture_draws(result: SweepResult) -> None:
    for figure in sweep_report(result).figures():
        png, svg = draw(figure)
        height, width, _ = pixels(png)
        assert height >= 300
        assert width >= 500
        assert "<title>" in svg


def test_no_name_of_a_depth_lies_on_the_line_of_the_front() -> None:
    """With the figures of the bundled model, where names used to."""
    rows = json.loads((bundled_model() / "depths.json").read_text("utf-8"))["depths"]
    depths = []
    for row in rows:
        n, m = parse_depth(row["name"])
        one = measurement(n, m, row["cost"]["seconds_per_sentence"] * len(SOURCES))
        depths.append(replace(one, quality=replace(one.quality, bleu=row["quality"]["bleu"])))
    result = make_result(ModelSweep("pt-en", tuple(depths)))
    figure = next(one for one in sweep_report(result).figures() if one.name == "quality-time")
    canvas = Canvas(figsize=figure.size, dpi=150, layout="compressed")
    renderer = FigureCanvasAgg(canvas).get_renderer()
    figure.draw(canvas)
    (axes,) = canvas.axes
    line = next(one for one in axes.lines if one.get_drawstyle() == "steps-post")
    x, y = (np.repeat(np.asarray(values), 2) for values in line.get_data())
    steps = line.get_transform().transform_path(MatplotlibPath(np.column_stack([x[1:], y[:-1]])))
    names = {text.get_text(): text.get_window_extent(renderer) for text in axes.texts}
    assert names.keys() == {row["name"] for row in rows}
    assert not [name for name, box in names.items() if steps.intersects_bbox(box, filled=False)]


def test_the_same_sweep_gives_the_same_bytes() -> None:
    first, again = (sweep_report(RESULTS["two models"]) for _ in range(2))
    assert to_html(first) == to_html(again)
    charts = [{figure.name: draw(figure) for figure in report.figures()} for report in (first, again)]
    assert charts[0] == charts[1]
    assert "quality-time" in charts[0]


def test_points_and_cells_say_their_values() -> None:
    (points, bleu, time) = (draw(figure)[1] for figure in sweep_report(RESULTS["single"]).figures())
    assert "<title>vanilla 6-6: 100.00 BLEU, 500.0 ms</title>" in points
    assert "<title>6-6: 100.0 BLEU</title>" in bleu
    assert "<title>6-6: 500.0 ms</title>" in time


def test_page_is_whole_and_needs_nothing_from_outside(result: SweepResult, tmp_path: Path) -> None:
    page = write_report(result, tmp_path).read_text("utf-8")
    parsed = BalancedPage(page)
    assert "http://" not in page
    assert "https://" not in page
    for name, value in parsed.attributes:
        if name in ("src", "href"):  # a mark within a chart, or a file of the folder
            assert value is not None
            assert value.startswith("#") or (tmp_path / unquote(value)).is_file()
    for label in result.labels:
        assert label in parsed.text
    for signature in result.quality.signatures.values():
        assert signature in parsed.text


def test_sentences_cannot_become_markup(tmp_path: Path) -> None:
    page = write_report(RESULTS["holes"], tmp_path).read_text("utf-8")
    parsed = BalancedPage(page)
    assert "script" not in parsed.tags
    assert "<script>alert(1)</script> & mehr" in parsed.text
    assert "more <b>here</b>" in parsed.text


def test_front_is_marked_in_text(tmp_path: Path) -> None:
    page = write_report(RESULTS["holes"], tmp_path).read_text("utf-8")
    marked = re.findall(r'<td class="left">(\d-\d)</td>(?:<td>[^<]*</td>)*<td>★</td>', page)
    assert marked == ["1-1", "2-1", "2-2"]


def test_files_of_the_folder(tmp_path: Path) -> None:
    write_report(RESULTS["two models"], tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    depths = ("1-1", "1-2", "2-1", "2-2", "3-1")
    outputs = {f"outputs/{stem}.{depth}.txt" for stem in ("runs_a", "runs_a-2") for depth in depths}
    pictures = {f"{name}-{stem}.png" for name in ("bleu", "time") for stem in ("runs_a", "runs_a-2")}
    pictures |= {"quality-time.png", "difference-runs_a-2.png"}
    assert names == outputs | pictures | {"index.html", "sweep.json"}
    assert (tmp_path / "outputs/runs_a-2.2-2.txt").read_text("utf-8").splitlines() == list(SOURCES)
    assert json.loads((tmp_path / "sweep.json").read_text("utf-8"))["comparison"]["wins"]["runs/a"] == 1


def test_report_again_overwrites(tmp_path: Path) -> None:
    write_report(RESULTS["holes"], tmp_path)
    page = write_report(RESULTS["single"], tmp_path).read_text("utf-8")
    assert "vanilla" in page
    assert "2-1" not in BalancedPage(page).text


def test_report_to_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", "utf-8")
    with pytest.raises(UserError, match="give another folder"):
        write_report(RESULTS["single"], tmp_path / "taken")


def test_headline_numbers() -> None:
    model = with_holes()
    trade = fastest_trade(model)
    assert trade is not None
    assert (trade.depth.depth, trade.best.depth, trade.speedup) == ("1-1", "2-2", 4.0)
    assert trade.loss == pytest.approx(model.best.bleu - model.fastest.bleu)
    assert fastest_trade(single()) is None


def test_headline_names_a_faster_depth_that_is_hardly_worse() -> None:
    assert barely_worse_trade(with_holes()) is None
    assert barely_worse_trade(single()) is None
    bleu_and_seconds = {(6, 6): (30.0, 9.0), (6, 2): (29.1, 4.0), (3, 3): (29.5, 5.0), (1, 1): (20.0, 2.0)}
    depths = []
    for (n, m), (bleu, seconds) in bleu_and_seconds.items():
        one = measurement(n, m, seconds)
        depths.append(replace(one, quality=replace(one.quality, bleu=bleu)))
    trade = barely_worse_trade(ModelSweep("tied", tuple(depths)))
    assert trade is not None
    assert (trade.depth.depth, trade.best.depth, trade.speedup) == ("6-2", "6-6", 2.25)
    assert trade.loss == pytest.approx(0.9)


@pytest.mark.parametrize("width", [80, 100])
def test_tables_fit_and_are_plain_in_a_pipe(result: SweepResult, width: int) -> None:
    stream = io.StringIO()
    print_table(result, Console(file=stream, width=width))
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "…" not in text
    tables = [line for line in text.splitlines() if re.match(r"(depth |n \\|\d-\d |\d +\d|mean)", line)]
    assert all(len(line.rstrip()) <= width for line in tables)
    for model in result.models:
        for one in model.depths:
            star = r"\s+★" if one.depth in model.front_depths else r""
            assert re.search(rf"^{one.depth}\s+{one.bleu:.2f}\s.*%{star}\s*$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [80, 100])
def test_every_line_fits_a_terminal(result: SweepResult, width: int) -> None:
    stream = io.StringIO()
    print_table(result, Console(file=stream, width=width, force_terminal=True, no_color=True))
    text = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    assert all(len(line.rstrip()) <= width for line in text.splitlines())


def test_brackets_in_a_label_are_no_markup() -> None:
    stream = io.StringIO()
    print_table(make_result(single("model [bold]")), Console(file=stream, width=100))
    assert "model [bold]" in stream.getvalue()


def test_unsteady_or_disturbed_times_are_doubted_everywhere(tmp_path: Path) -> None:
    steady = RESULTS["holes"]
    assert steady.doubt is None
    first, *others = steady.models[0].depths
    unsteady = replace(first, seconds_of_passes=(1.0, 0.9, 1.4))
    disturbed = replace(
        steady,
        models=(ModelSweep("tied", (unsteady, *others)),),
        conditions=replace(steady.conditions, other_load=1000.0),
    )
    doubt = (
        "Do not trust these times: other programs kept 1000.0 cores busy and passes over 1 of 5 depths differ by up "
    )
    doubt += "to 50%."
    assert disturbed.doubt == doubt
    assert disturbed.to_json()["doubt"] == doubt
    assert doubt in write_report(disturbed, tmp_path).read_text("utf-8")
    stream = io.StringIO()
    print_table(disturbed, Console(file=stream, width=300))
    assert doubt in stream.getvalue()


def test_engine_compute_type_and_threads_are_named(tmp_path: Path) -> None:
    result = RESULTS["holes"]
    native = replace(result, conditions=replace(result.conditions, engine="native"))
    stream = io.StringIO()
    print_table(native, Console(file=stream, width=300))
    for text in (stream.getvalue(), write_report(native, tmp_path).read_text("utf-8")):
        assert "native engine, int8, cpu, 2 threads" in text
    assert replace(result.conditions, engine="ctranslate2 int8").engines.startswith("ctranslate2 engine, int8")
    assert result.conditions.engines.startswith("torch engine, float32")

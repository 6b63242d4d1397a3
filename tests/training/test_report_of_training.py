"""The pictures of trainings and their page."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from balanced_page import BalancedPage
from constructed_logs import gated, latent_run, norms, static_run, train_record
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from anydepth.errors import UserError
from anydepth.evaluate.figures import SOFT, draw, shortened
from anydepth.evaluate.render import to_html, write_report
from anydepth.evaluate.report import Figure
from anydepth.training import figures as training_figures
from anydepth.training.figures import layer_ticks, log_scale, log_ticks
from anydepth.training.report import STALE, training_report
from anydepth.training.run_log import TrainingRun

pytestmark = pytest.mark.slow

WITHOUT_GATES = {"gradients.png", "gradients-bottom.png", "loss.png"}
GATES = {"samples.png", "utilisation.png", "samples-over-training.png", "depth.png"}
DIVERGED = {"kind": "diverged", "step": 307, "layer": "decoder.3"}
RED, GREEN, BLUE = 0, 1, 2


def image(figure: Figure) -> np.ndarray:
    return imread(io.BytesIO(draw(figure)[0]))[:, :, :3]


def charts(runs: list[TrainingRun]) -> set[str]:
    """The files of the charts, each of which can be drawn."""
    figures = training_report(runs).figures()
    assert all(draw(figure)[0].startswith(b"\x89PNG") for figure in figures)
    return {f"{figure.name}.png" for figure in figures}


def write(runs: list[TrainingRun], folder: Path) -> Path:
    return write_report(training_report(runs), folder, stale=STALE)


def test_a_run_without_gates_has_no_pictures_of_gates():
    assert charts([static_run()]) == WITHOUT_GATES
    assert charts([static_run(), latent_run()]) == WITHOUT_GATES | GATES


@pytest.mark.parametrize(("layers", "steps"), [(1, [25]), (100, [25, 50])])
def test_every_picture_draws_for_few_and_many_layers(layers, steps):
    records = [gated(step, {"all": [step / 50] * layers}, layers=norms(1, layers)) for step in steps]
    for figure in training_report([TrainingRun.of("deep", records)]).figures():
        height, width, _ = image(figure).shape
        assert height >= 200, figure.name
        assert width >= 500, figure.name


def test_four_runs_are_as_wide_as_a_page_and_one_colour_scale_fits_all():
    runs = [static_run(f"run {number}") for number in range(4)]
    assert image(training_figures.gradient_maps(runs)).shape[1] == 1875
    norm = log_scale([np.array([[1e-2, 0.0]]), np.array([[10.0, np.nan]])])
    assert (norm.vmin, norm.vmax) == (1e-2, 10.0)


def test_a_closed_gate_does_not_stretch_the_scale():
    grid = np.full((10, 100), 0.5)
    grid[3, :] = 1e-14
    norm = log_scale([grid])
    assert (norm.vmin, norm.vmax) == (pytest.approx(0.5e-4), 0.5)


def test_an_explosion_does_not_hide_the_rest():
    grid = np.full((10, 100), 0.5)
    grid[0, 0], grid[1, :5] = 1e30, 2.0
    assert log_scale([grid]).vmax < 1e3


def test_selected_layers_are_dark_and_skipped_ones_light():
    """The same picture with all layers selected has far more dark blue than with none."""

    def darkness(value: float) -> float:
        run = TrainingRun.of("a", [gated(25, {"all": [value] * 24})])
        picture = image(training_figures.sample_maps([run]))
        return float(((picture[:, :, BLUE] < 0.5) & (picture[:, :, RED] < 0.1)).mean())

    assert darkness(1.0) > 0.05 + darkness(0.0)


def test_a_diverged_run_has_a_mark_in_its_curve():
    colour = np.array([0x00, 0x72, 0xB2]) / 255

    def marked(end: dict | None) -> int:
        close = np.abs(image(training_figures.loss_curves([static_run(end=end)])) - colour).max(axis=2) < 0.02
        return int(close.sum())

    assert marked(DIVERGED) > 50 + marked(None)


@pytest.mark.filterwarnings("error")
def test_losses_that_explode_or_are_never_finite_still_draw():
    exploding = TrainingRun.of("x", [train_record(25, 8.0), train_record(50, 1e12), DIVERGED])
    hopeless = TrainingRun.of("y", [train_record(25, float("nan")), DIVERGED])
    for run in (exploding, hopeless):
        assert charts([run]) == WITHOUT_GATES


def test_no_gradient_at_all_still_draws():
    none = {"encoder.1": 0.0, "decoder.1": 0.0}
    run = TrainingRun.of("frozen", [train_record(25, 3.0, none), train_record(50, 3.0, none)])
    assert charts([run]) == WITHOUT_GATES


def test_an_encoder_alone_has_its_own_lowest_layers():
    run = TrainingRun.of("mlm", [gated(25, {"all": [0.5] * 3}, side="encoder", layers=norms(3, 0))])
    assert charts([run]) == WITHOUT_GATES | GATES


def test_rows_without_pairs_have_a_name_and_a_number():
    run = TrainingRun.of("mlm", [gated(25, {"all": [0.9, 0.1, 0.9]}, side="encoder")])
    samples, probabilities = run.last_gates("encoder").items()
    assert (samples[0], list(samples[1])) == ("sample z, step 25", ["all"])
    assert (probabilities[0], list(probabilities[1])) == ("probability, step 25", ["all (2)"])


def test_the_table_says_which_loss_it_has():
    loss = TrainingRun.of("selector", [{"kind": "train", "step": 5, "loss": 0.25, "layers": {}}])
    for runs, header in (
        ([static_run()], "training NLL"),
        ([loss], "training loss"),
        ([static_run(), loss], "training NLL or loss"),
    ):
        assert f"<th>{header}</th>" in to_html(training_report(runs))


def test_a_curve_of_depth_keeps_away_from_the_frame():
    """All layers are selected throughout: there is a colour of the curve, and white above and below it."""
    run = TrainingRun.of("a", [gated(step, {"all": [1.0] * 4}) for step in (25, 50)])
    picture = image(training_figures.depth_curves([run]))
    panel = picture[: int(0.7 * len(picture)), : picture.shape[1] // 2]
    colour = np.array([0x00, 0x72, 0xB2]) / 255
    rows = np.flatnonzero((np.abs(panel - colour).max(axis=2) < 0.02).any(axis=1))
    grey = np.abs(panel - np.array(to_rgb(SOFT))).max(axis=2) < 0.1
    frame = np.flatnonzero(grey.mean(axis=0) > 0.5)  # the columns of the axis on the left
    top = np.flatnonzero(grey[:, frame].any(axis=1)).min()
    assert rows.min() > top + 5


def test_same_log_gives_the_same_pictures():
    for chart in (training_figures.sample_maps, training_figures.gradient_maps, training_figures.bottom_gradients):
        assert draw(chart([latent_run()])) == draw(chart([latent_run()]))


def test_charts_say_their_values_to_the_pointer():
    run = TrainingRun.of("a", [gated(25, {"all": [0.9, 0.1]}, layers=norms(1, 2)), train_record(50, 2.5, norms(1, 2))])
    for chart, tip in (
        (training_figures.gradient_maps, "layer 2, steps 0 to 25: 2"),
        (training_figures.sample_maps, "all, layer 1: 0.90"),
        (training_figures.loss_curves, "a, step 50: 2.5"),
        (training_figures.bottom_gradients, "a, layer 2, step 50: 2"),
    ):
        assert f"<title>{tip}</title>" in draw(chart([run]))[1]


def test_page_is_whole_and_names_are_text(tmp_path):
    odd = ["_$x^2$ <script>alert(1)</script>", "naïve 漢字 & co", "$", "a" * 200]
    several = [latent_run(odd[0]), static_run(odd[1], end=DIVERGED), latent_run(odd[2], pairs=("all",))]
    page = write([*several, static_run(odd[3])], tmp_path).read_text("utf-8")
    parsed = BalancedPage(page)
    assert "script" not in parsed.tags
    for label in odd:
        assert label in parsed.text
    assert "diverged at step 307 (decoder.3)" in parsed.text
    assert parsed.tags.count("figure") == 7
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert {path.name for path in tmp_path.iterdir()} == WITHOUT_GATES | GATES | {"index.html"}


def test_pictures_of_other_runs_do_not_stay(tmp_path):
    write([latent_run()], tmp_path)
    write([static_run()], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == WITHOUT_GATES | {"index.html"}


def test_a_folder_that_cannot_be_is_one_clear_line(tmp_path):
    (tmp_path / "taken").write_text("", "utf-8")
    with pytest.raises(UserError, match="give another folder"):
        write([static_run()], tmp_path / "taken")


def test_ticks():
    assert layer_ticks(1) == [1]
    assert layer_ticks(6) == [1, 2, 3, 4, 5, 6]
    assert layer_ticks(12) == [2, 4, 6, 8, 10, 12]
    assert layer_ticks(24) == [1, 4, 8, 12, 16, 20, 24]
    assert layer_ticks(100) == [1, 20, 40, 60, 80, 100]
    assert layer_ticks(1000)[0] == 1
    np.testing.assert_allclose(log_ticks(0.05, 1.5), [0.05, 0.1, 0.2, 0.5, 1.0])
    np.testing.assert_allclose(log_ticks(1e-9, 1.0), [1e-9, 1e-7, 1e-5, 1e-3, 1e-1])
    assert log_ticks(0.31, 0.32) == [0.31, 0.32]


def test_a_long_name_keeps_both_ends():
    assert shortened("short  name", 20) == "short name"
    assert shortened("abcdefghij" * 3, 10) == "abcde…ghij"

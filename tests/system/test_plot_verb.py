"""The verb `plot` as a user runs it."""

import shutil

import pytest
from conftest import anydepth, assert_one_line

PICTURES = ["gradients-bottom.png", "gradients.png", "index.html", "loss.png"]


@pytest.fixture
def run(toy_run, tmp_path):
    """The log of a real run in a folder that may be written to."""
    (tmp_path / "run").mkdir()
    shutil.copy(toy_run / "log.jsonl", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.slow
def test_plot_of_a_real_run_is_in_its_folder(run):
    done = anydepth("plot", run, fresh=True)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == f"report: {run / 'plots' / 'index.html'}\n"
    assert sorted(path.name for path in (run / "plots").iterdir()) == PICTURES
    page = (run / "plots" / "index.html").read_text("utf-8")
    assert "encoder 2, decoder 2" in page
    assert "2-2 " in page


def test_plot_of_several_runs_with_odd_names_again_and_again(run, tmp_path, here):
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"kind": "train", "step"')
    for _ in range(2):
        done = here("plot", run, f"_$x^2$ <b>={run}", "--out", tmp_path / "out")
        assert done.returncode == 0, done.stderr
    assert "_$x^2$ &lt;b&gt;" in (tmp_path / "out" / "index.html").read_text("utf-8")
    assert not (run / "plots").exists()


def test_plot_refuses_what_it_cannot_draw(run, tmp_path, here):
    assert_one_line(here("plot", tmp_path / "nowhere"), "there is no run at")
    assert_one_line(here("plot", "a,b"), "there is no run at a,b")
    assert_one_line(here("plot", run, f"x={tmp_path / 'nowhere'}"), "there is no run at")
    assert_one_line(here("plot", run / "log.jsonl"), "not the folder of a run")
    assert_one_line(here("plot", tmp_path), "not the folder of a run: it has no log.jsonl")
    assert_one_line(here("plot", f"both={run},{run}"), "both has 2 runs")
    assert_one_line(here("plot", *[f"{number}={run}" for number in range(7)]), "7 runs are too many", "at most 6")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert_one_line(here("plot", run, "--out", tmp_path / "mine"), "not empty", "--out")
    assert_one_line(here("plot"), "RUN")
    lines = (run / "log.jsonl").read_text("utf-8").splitlines()
    for text, words in {
        "": "no record of training",
        lines[0][:40]: "no record",
        "\n".join(["{", *lines]): "line 1",
    }.items():
        (run / "log.jsonl").write_text(text, "utf-8")
        assert_one_line(here("plot", run), "log.jsonl", words)

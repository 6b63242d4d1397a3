"""The verb `oracle` as a user runs it."""

import csv
import json
from pathlib import Path

import pytest
from conftest import anydepth, assert_one_line, save_changed, write_corpus

import anydepth as package
from anydepth.evaluate.metrics import sentence_chrf

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    source, reference = write_corpus(tmp_path_factory.mktemp("test"), 30, "test", seed=5)
    return ["--source", source, "--reference", reference]


def read_tsv(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_oracle_leaves_a_report_that_holds(toy_run, tmp_path, options):
    done = anydepth("oracle", toy_run, *options, "--out", tmp_path / "report", "--beam", 2, "--repeats", 2, fresh=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    assert "each at its best" in said
    assert "n \\ m" in said
    assert f"report: {tmp_path / 'report' / 'index.html'}" in done.stderr.decode()
    data = json.loads((tmp_path / "report" / "oracle.json").read_text())
    assert (data["conditions"]["lines"], data["conditions"]["beam"], data["conditions"]["repeats"]) == (30, 2, 2)
    (model,) = data["models"]
    assert model["label"] == "run"
    assert [one["depth"] for one in model["depths"]] == ["1-1", "2-1", "1-2", "2-2"]
    _, *lines = read_tsv(tmp_path / "report" / "oracle.tsv")
    assert [int(line[0]) for line in lines] == list(range(1, 31))
    counted = {one["depth"]: one["count"] for one in model["depths"]}
    assert counted == {depth: sum(line[1] == depth for line in lines) for depth in counted}

    translator = package.load(toy_run)
    references = Path(options[3]).read_text("utf-8").splitlines()
    _, depth, chrf, _, source, output = lines[7]
    assert translator.translate([source], depth=depth, beam=2) == [output]
    assert float(chrf) == pytest.approx(sentence_chrf([output], references[7:8])[0], abs=0.01)


def test_oracle_sets_models_side_by_side_and_replaces_its_own_report(toy_run, tmp_path, options):
    save_changed(toy_run, tmp_path / "other")
    out = ["--out", tmp_path / "report"]
    of_two = {name for label in ("run", "changed") for name in (f"oracle.{label}.tsv", f"distribution-{label}.png")}
    both, of_one = [toy_run, f"changed={tmp_path / 'other'}"], {"oracle.tsv", "distribution.png"}
    for models, tables in ((both, of_two), ([toy_run], of_one)):
        done = anydepth("oracle", *models, *options, *out)
        assert done.returncode == 0, done.stderr
        names = {path.name for path in (tmp_path / "report").iterdir()}
        assert names == {"index.html", "oracle.json"} | tables


def test_oracle_refuses_what_it_cannot_do(toy_run, tmp_path, options):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sweep.json").write_text("{}")
    done = anydepth("oracle", toy_run, *options, "--out", tmp_path / "mine")
    assert_one_line(done, "not empty and not an oracle report", "--out")
    assert not (tmp_path / "mine" / "oracle.json").exists()
    done = anydepth("oracle", f"two={toy_run},{toy_run}", *options, "--out", tmp_path / "new")
    assert_one_line(done, "two: ", "both have depth 1-1")


def test_oracle_cuts_long_lines_if_told_to(toy_run, tmp_path):
    lines = tmp_path / "long"
    lines.write_text(f"le chat dort.\n{'le chat ' * 100}\n")
    command = ["oracle", toy_run, "--source", lines, "--reference", lines, "--out", tmp_path / "new"]
    assert_one_line(anydepth(*command), "line 2 has", "--cut-long")
    done = anydepth(*command, "--cut-long")
    assert done.returncode == 0, done.stderr

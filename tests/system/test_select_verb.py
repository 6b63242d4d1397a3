"""`anydepth select` as a user runs it, all of it for real on few sentences, and `--depth auto` after it."""

import json
import logging
import os
import shutil
from dataclasses import replace

import pytest
from conftest import anydepth, assert_one_line, toy_pairs

import anydepth as package
from anydepth.cli.select import select as verb
from anydepth.errors import UserError
from anydepth.evaluate.every_depth import EveryDepth, split_by_source, take_rows
from anydepth.files import only_process
from anydepth.selectors import data as inputs
from anydepth.selectors.data import ParallelText, read_sample, translate_sample

pytestmark = pytest.mark.slow

TINY = ("--trials", 1, "--seeds", 2, "--steps", 20, "--threads", 1, "--sentences", 100)


def write_long_pairs(folder, name, count, seed):
    """Two sentences to a line, which the toy model gets wrong, at each depth in its own way."""
    pairs = zip(toy_pairs(count, seed), toy_pairs(count, seed + 1), strict=True)
    lines = [(f"{a[:-1]} {b}", f"{c[:-1]} {d}") for (a, c), (b, d) in pairs]
    files = folder / f"{name}.fr", folder / f"{name}.en"
    for side, path in enumerate(files):
        path.write_text("".join(f"{line[side]}\n" for line in lines), "utf-8")
    return files


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("select")


@pytest.fixture(scope="module")
def files(place):
    return write_long_pairs(place, "train", 150, seed=11)


@pytest.fixture(scope="module")
def environment(place):
    return dict(os.environ) | {"XDG_CACHE_HOME": str(place / "cache")}


@pytest.fixture(scope="module")
def selected(toy_run, place, files, environment):
    """The verb's whole work on a copy of the model: what it said and the run's folder."""
    run = place / "run"
    shutil.copytree(toy_run / "model", run / "model")
    done = select(run, files, environment, fresh=True)
    assert done.returncode == 0, done.stderr.decode()
    return done, run


def select(model, files, environment, *options, **more):
    files = ("--source", files[0], "--reference", files[1])
    return anydepth("select", model, *files, *TINY, *options, env=environment, **more)


def read_record(folder):
    return json.loads((folder / "select.json").read_text("utf-8"))


def test_what_it_leaves_and_says(selected, files):
    done, run = selected
    said, table = done.stderr.decode(), done.stdout.decode()
    folder = run / "model-select"
    record = read_record(folder)["result"]
    for name in ("index.html", "curve.png", "depths.png", "table/table.json"):
        assert (folder / name).is_file()
    assert "calibrating first" in said
    assert f"saved in {run / 'model'}" in said
    assert f"try: anydepth translate {run} --depth auto" in said
    assert [curve["kind"] for curve in record["curves"]] == ["likelihood", "values", "labels"]
    for curve in record["curves"]:
        assert f"{curve['kind']}: {curve['verdict']}" in table
        assert all(len(point["seeds"]) == 2 for point in curve["points"])
    assert record["verdict"] in table
    labels = next(curve for curve in record["curves"] if curve["kind"] == "labels")
    assert 0.5 in [point["threshold"] for point in labels["points"]]
    parts = split_by_source(EveryDepth.load(folder / "table"), seed=1)
    assert record["sentences"] == {name: len(part) for name, part in parts.items()}
    assert sum(record["sentences"].values()) == 100


def test_depth_auto_translates_at_the_depths_that_were_measured(selected, files):
    _, run = selected
    record = read_record(run / "model-select")["result"]
    translator = package.load(run, engine="auto")  # as the command line does
    selector = translator.selector
    assert (selector.kind, selector.threshold) == (record["saved"]["kind"], record["saved"]["threshold"])
    assert {point.threshold for point in selector.points} >= {selector.threshold}
    test = split_by_source(EveryDepth.load(run / "model-select" / "table"), seed=1)["test"]
    found = translator.hypotheses(test.sources, depth="auto", batch_size=1)
    shares = [sum(one.depth == depth for (one,) in found) / len(test) for depth in test.depths]
    assert shares == pytest.approx(record["saved"]["share_k"])
    one_by_one = ("translate", run, "--depth", "auto", "--batch-size", 1)  # batches may run on another engine
    done = anydepth(*one_by_one, stdin="\n".join(test.sources).encode())
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == [one.text for (one,) in found]


def test_the_same_command_again_reuses_its_work(selected, files, environment):
    _, run = selected
    before = read_record(run / "model-select")
    written = (run / "model-select" / "table" / "scores.safetensors").stat().st_mtime_ns
    (run / "model" / "selector" / "config.json").write_text("{")  # a damaged one must not stand in the way
    again = select(run, files, environment)
    assert again.returncode == 0, again.stderr
    said = again.stderr.decode()
    assert "translations at every depth: from" in said
    assert "calibrat" not in said
    assert (run / "model-select" / "table" / "scores.safetensors").stat().st_mtime_ns == written
    after = read_record(run / "model-select")
    assert package.load(run, engine="torch").selector.kind == after["result"]["saved"]["kind"]
    assert after["key"] == before["key"]
    for one, other in zip(before["result"]["curves"], after["result"]["curves"], strict=True):
        assert [point["bleu"] for point in one["points"]] == pytest.approx([point["bleu"] for point in other["points"]])


def test_other_sentences_are_translated_anew_and_a_dev_set_too(selected, place, environment):
    _, run = selected
    out = shutil.copytree(run / "model-select", place / "elsewhere")
    others, dev = (write_long_pairs(place, name, 80, seed) for name, seed in (("other", 31), ("dev", 41)))
    options = ("--out", out, "--kind", "values", "--dev-source", dev[0], "--dev-reference", dev[1])
    done = select(run, others, environment, *options)
    assert done.returncode == 0, done.stderr
    assert "translating anew" in done.stderr.decode()
    assert len(EveryDepth.load(out / "table")) == 80
    assert len(EveryDepth.load(out / "dev")) == 80
    record = read_record(out)["result"]
    assert record["fine_tuned_on"] == "dev.fr"
    assert [curve["kind"] for curve in record["curves"]] == ["values"]


def test_translations_go_on_after_the_last_whole_piece(toy_run, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PIECE", 8)
    translator = package.load(toy_run, engine="torch")
    pairs = toy_pairs(20, seed=51)
    sample = ParallelText(tuple(one for one, _ in pairs), tuple(other for _, other in pairs), "dev.fr", "dev.en")
    options = {"beam": 1, "batch_size": 8}
    whole = translate_sample(translator, sample, tmp_path / "table", **options)
    assert whole.sources == sample.sources
    assert [list(lines) for lines in whole.outputs] == [
        translator.translate(sample.sources, depth=depth) for depth in whole.depths
    ]
    first = take_rows(whole, range(8))
    marked = replace(first, outputs=tuple(("from the first run",) * 8 for _ in whole.depths))
    marked.save(tmp_path / "killed-pieces" / "00001")
    resumed = translate_sample(translator, sample, tmp_path / "killed", **options)
    assert resumed.outputs[3] == (*marked.outputs[3], *whole.outputs[3][8:])
    assert EveryDepth.load(tmp_path / "killed").outputs == resumed.outputs
    assert not (tmp_path / "killed-pieces").exists()


def test_lines_that_cannot_be_translated_are_left_out(toy_run, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("anydepth"), "propagate", True)  # whatever a test before has shown
    caplog.set_level(logging.INFO, "anydepth")
    source, reference = tmp_path / "a.fr", tmp_path / "a.en"
    source.write_text(f"le chat dort.\n\nun chien.\n{'le chat ' * 100}\nici.\n")
    reference.write_text("the cat sleeps.\nnothing\n\nlong\nhere.\n")
    sample = read_sample(package.load(toy_run, engine="torch"), source, reference)
    assert sample.sources == ("le chat dort.", "ici.")
    assert sample.references == ("the cat sleeps.", "here.")
    assert "3 lines left out" in caplog.text
    reference.write_text("\n" * 5)
    with pytest.raises(UserError, match="no line that can be translated"):
        read_sample(package.load(toy_run, engine="torch"), source, reference)


def test_bad_input_is_one_line(selected, files, environment, tmp_path):
    _, run = selected
    shorter = tmp_path / "shorter"
    shorter.write_text("the cat.\n")
    out = ("--out", tmp_path / "out")
    assert_one_line(select(run, (files[0], shorter), environment, *out), "150 lines", "has 1")
    assert_one_line(select(run, files, environment, *out, "--kind", "luck"), "--kind")
    assert not (tmp_path / "out").exists()


def test_what_is_refused_before_the_work(selected, files, tmp_path):
    _, run = selected
    before = (run / "model" / "selector" / "config.json").read_bytes()
    thesis, out = tmp_path / "thesis", tmp_path / "out"
    thesis.mkdir()
    (thesis / "chapter.txt").write_text("years of work")
    few = write_long_pairs(tmp_path, "few", 6, seed=3)
    with pytest.raises(UserError, match="there is no model"):
        verb(tmp_path / "nowhere", *files, out)
    with pytest.raises(UserError, match="none does not exist"):
        verb(run, tmp_path / "none", files[1], out)
    with pytest.raises(UserError, match="both --dev-source and --dev-reference"):
        verb(run, *files, out, dev_source=files[0])
    with pytest.raises(UserError, match="6 sentences are too few"):
        verb(run, *few, out)
    with pytest.raises(UserError, match=r"not empty .*: give another folder"):
        verb(run, *files, thesis)
    with only_process(tmp_path / "busy", "waiting"):
        (tmp_path / "busy" / "select.json").write_text("{}")
        with pytest.raises(UserError, match="another process is training a selector"):
            verb(run, *files, tmp_path / "busy")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "select.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="newer anydepth"):
        verb(run, *files, tmp_path / "newer")
    assert not out.exists()
    assert os.listdir(thesis) == ["chapter.txt"]
    assert (run / "model" / "selector" / "config.json").read_bytes() == before

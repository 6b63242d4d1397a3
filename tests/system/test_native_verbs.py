"""The native engine on the command line: translate, bench, shortlist, serve's defaults."""

import shutil

import pytest
from conftest import anydepth, assert_one_line, toy_pairs

import anydepth as package

pytestmark = pytest.mark.slow

TEXT = b"le chat dort.\n\nun chien voit le chat.\n"
EXPECTED = b"the cat sleeps.\n\na dog sees the cat.\n"


@pytest.fixture(scope="module")
def model(toy_run, tmp_path_factory):
    return shutil.copytree(toy_run / "model", tmp_path_factory.mktemp("native") / "model")


@pytest.fixture(scope="module")
def listed(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for name, side in (("train.fr", 0), ("train.en", 1)):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in toy_pairs(2500, seed=9)))
    return anydepth(
        "shortlist", model, "--source", folder / "train.fr", "--target", folder / "train.en", fresh=True
    ), folder


@pytest.mark.parametrize("options", [("--speculate", "--batch-size", "1", "--threads", "1"), ("--beam", "3")])
def test_translate_runs_on_it(model, options):
    done = anydepth("translate", model, "--engine", "native", "--depth", "2-2", *options, stdin=TEXT)
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr


def test_by_default_the_fastest_engine_translates(model):
    assert anydepth("translate", model, stdin=TEXT).stdout == EXPECTED
    assert package.load(model, engine="auto").engine.name == "native"


def test_a_shortlist_is_learnt_and_used(model, listed):
    done, _ = listed
    assert done.returncode == 0, done.stderr
    assert "of the target subwords" in done.stdout.decode()
    assert (model / "shortlist.safetensors").is_file()
    for options in (
        ("--no-shortlist",),
        (),
        ("--shortlist", "--speculate", "--batch-size", "1"),
        ("--shortlist", "--engine", "ctranslate2"),
    ):
        found = anydepth("translate", model, *options, stdin=TEXT)
        assert (found.returncode, found.stdout) == (0, EXPECTED), found.stderr


def test_an_export_takes_the_shortlist_along(model, listed, tmp_path):
    assert listed[0].returncode == 0
    done = anydepth("export", model, "--depth", "2-2", "--to", "ctranslate2", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "vmap" in (tmp_path / "out" / "README.md").read_text()
    assert (tmp_path / "out" / "vmap.txt").read_text().startswith("\t")


def test_bench_shows_every_engine_at_every_depth(model):
    options = ("--sentences", "6", "--repeats", "1", "--batch-size", "3", "--threads", "1")
    done = anydepth("bench", model, *options, fresh=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert all(name in lines[0] for name in ("torch, ms", "ctranslate2 int8, ms", "native, ms", "native, drafts, ms"))
    rows = [line.split() for line in lines[1:-1]]
    assert [(row[0], row[1]) for row in rows] == [(d, b) for d in ("1-1", "1-2", "2-1", "2-2") for b in ("1", "3")]
    assert all(float(cell.removesuffix("x")) > 0 for row in rows for cell in row[2:] if cell != "-")
    assert "6 sentences" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("translate", "--speculate", "--beam", "2"), "--speculate is for greedy search"),
        (("translate", "--speculate", "--engine", "torch"), "--speculate is for --engine native"),
        (("translate", "--engine", "warp"), "choose one of auto, native, ctranslate2, torch"),
        (("bench", "--depths", "9-9"), "9-9"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(model, arguments, words):
    verb, *options = arguments
    assert_one_line(anydepth(verb, model, *options, stdin=TEXT), words)


def test_a_corpus_that_does_not_match_is_refused(model, tmp_path):
    (tmp_path / "a").write_text("le chat dort.\nun chien.\n")
    (tmp_path / "b").write_text("the cat sleeps.\n")
    (tmp_path / "empty").write_text("")
    given = {name: tmp_path / name for name in ("a", "b", "empty")}
    assert_one_line(anydepth("shortlist", model, "--source", given["a"], "--target", given["b"]), "must match")
    assert_one_line(anydepth("shortlist", model, "--source", given["empty"], "--target", given["empty"]), "empty")

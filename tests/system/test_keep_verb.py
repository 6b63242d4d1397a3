"""`anydepth calibrate --keep`, and what `translate --keep` then does."""

import json
import os
import re
import shutil

import pytest
from conftest import anydepth, assert_one_line, toy_pairs, write_corpus

from anydepth.selectors.promise import NAME


@pytest.fixture
def model(toy_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return shutil.copytree(toy_run / "model", tmp_path / "model")


def run(*arguments, stdin=b""):
    return anydepth(*arguments, stdin=stdin, env=dict(os.environ))


def test_calibrate_then_keep(model, tmp_path):
    source, _ = write_corpus(tmp_path / "text", 100, "dev", seed=5)
    text = "".join(f"{pair[0]}\n" for pair in toy_pairs(30, seed=6)).encode()
    common = (model, "--engine", "native", "--threads", 1)
    assert_one_line(run("translate", *common, "--keep", "95%", stdin=text), "run `anydepth calibrate", "--keep 95%")
    done = run("calibrate", *common, "--source", source, "--keep", "95%", "--repeats", 1, "--tolerance", 90)
    assert done.returncode == 0, done.stderr
    chosen = re.search(r"\* translate --keep 95% will run 2-2 with (margin:[\d.]+): \d", done.stdout.decode())
    assert chosen is not None, done.stdout
    assert f"stored in {model / NAME}" in done.stderr.decode()
    (record,) = json.loads((model / NAME).read_text("utf-8"))["records"]
    stored = record["promise"]
    assert (stored["keep"], stored["depth"], stored["sentences"]) == (0.95, "2-2", 100)
    assert (stored["tolerance"], stored["source_file"]) == (90, "dev.fr")

    kept = run("translate", *common, "--keep", "95%", stdin=text)
    exited = run("translate", *common, "--exit", chosen[1], stdin=text)
    assert (kept.returncode, kept.stdout) == (0, exited.stdout)
    first, last = kept.stderr.decode().splitlines()
    expected = f"depth 2-2, {chosen[1]}: keeps 95% of sentences at chrF 90 or more against 2-2, as calibrated on dev.fr"
    assert first == expected
    assert last == exited.stderr.decode().strip()  # the mean number of layers

    assert f"promises     95% at 2-2 with {chosen[1]}, beam 1, native, dev.fr" in run("info", model).stdout.decode()
    strict = run("translate", *common, "--keep", "99%", stdin=text)
    assert_one_line(strict, "no promise of 99%", "there is 95% for 2-2, beam 1, native")
    full = run("translate", *common, stdin=text)
    for size in (1, 32):  # with drafts and without
        everything = run("translate", *common, "--keep", "100%", "--batch-size", size, stdin=text)
        assert (everything.returncode, everything.stdout) == (0, full.stdout)
        assert everything.stderr.decode() == "depth 2-2: 100% is the text of the full depth\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("translate", "--keep", "99"), "'99' is not a promise (perhaps 99%?)"),
        (("translate", "--keep", "99%", "--exit", "margin:2"), "--keep and --exit both choose"),
        (("translate", "--keep", "99%", "--budget", "20ms"), "a promise is for one depth"),
        (("translate", "--keep", "99%", "--depth", "auto"), "a promise is for one depth"),
        (("translate", "--keep", "99%", "--speculate", "--engine", "native"), "tokens cannot leave early here"),
        (("calibrate", "--keep", "99%"), "needs at least 299 sentences"),
        (("calibrate", "--keep", "100%"), "100% needs no calibration"),
        (("calibrate", "--tolerance", "80"), "are for --keep"),
        (("calibrate", "--keep", "99%", "--reference", "no-such-file"), "needs no references"),
    ],
)
def test_mistakes_are_one_line(model, toy_run, arguments, words):
    verb, *others = arguments
    done = run(verb, toy_run if verb == "calibrate" else model, *others)
    assert words in done.stderr.decode()
    assert done.returncode == 2
    assert "Traceback" not in done.stderr.decode()

"""`anydepth calibrate` as a user runs it, and what `--budget` then finds."""

import ctypes
import json
import logging
import os
import resource
import shutil
import subprocess
import sys

import pytest
from conftest import anydepth, assert_one_line, write_corpus

import anydepth as package
from anydepth.selectors.budget import within_budget
from anydepth.selectors.calibration import NAME, find, machine_key

pytestmark = pytest.mark.slow

QUICK = ("--repeats", 1, "--sentences", 4, "--batch-size", 8, "--threads", 1)
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


@pytest.fixture
def model(toy_run, tmp_path):
    return shutil.copytree(toy_run / "model", tmp_path / "model")


@pytest.fixture
def files(tmp_path):
    return write_corpus(tmp_path / "text", 12, "dev", seed=5)


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return dict(os.environ)


def calibrate(model, files, environment, *options, engine="torch", **more):
    arguments = ("--source", files[0], "--reference", files[1], "--engine", engine, *QUICK, *options)
    return anydepth("calibrate", model, *arguments, env=environment, **more)


def records(path):
    return json.loads(path.read_text("utf-8"))["records"]


def test_calibrate_then_a_budget(model, files, environment, caplog):
    done = calibrate(model, files, environment)
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.decode().splitlines()
    assert header.split()[:3] == ["depth", "BLEU", "chrF"]
    assert "ms, batch 1 " in header
    assert "ms, batch 8 " in header
    assert [row.split()[0] for row in rows[:4]] == ["1-1", "1-2", "2-1", "2-2"]
    assert any("*" in row for row in rows[:4])
    assert f"stored in {model / NAME}" in done.stderr.decode()
    translator = package.load(model, engine="torch")
    found = find(model, translator.fingerprint, device="cpu", threads=1, beam=1)
    assert found.conditions.reference_file == "dev.en"
    assert [f"{one.quality['bleu']:.2f}" for one in found.depths.values()] == [row.split()[1] for row in rows[:4]]
    caplog.set_level(logging.INFO, "anydepth")
    chosen = within_budget(translator, "1000s", batch_size=8)  # all depths fit: the best
    assert translator.translate(["le chat dort."], depth=chosen) == ["the cat sleeps."]
    best = max(found.depths, key=lambda name: found.depths[name].quality["bleu"])
    assert found.depths[chosen.depth].quality == found.depths[best].quality
    assert caplog.messages[0].endswith("on dev.en")


def test_what_auto_takes_is_what_translate_goes_by(model, files, environment):
    assert calibrate(model, files, environment, engine="auto").returncode == 0
    (record,) = records(model / NAME)
    # on processors with AVX2 alone `auto` takes CTranslate2 for batches
    assert record["calibration"]["conditions"]["engine"] in ("native", "ctranslate2 int8")
    text = b"le chat dort.\n"
    done = anydepth("translate", model, "--budget", "1000s", "--threads", "1", stdin=text, env=environment)
    assert (done.returncode, done.stdout) == (0, b"the cat sleeps.\n")
    assert "on dev.en" in done.stderr.decode()


def test_without_a_text_it_takes_that_of_the_model(model, files, environment):
    assert_one_line(anydepth("calibrate", model, *QUICK, env=environment), "--source and --reference")
    done = anydepth("calibrate", model, "--source", files[0], *QUICK, env=environment)
    assert_one_line(done, "give both, or neither")
    assert_one_line(
        anydepth("translate", model, "--budget", "1000s", stdin=b"le chat dort.\n", env=environment), "--source FILE"
    )
    lines = zip(*(path.read_text("utf-8").splitlines() for path in files), strict=True)
    (model / "sample.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in lines), "utf-8")
    refused = anydepth("translate", model, "--budget", "1000s", stdin=b"le chat dort.\n", env=environment)
    assert_one_line(refused, f"run `anydepth calibrate {model} --threads")  # which works as it stands
    done = anydepth("calibrate", model, *QUICK, env=environment)
    assert done.returncode == 0, done.stderr
    assert "measuring on 12 sentences, sample.tsv of the model" in done.stderr.decode()


def test_another_machine_keeps_its_record_and_this_one_its_newest(model, files, environment):
    assert calibrate(model, files, environment).returncode == 0
    content = json.loads((model / NAME).read_text("utf-8"))
    (own,) = content["records"]
    assert own["calibration"]["conditions"]["machine"] == machine_key()
    other = json.loads(json.dumps(own))
    other["calibration"]["conditions"]["machine"] = "0123456789abcdef"
    content["records"].append(other)
    (model / NAME).write_text(json.dumps(content), "utf-8")
    assert calibrate(model, files, environment, "--length-penalty", 1.0).returncode == 0
    kept = records(model / NAME)
    assert [one for one in kept if one == other] == [other]
    assert [one["calibration"]["conditions"]["length_penalty"] for one in kept] == [0.6, 1.0]
    assert calibrate(model, files, environment, "--beam", 2).returncode == 0
    assert len(records(model / NAME)) == 3


def test_a_read_only_model_is_calibrated_in_the_cache(model, files, environment, tmp_path):
    model.chmod(0o555)
    try:
        if not permissions_bind(model):
            pytest.skip("this user may write where nobody may, and that cannot be taken away here")
        done = calibrate(model, files, environment, preexec_fn=give_up_override)
    finally:
        model.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert not (model / NAME).exists()
    fingerprint = package.load(model, engine="torch").fingerprint
    stored = tmp_path / "cache" / "anydepth" / "calibration" / f"{fingerprint}.json"
    assert f"stored in {stored}" in done.stderr.decode()
    assert len(records(stored)) == 1
    assert find(model, fingerprint, device="cpu", threads=1, beam=1) is not None


def give_up_override():
    """Root is held back by permissions only once it cannot override them."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0:
        raise PermissionError("the capability stays")


def permissions_bind(folder):
    attempt = [sys.executable, "-c", f"open({str(folder / 'attempt')!r}, 'w')"]
    try:
        return subprocess.run(attempt, capture_output=True, preexec_fn=give_up_override).returncode != 0
    except subprocess.SubprocessError:
        return False


def test_a_full_disk_is_an_error_and_leaves_what_was_there(model, files, environment, tmp_path):
    assert calibrate(model, files, environment).returncode == 0
    before = (model / NAME).read_bytes()
    done = calibrate(
        model, files, environment, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
    )
    assert done.returncode == 2
    assert b"free some space" in done.stderr
    assert done.stdout  # the table is not lost
    assert (model / NAME).read_bytes() == before
    assert not (tmp_path / "cache").exists()
    assert not list(model.glob(f".{NAME}*"))


def test_bad_input_is_one_line(model, files, environment, tmp_path):
    empty, shorter = tmp_path / "empty", tmp_path / "shorter"
    empty.write_text("")
    shorter.write_text("the cat.\n")
    source, reference = files
    for pair, words in (
        ((tmp_path / "none", reference), ["none does not exist"]),
        ((source, tmp_path / "none"), ["none does not exist"]),
        ((source, shorter), ["12 lines", "has 1"]),
        ((empty, reference), ["empty is empty"]),
        ((source, empty), ["empty is empty"]),
    ):
        assert_one_line(calibrate(model, pair, environment), *words)
    assert_one_line(calibrate(tmp_path / "nowhere", files, environment), "there is no model")
    assert_one_line(calibrate(model, files, environment, "--repeats", 0), "--repeats")
    assert not (model / NAME).exists()


def test_lines_that_are_too_long_are_refused_or_cut(model, files, environment):
    with files[0].open("a") as source, files[1].open("a") as reference:
        source.write("chat " * 100 + "\n")
        reference.write("cat " * 100 + "\n")
    assert_one_line(calibrate(model, files, environment), "line 13", "--cut-long")
    done = calibrate(model, files, environment, "--cut-long")
    assert done.returncode == 0, done.stderr
    (record,) = records(model / NAME)
    assert record["calibration"]["conditions"]["lines"] == 13


def test_a_file_of_a_newer_version_is_refused_before_the_work(model, files, environment):
    (model / NAME).write_text('{"format": 99}', "utf-8")
    assert_one_line(calibrate(model, files, environment), "newer anydepth")
    assert (model / NAME).read_text("utf-8") == '{"format": 99}'

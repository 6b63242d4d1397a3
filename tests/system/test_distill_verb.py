"""`anydepth distill` as a user runs it: killed, resumed, refused, and trained on."""

import gzip
import json
import shlex
import shutil
import signal

import pytest
from conftest import anydepth, assert_one_line, save_changed, standing_still, toy_pairs, write_corpus

pytestmark = pytest.mark.slow

FILES = ("distilled.fr", "distilled.en", "distill.json")


def contents(out):
    return [(out / name).read_bytes() for name in FILES]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """600 lines; some of them are left out."""
    folder = tmp_path_factory.mktemp("corpus")
    source, target = write_corpus(folder, 600, seed=11)
    lines = source.read_text().splitlines()
    lines[3], lines[99], lines[300] = "", "chat " * 100, "  "
    source.write_text("".join(f"{line}\n" for line in lines))
    return source, target


@pytest.fixture(scope="module")
def command(toy_run, corpus):
    return ["distill", toy_run, "--source", corpus[0], "--chunk", 8, "--threads", 1]


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "out"
    done = anydepth(*command, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_it_says_what_it_did_and_equals_translate(toy_run, corpus, whole, tmp_path):
    done = anydepth("distill", toy_run, "--source", corpus[0], "--out", tmp_path / "out", "--keep-all",
                    "--batch-size", 32)  # fmt: skip
    *progress, counts, _usage = done.stderr.decode().splitlines()
    assert progress[-1] == "distill: 600 of 600"
    assert counts == "600 read, 600 kept, among them: source empty 2, source too long 1"
    options = ("--beam", 4, "--length-penalty", 1, "--cut-long", "--engine", "torch")
    translated = anydepth("translate", toy_run, *options, stdin=corpus[0].read_bytes()).stdout
    assert (tmp_path / "out" / "distilled.en").read_bytes() == translated
    assert (tmp_path / "out" / "distilled.fr").read_bytes() == corpus[0].read_bytes()
    journal = json.loads((whole / "distill.json").read_text())
    assert journal["finished"]
    assert (journal["lines"], journal["counts"]["read"], journal["counts"]["kept"]) == (600, 600, 597)


def test_killed_again_and_again(command, whole, tmp_path):
    out = tmp_path / "out"
    for kill in range(3):
        done = anydepth(*command, "--out", out, dies=(out, 41 + kill))
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert 0 < lines_done(out) < 600
        assert not (out / "distilled.fr").exists()
    with open(out / "distilled.en.part", "ab") as part:
        part.write(b"half a li")  # a write that the journal never heard of
    done = anydepth(*command, "--out", out)
    assert done.returncode == 0, done.stderr
    assert b"resuming after line" in done.stderr
    assert contents(out) == contents(whole)
    assert not list(out.glob("*.part"))


def lines_done(out):
    journal = out / "distill.json"
    return json.loads(journal.read_text())["lines"] if journal.exists() else 0


def test_a_full_disk_loses_nothing(command, whole, tmp_path):
    """A limit on the size of files stands in for a full disk: the writes fail for real."""
    out = tmp_path / "out"
    done = anydepth(*command, "--out", out, file_limit=4_000)
    *progress, _ = done.stderr.splitlines(keepends=True)
    assert all(line.startswith(b"distill: ") for line in progress)
    done.stderr = done.stderr.removeprefix(b"".join(progress))
    assert_one_line(done, "File too large", "free some space and give the same command again")
    assert 0 < lines_done(out) < 600
    assert anydepth(*command, "--out", out).returncode == 0
    assert contents(out) == contents(whole)


def test_a_finished_run_is_not_done_again(command, whole, tmp_path, here):
    out = shutil.copytree(whole, tmp_path / "out")
    changed = (out / "distilled.en").stat().st_mtime_ns
    done = here(*command, "--out", out)
    assert done.returncode == 0
    assert b"nothing is left to do" in done.stderr
    assert (out / "distilled.en").stat().st_mtime_ns == changed
    (out / "distilled.en").write_bytes(b"the cat\n")
    assert_one_line(here(*command, "--out", out), "distilled.en has 8 bytes where", "delete")
    (out / "distilled.en").unlink()
    assert_one_line(here(*command, "--out", out), "distilled.en is gone")
    (out / "distill.json").write_text("{}")
    assert_one_line(here(*command, "--out", out), "distill.json is damaged", "delete")


def test_something_else_in_the_same_folder_is_refused(command, toy_run, corpus, whole, tmp_path, here):
    out = shutil.copytree(whole, tmp_path / "out")
    advice = "give the same options to go on, or another folder"
    assert_one_line(here(*command, "--out", out, "--beam", 3), "begun with another beam:", advice)
    assert_one_line(here(*command, "--out", out, "--reference", corpus[1]), "another reference, nbest:", advice)
    other = tmp_path / "other.fr"
    other.write_bytes(corpus[0].read_bytes() + b"le chat.\n")
    assert_one_line(here(*command, "--out", out, "--source", other), "another source:", advice)
    zipped = tmp_path / "same.gz"
    zipped.write_bytes(gzip.compress(corpus[0].read_bytes()))
    assert here(*command, "--out", out, "--source", zipped).returncode == 0  # the same lines
    model = shutil.copytree(toy_run / "model", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "languages": ["fr", "de"]}))
    command = ["distill", model, *command[2:]]
    assert_one_line(here(*command, "--out", out), "other languages:", advice)
    save_changed(toy_run, model)
    assert_one_line(here(*command, "--out", out), "another model:", advice)
    assert contents(out) == contents(whole)


def test_another_engine_does_not_go_on(command, toy_run, whole, tmp_path, here):
    """Neither to an engine nor back to torch, which a journal does not mention."""
    out, source = tmp_path / "out", tmp_path / "source"
    source.write_text("le chat dort.\n")
    small = ["distill", toy_run, "--source", source, "--out", out, "--threads", 1]
    quantized = ["--engine", "ctranslate2", "--quantize", "int8"]
    assert here(*small, *quantized).returncode == 0
    journal = json.loads((out / "distill.json").read_text())
    (out / "distill.json").write_text(json.dumps({**journal, "finished": False}))
    for other in ([], ["--engine", "torch"], ["--engine", "ctranslate2"]):
        assert_one_line(here(*small, *other), "begun with another engine:", "give the same options to go on")
    assert here(*small, *quantized).returncode == 0
    assert "engine" not in json.loads((whole / "distill.json").read_text())["identity"]["options"]
    copy = shutil.copytree(whole, tmp_path / "copy")
    assert_one_line(here(*command, "--out", copy, *quantized), "begun with another engine:")
    assert here(*command, "--out", copy, "--engine", "torch").returncode == 0


def test_smaller_batches_may_follow_when_memory_ran_out(command, whole, tmp_path, here):
    out = tmp_path / "out"
    assert anydepth(*command, "--out", out, dies=(out, 60)).returncode == -signal.SIGKILL
    assert 0 < lines_done(out) < 600
    assert here(*command, "--out", out, "--batch-size", 5, "--chunk", 50).returncode == 0
    assert contents(out) == contents(whole)


@pytest.mark.parametrize(
    "damage",
    [
        {"lines": 601},
        {"counts": {"read": 600, "kept": -1}},
        {"files": {"../escaped": 0, "distilled.en": 0}},
        {"files": {}},
        {"identity": 3},
    ],
    ids=str,
)
def test_a_journal_that_cannot_be_is_not_trusted(command, whole, tmp_path, damage, here):
    out = shutil.copytree(whole, tmp_path / "out")
    journal = json.loads((out / "distill.json").read_text())
    (out / "distill.json").write_text(json.dumps({**journal, "finished": False, **damage}))
    assert_one_line(here(*command, "--out", out), "damaged" if "files" not in damage else "other languages")
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_bad_files_and_folders_are_refused(toy_run, corpus, tmp_path, here):
    source, _ = corpus
    short, empty, broken = (tmp_path / name for name in ("short", "empty", "broken"))
    short.write_text("the cat.\n")
    empty.write_text("")
    broken.write_bytes(b"ok\n\xff\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    cases = [
        (["--source", source, "--reference", short], ["600 lines", "has 1:"]),
        (["--source", broken], ["broken, line 2", "UTF-8"]),
        (["--source", empty], ["empty is empty"]),
        (["--source", source, "--out", tmp_path / "mine"], ["not empty"]),
    ]
    for options, words in cases:
        assert_one_line(here("distill", toy_run, "--out", tmp_path / "out", *options), *words)
    assert list((tmp_path / "mine").iterdir()) == [tmp_path / "mine" / "thesis.txt"]


def test_two_processes_cannot_share_a_folder(command, tmp_path):
    out = tmp_path / "out"
    with standing_still(*command, "--out", out, at=out / ".distill.json.tmp"):
        second = anydepth(*command, "--out", out)
    assert_one_line(second, "another process is distilling in")


def test_the_corpus_trains(toy_recipe, command, whole, tmp_path, here):
    usage = here(*command, "--out", whole).stderr.decode().splitlines()[-1]
    setting = shlex.split(usage.removeprefix("train on it: "))
    assert setting == ["--set", f"data.train={{source: {whole}/distilled.fr, target: {whole}/distilled.en}}"]
    done = here("train", toy_recipe, "--out", tmp_path / "run", *setting, "--set", "train.steps=2",
                    "--set", "data.vocabulary=300")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "read 597" in done.stderr.decode()


def test_nothing_kept_is_said(toy_run, tmp_path, here):
    source = tmp_path / "source"
    source.write_text("".join(f"{line}\n" for line, _ in toy_pairs(10)))
    done = here("distill", toy_run, "--source", source, "--out", tmp_path / "a, b", "--max-length", 1)
    assert done.returncode == 0
    assert "10 read, 0 kept, left out: output" in done.stderr.decode()
    assert "nothing to train on" in done.stderr.decode()

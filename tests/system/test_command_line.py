"""Every verb as a user runs it: what it gives, and what it says when the input is bad."""

import gzip
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import RECIPE, anydepth, assert_one_line, toy_pairs, write_corpus

import anydepth as package

LINES = b"le chat dort.\nun chien mange et dort.\n\nle petit oiseau voit un chat.\n"


@pytest.fixture(scope="module")
def test_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("test")
    return write_corpus(folder, 30, "test", seed=5)


# translate


@pytest.mark.slow
def test_translate_gives_a_line_for_a_line(toy_run):
    done = anydepth("translate", toy_run, "--depth", "2-1", stdin=LINES, fresh=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().split("\n")
    assert lines == [*package.load(toy_run, engine="torch").translate(LINES.decode().split("\n")[:-1], depth="2-1"), ""]
    assert lines[0] == "the cat sleeps."
    assert lines[2] == ""


@pytest.mark.slow
def test_translate_does_not_split_at_odd_line_ends(toy_run):
    done = anydepth("translate", toy_run, stdin="le chat\u2028dort.\r\nun chien.".encode())
    assert done.stdout.count(b"\n") == 2


@pytest.mark.slow
def test_translate_nbest(toy_run):
    done = anydepth("translate", toy_run, "--beam", 4, "--nbest", 2, stdin=b"le chat.\nun chien.\n")
    rows = [line.split(" ||| ") for line in done.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "1"]
    assert float(rows[0][2]) >= float(rows[1][2])
    assert rows[0][1] == "the cat."


@pytest.mark.slow
def test_translate_nothing(toy_run):
    done = anydepth("translate", toy_run, stdin=b"")
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--depth", "9-9"], ["no depth 9-9", "1-1, 1-2, 2-1, 2-2"]),
        (["--depth", "0-2"], ["no depth 0-2; it has: 1-1"]),
        (["--depth", "deep"], ["no depth deep"]),
        (["--beam", "0"], ["--beam"]),
        (["--beam", "two"], ["--beam"]),
        (["--nbest", "3"], ["nbest is 3 but the beam is 1"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["--device", "tpu9"], ["there is no device"]),
        (["--device", "meta"], ["there is no device"]),
        (["--threads", "100000"], ["--threads"]),
        (["--length-penalty", "nan"], ["out of range"]),
    ],
)
@pytest.mark.slow
def test_translate_refuses_bad_options(toy_run, options, words):
    assert_one_line(anydepth("translate", toy_run, *options, stdin=b""), *words)  # before it waits for a line


@pytest.mark.slow
def test_translate_names_the_line_of_broken_text(toy_run):
    done = anydepth("translate", toy_run, stdin=b"le chat.\n\xff\xfe\n")
    assert_one_line(done, "line 2", "UTF-8", "iconv -c", "tail -n +2")
    assert done.stdout == b"the cat.\n"  # what came before it is not lost


@pytest.mark.slow
def test_translate_without_standard_input():
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m anydepth translate x <&-"], capture_output=True)
    assert_one_line(done, "closed")


@pytest.mark.slow
def test_translate_refuses_a_long_line_after_giving_the_lines_before_it(toy_run):
    long = b"le chat.\n" + b"chat " * 10_000 + b"\n"
    done = anydepth("translate", toy_run, stdin=long)
    assert_one_line(done, "line 2 has", "the limit is 63", "--cut-long", "tail -n +2")
    assert done.stdout == b"the cat.\n"
    cut = anydepth("translate", toy_run, "--cut-long", stdin=long)
    assert cut.returncode == 0
    assert cut.stdout.count(b"\n") == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
@pytest.mark.slow
def test_translate_to_a_full_disk(toy_run):
    command = [sys.executable, "-m", "anydepth", "translate", str(toy_run)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, input=LINES, stdout=full, stderr=subprocess.PIPE)
    assert_one_line(done, "No space left", "free some space")


@pytest.mark.slow
def test_translate_into_a_closed_pipe_is_quiet(toy_run):
    shell = f"yes 'le chat dort.' | head -n 5000 | {sys.executable} -m anydepth translate {toy_run} | head -n 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True)
    assert done.stdout == b"the cat sleeps.\n"
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_translate_refuses_what_is_no_model(tmp_path, toy_run):
    assert_one_line(anydepth("translate", tmp_path / "nowhere", stdin=LINES), "there is no model at")
    damaged = shutil.copytree(toy_run / "model", tmp_path / "damaged")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert_one_line(anydepth("translate", damaged, stdin=LINES), "is damaged", "copy it again")


# sweep


def test_sweep_leaves_a_report_and_the_figures_in_the_menu(toy_run, tmp_path, test_files, here):
    model = shutil.copytree(toy_run / "model", tmp_path / "model")
    source, reference = test_files
    done = here("sweep", model, "--source", source, "--reference", reference, "--out", tmp_path / "report")
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "report" / "sweep.json").read_text())
    assert [row["depth"] for row in data["models"][0]["depths"]] == ["1-1", "1-2", "2-1", "2-2"]
    for name in ("index.html", "bleu.png", "time.png", "quality-time.png"):
        assert (tmp_path / "report" / name).stat().st_size > 1000
    entry = package.load(model, engine="torch").menu["1-1"]
    assert entry.quality["bleu"] > 50
    assert entry.cost["seconds_per_sentence"] > 0
    assert "| 1-1 |" in (model / "README.md").read_text()
    assert "2-2" in done.stdout.decode()
    assert f"recorded in the menu and the card of {model}" in done.stderr.decode()

    measured = (model / "depths.json").read_bytes()
    options = ["--source", source, "--reference", reference, "--depths", "1-1", "--no-record"]
    assert here("sweep", model, *options, "--out", tmp_path / "report").returncode == 0  # a report may be replaced
    assert (model / "depths.json").read_bytes() == measured
    assert_one_line(here("sweep", model, *options, "--out", model), "not empty and not a report")
    assert_one_line(here("sweep", "a,b", *options, "--out", tmp_path / "new"), "write NAME=a,b")


@pytest.mark.slow
def test_sweep_compares_models(toy_run, tmp_path, test_files):
    source, reference = test_files
    models = [shutil.copytree(toy_run / "model", tmp_path / name) for name in ("one", "two")]
    done = anydepth("sweep", *models, "--source", source, "--reference", reference, "--out", tmp_path / "report",
                    "--samples", 50, "--depths", "1-1,2-2", fresh=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "report" / "sweep.json").read_text())["comparison"]


def test_sweep_refuses_bad_files(toy_run, tmp_path, test_files, here):
    source, reference = test_files
    short, empty, broken = tmp_path / "short", tmp_path / "empty", tmp_path / "broken"
    short.write_text("the cat.\n")
    empty.write_text("")
    broken.write_bytes(b"ok\n\xff\n")
    cases = [
        (source, short, ["30", "1"]),
        (empty, reference, ["empty"]),
        (source, broken, ["line 2", "UTF-8"]),
        (tmp_path / "none", reference, ["none"]),
    ]
    for one, other, words in cases:
        done = here("sweep", toy_run, "--source", one, "--reference", other, "--out", tmp_path / "report")
        assert_one_line(done, *words)
    done = here("sweep", toy_run, "--source", source, "--reference", reference, "--out", tmp_path / "report",
                    "--depths", "7-7")  # fmt: skip
    assert_one_line(done, "no depth 7-7")
    done = here("sweep", toy_run, "--source", source, "--reference", reference, "--out", short)
    assert_one_line(done, "report")


# train


def recipe_with(folder, source, target, old="", new=""):
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(source=source, target=target).replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  steps: 400", "  stepz: 400", ["no key train.stepz", "did you mean `steps`"]),
        ("  steps: 400", "  steps: many", ["train.steps"]),
        ("  steps: 400", "  steps: -1", ["train.steps", "greater"]),
        ("  steps: 400", "  steps: yes", ["steps cannot be true or false"]),
        ("  steps: 400", "  steps: 400\n  betas: [2, 2]", ["train.betas"]),
        ("  threads: 1", "  threads: 100000", ["train.threads"]),
        ("  steps: 400", "  steps: 400\n  valid_depths: [9-9]", ["no depth 9-9"]),
        ("encoder_layers: 2", "encoder_layers: 5000", ["model.encoder_layers"]),
        ("name: tied-multi", "name: magic", ["objective", "magic"]),
        ("heads: 2", "heads: 5", ["multiple of 2 x heads"]),
        ("encoder_layers: 2", "encoder_layers: 0", ["model.encoder_layers", "greater than or equal to 1"]),
        ("vocabulary: 320", "vocabulary: 30000", ["data.vocabulary"]),
        ("max_length: 64", "max_length: 16", ["model.max_length must be larger"]),
        ("hold_out: 50", "hold_out: 5000", ["hold"]),
        ("data:", "data: [", ["not valid YAML"]),
    ],
)
def test_train_refuses_a_bad_recipe(tmp_path, old, new, words, here):
    source, target = write_corpus(tmp_path, 300)
    recipe = recipe_with(tmp_path, source, target, old, new)
    assert_one_line(here("train", recipe, "--out", tmp_path / "run"), *words)


def test_train_refuses_a_bad_corpus(tmp_path, here):
    source, target = write_corpus(tmp_path, 300)
    short, empty, broken, long = (tmp_path / name for name in ("short", "empty", "broken", "long"))
    short.write_text("".join(f"{pair[1]}\n" for pair in toy_pairs(299)))
    empty.write_text("")
    broken.write_bytes(target.read_bytes()[:200] + b"\xff\n")
    long.write_bytes(b"".join(b"cat " * 10_000 + b"\n" for _ in range(300)))
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(target.read_bytes())[:-20])
    cases = [
        (source, short, ["300", "299"]),
        (source, empty, ["empty"]),
        (source, broken, ["UTF-8", "line"]),
        (source, torn, ["torn.gz"]),
        (source, tmp_path / "none", ["none"]),
        (long, long, ["usable", "too long"]),
    ]
    for number, (one, other, words) in enumerate(cases):
        done = here("train", recipe_with(tmp_path, one, other), "--out", tmp_path / f"run{number}")
        assert_one_line(done, *words)


def test_train_counts_what_it_leaves_out(tmp_path, here):
    source, target = write_corpus(tmp_path, 300)
    with open(source, "a") as one, open(target, "a") as other:
        one.write(
            "chat " * 10_000 + "\n" + "\n" + "le chat dort ici et voit un grand oiseau rouge.\n" + "un chat.\n" * 2
        )
        other.write("cat " * 10_000 + "\n" + "a cat\n" + "x\n" + "a cat.\n" * 2)
    recipe = recipe_with(tmp_path, source, target)
    done = here("train", recipe, "--out", tmp_path / "run", "--set", "train.steps=2", "--set", "data.vocabulary=300")
    assert done.returncode == 0, done.stderr
    first = done.stderr.decode().splitlines()[0]
    for words in ("read 305", "too long 1", "empty 1", "ratio 1", "duplicates", "held out"):
        assert words in first


def test_train_refuses_other_peoples_folders_and_bad_settings(toy_recipe, tmp_path, here):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert_one_line(here("train", toy_recipe, "--out", tmp_path / "full"), "not empty")
    assert_one_line(here("train", toy_recipe, "--out", toy_recipe), "is a file")
    assert_one_line(here("train", tmp_path / "no.yaml", "--out", tmp_path / "run"), "there is no recipe")
    assert_one_line(here("train", toy_recipe), "--out")
    for setting, words in (("train.steps", "key=value"), ("train.x.y=1", "no key"), ("data=3", "data")):
        assert_one_line(here("train", toy_recipe, "--out", tmp_path / "run", "--set", setting), words)


@pytest.mark.slow
def test_train_on_a_full_disk_loses_nothing(toy_recipe, tmp_path):
    """A limit on the size of files stands in for a full disk: the writes fail for real."""
    run = tmp_path / "run"
    settings = ["--set", "train.steps=20", "--set", "train.checkpoint_every=10"]
    assert anydepth("train", toy_recipe, "--out", run, "--set", "train.steps=10", *settings[2:]).returncode == 0
    saved = (run / "checkpoints" / "step-000000010" / "model.safetensors").read_bytes()
    done = anydepth("train", toy_recipe, "--out", run, *settings, file_limit=40_000)
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert "Traceback" not in said
    assert said.strip().splitlines()[-1].startswith("anydepth: ")
    assert (run / "checkpoints" / "step-000000010" / "model.safetensors").read_bytes() == saved
    assert anydepth("train", toy_recipe, "--out", run, *settings).returncode == 0


# data


def test_data_refuses_bad_requests(tmp_path, here):
    assert_one_line(here("data", "tatoeba-xx", tmp_path / "d"), "tatoeba-en-fr, tatoeba-en-es")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    assert_one_line(here("data", "tatoeba-en-fr", tmp_path / "mine"), "choose another folder")
    (tmp_path / "wrong.tar.gz").write_bytes(b"not the archive")
    done = here("data", "tatoeba-en-fr", tmp_path / "d", "--archive", tmp_path / "wrong.tar.gz")
    assert_one_line(done, "wrong.tar.gz")


# the rest


def test_help_version_and_unknown_verbs(here):
    assert b"anydepth 0." in here("--version").stdout
    assert here("--help").returncode == 0
    for verb in ("data", "train", "depths", "translate", "distill", "sweep"):
        assert here(verb, "--help").returncode == 0
    assert_one_line(here("dream"), "dream")

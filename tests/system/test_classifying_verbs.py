"""The verbs `classify`, `evaluate` and `explain` as a user runs them."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from conftest import anydepth, assert_one_line
from labelled_texts import reconstruction_table, toy_texts, write_labelled

import anydepth as package

pytest_plugins = ["made_classifiers"]

TRANSLATES = Path(__file__).parents[1] / "golden" / "model"
TEXTS = [text for text, _ in toy_texts(40, seed=11)]


@pytest.fixture
def piped(here, monkeypatch):
    """A verb with these bytes on its standard input."""

    def run(stdin: bytes, *arguments: object):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return here(*arguments)

    return run


@pytest.mark.slow
def test_classify_writes_a_line_for_each_line_in_order(by_mi_run):
    lines = ["", *TEXTS, "  ", "an unheard-of wörd"]
    asked = ("classify", by_mi_run, "--scale", 0.7, "--batch-size", 7)
    done = anydepth(*asked, stdin=("\n".join(lines) + "\n").encode(), fresh=True)
    assert done.returncode == 0, done.stderr
    expected = package.load(by_mi_run).classify(lines, scale=0.7, batch_size=7)
    rows = [f"{o.label}\t{o.probability:.4f}\t{o.depth:.2f}" for o in expected]
    rows[0] = rows[-2] = ""
    assert done.stdout.decode().split("\n") == [*rows, ""]
    assert done.stderr.decode() == "2 empty lines have no label and stay empty\n"


def test_classify_lets_texts_leave_early_and_says_how_early(halting_run, piped):
    stdin = "".join(f"{text}\n" for text in TEXTS).encode()
    done = piped(stdin, "classify", halting_run, "--exit", "confidence:0.9")
    expected = package.load(halting_run).classify(TEXTS, exit="confidence:0.9")
    depths = [float(line.split("\t")[2]) for line in done.stdout.decode().splitlines()]
    assert depths == [one.depth for one in expected]
    assert f"texts left after {sum(depths) / len(depths):.2f} of 3 layers" in done.stderr.decode()


def test_classify_within_a_budget(by_mi_run, piped):
    done = piped(b"a film\n", "classify", by_mi_run, "--budget", "60s")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert b"ms per text within 60000 ms, layers 3.0" in done.stderr
    assert_one_line(piped(b"a film\n", "classify", by_mi_run, "--budget", "1ns"), "is not a budget")
    both = ("--budget", "5ms", "--depth", "2-0")
    assert_one_line(piped(b"a film\n", "classify", by_mi_run, *both), "both choose the depth")


def test_classify_says_that_it_cut_a_text(by_mi_run, piped):
    done = piped(b"a film\n" + b"film " * 10_000 + b"\n", "classify", by_mi_run)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    assert b"1 texts fill the 61 subwords that the model reads" in done.stderr
    assert not piped(b"a film\n", "classify", by_mi_run).stderr


def test_classify_takes_another_table(by_mi_run, tmp_path, piped):
    table = reconstruction_table(by_mi_run, tmp_path / "table.json")
    depths = {}
    for penalty in (0, 0.1, 0.2):
        options = ["--word-depths", table, "--lambda", penalty, "--threads", 1]
        done = piped(b"the film and the plot\n", "classify", by_mi_run, *options)
        depths[penalty] = done.stdout.decode().strip().split("\t")[2]
    assert depths == {0: "3.00", 0.1: "2.00", 0.2: "1.00"}


def test_classify_says_what_is_wrong_in_one_line(by_mi_run, static_run, tmp_path, piped):
    def refused(*arguments: object, words: tuple[str, ...], stdin: bytes = b"a film\n") -> None:
        assert_one_line(piped(stdin, "classify", *arguments, "--threads", 1), *words)

    table = reconstruction_table(by_mi_run, tmp_path / "four.json", layers=4)
    refused(by_mi_run, "--depth", "4-0", words=("no depth 4-0", "3-0-words"))
    refused(TRANSLATES, words=("does not classify",))
    refused(by_mi_run, "--scale", 0, words=("scaled by 0",))
    refused(static_run, "--scale", 2, words=("all words run all layers",))
    refused(by_mi_run, "--lambda", 0.1, words=("have no lambda",))
    refused(by_mi_run, "--word-depths", table, words=("4 layers", "has 3"))
    refused(static_run, "--word-depths", table, words=("word depths have no effect",))
    refused(by_mi_run, "--word-depths", tmp_path / "none.json", words=("no word depths at",))
    refused(by_mi_run, stdin=b"fine\nbroken \xff\n", words=("line 2", "UTF-8"))


def test_what_came_before_broken_input_is_classified(by_mi_run, piped):
    done = piped(b"a film\nthe plot\n\xff\n", "classify", by_mi_run)
    assert len(done.stdout.decode().splitlines()) == 2


def test_classify_with_a_closed_input_says_so(by_mi_run, here, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert_one_line(here("classify", by_mi_run), "standard input", "closed")


@pytest.fixture(scope="module")
def copied(by_mi_run, tmp_path_factory) -> Path:
    """A model that may be written to."""
    return Path(shutil.copytree(by_mi_run / "model", tmp_path_factory.mktemp("copy") / "model"))


def test_evaluate_leaves_a_report_and_its_figures_in_the_model(copied, labelled_file, tmp_path, here, piped):
    out = tmp_path / "report"
    options = [
        "--out",
        out,
        "--timed",
        6,
        "--repeats",
        1,
        "--batch-sizes",
        "1,2,4",
        "--scales",
        "0.5,1",
        "--threads",
        1,
    ]
    done = here("evaluate", f"words={copied}", "--test", labelled_file, *options)
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "evaluation.json").read_text("utf-8"))
    (system,) = found["systems"]

    rows = [line.split("\t") for line in labelled_file.read_text("utf-8").splitlines()]
    lines = piped("".join(f"{text}\n" for _, text in rows).encode(), "classify", copied).stdout.decode().splitlines()
    right = sum(line.split("\t")[0] == label for line, (label, _) in zip(lines, rows, strict=True))
    assert system["accuracy"] == {"mean": pytest.approx(100 * right / 90), "deviation": None}
    assert re.search(rf"^words +MI +{100 * right / 90:.2f} ", done.stdout.decode(), re.MULTILINE)

    assert {path.name for path in out.iterdir()} == {
        "evaluation.json", "index.html", "accuracy-depth.png", "speed-batch.png",
    }  # fmt: skip
    entry = package.load(copied, engine="torch").menu["3-0-words"]
    assert entry.quality == {"accuracy": pytest.approx(100 * right / 90)}
    assert entry.cost["depth"] == pytest.approx(system["mean_depth"]["mean"])
    assert entry.cost["seconds_per_text"] == system["seconds_per_text"]["1"]["mean"]
    assert f"| 3-0-words | {100 * right / 90:.2f} % |" in (copied / "README.md").read_text("utf-8")

    here("evaluate", copied, "--test", labelled_file, "--out", out, "--timed", 2, "--repeats", 1, "--no-record")
    assert not (out / "speed-batch.png").exists()  # two batch sizes make no line


def test_evaluate_tests_models_of_folds_on_their_own_texts(by_mi_run, labelled_file, tmp_path, here):
    runs, lines = tmp_path / "runs", labelled_file.read_text("utf-8").splitlines(keepends=True)
    for number, part in ((1, lines[:50]), (2, lines[50:])):
        shutil.copytree(by_mi_run / "model", runs / f"fold-{number}" / "seed-1" / "model")
        (runs / f"fold-{number}" / "seed-1" / "data").mkdir()
        (runs / f"fold-{number}" / "seed-1" / "data" / "test.tsv").write_text("".join(part), "utf-8")
    options = ["--timed", 2, "--repeats", 1, "--batch-sizes", 1, "--no-record", "--threads", 1]
    done = here("evaluate", runs, "--out", tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    (system,) = json.loads((tmp_path / "out" / "evaluation.json").read_text("utf-8"))["systems"]
    assert system["system"] == "runs"
    assert [(one["member"], one["texts"]) for one in system["models"]] == [("fold-1/seed-1", 50), ("fold-2/seed-1", 40)]
    accuracies = [one["accuracy"] for one in system["models"]]
    mean = sum(accuracies) / 2
    deviation = sum((one - mean) ** 2 for one in accuracies) ** 0.5  # divided by 2 - 1
    assert system["accuracy"] == {"mean": pytest.approx(mean), "deviation": pytest.approx(deviation)}


def test_evaluate_without_a_report(by_mi_run, labelled_file, here):
    done = here("evaluate", by_mi_run, "--test", labelled_file, "--no-record", "--timed", 2, "--repeats", 1)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout.decode()
    assert "report" not in done.stderr.decode()


def test_evaluate_says_what_is_wrong_in_one_line(by_mi_run, static_run, labelled_file, tmp_path, here):
    strange, empty = tmp_path / "strange.tsv", tmp_path / "empty.tsv"
    write_labelled(strange, [("a film", "good"), ("a plot", "splendid")])
    empty.touch()
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").touch()

    def refused(model: object, *arguments: object, words: tuple[str, ...], test: Path = labelled_file) -> None:
        out = [] if "--out" in arguments else ["--out", tmp_path / "out"]
        assert_one_line(here("evaluate", model, "--test", test, *out, *arguments), *words)
        assert not (tmp_path / "out" / "evaluation.json").exists()

    refused(by_mi_run, test=strange, words=("splendid", "bad, fine, good"))
    refused(by_mi_run, test=empty, words=("is empty",))
    refused(by_mi_run, test=tmp_path / "none.tsv", words=("none.tsv does not exist",))
    refused(TRANSLATES, words=("does not classify",))
    refused(by_mi_run, "--scales", "0", words=("scaled by 0",))
    refused(by_mi_run, "--scales", "one", words=("--scales takes numbers",))
    refused(by_mi_run, "--lambdas", "0.1", words=("leave out --lambdas",))
    refused(static_run, "--scales", "2", words=("leave out --scales",))
    refused(by_mi_run, "--batch-sizes", "0", words=("at least 1",))
    refused(by_mi_run, "--depth", "4-0", words=("no depth 4-0",))
    refused(by_mi_run, "--exits", "soon", words=("is not an early-exit rule",))
    refused(static_run, "--exits", "patience:2", words=("leave out --exits",))
    refused(static_run, "--static", f"words={by_mi_run}", words=("words is not static",))
    refused(by_mi_run, "--out", full, words=("not empty",))
    assert_one_line(here("evaluate", by_mi_run, "--out", tmp_path / "out"), "give one with --test")


def test_explain_shows_words_with_their_depths(by_mi_run, tmp_path, here):
    text, page = "the AWFUL film, & <b>unheard</b>.", tmp_path / "page.html"
    table = reconstruction_table(by_mi_run, tmp_path / "rec.json")
    options = ["--with", by_mi_run, "--word-depths", table, "--lambda", 0.2, "--html", page, "--threads", 1]
    done = here("explain", by_mi_run, text, *options)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    found, words = package.load(by_mi_run, engine="torch").explain(text)
    assert "".join(word.text for word in words).strip() == text
    depths = " ".join(str(word.depth) for word in words)
    own = said[said.index("\nrun: ") :].splitlines()
    mean = f"mean depth {found.depth:.2f} of 3, with the ends of the text"
    assert own[1] == f"run: {found.label} (probability {found.probability:.2f}), {mean}"
    together: list[list[str]] = []  # words without a space between them share a level, or have one each
    for word in words:
        if word.text[:1].isspace() or not together:
            together.append([])
        together[-1].append(str(word.depth))
    assert own[3].split() == [",".join(group if len(set(group)) > 1 else group[:1]) for group in together]
    html = page.read_text("utf-8")
    assert "<b>unheard</b>" not in html
    assert ">unheard<" in html
    assert "http" not in html.lower().replace("http-equiv", "")
    assert re.findall(r'title="depth (\d+)"', html)[len(words) :] == depths.split()
    assert "run with rec.json" in html


def test_explain_reads_lines_where_no_text_is_given(by_mi_run, piped):
    said = piped(b"a superb plot\n\nthe dog\n", "explain", by_mi_run, "--scale", 5).stdout.decode()
    assert said.count("mean depth") == 3
    assert "(no words)" in said
    assert "superb" in said


def test_explain_says_what_is_wrong_in_one_line(by_mi_run, tmp_path, here):
    assert_one_line(here("explain", TRANSLATES, "a film"), "does not classify")
    assert_one_line(here("explain", by_mi_run, "a film", "--lambda", 0.1), "have no lambda")
    assert_one_line(here("explain", by_mi_run, "a film", "--scale", 0), "scaled by 0")
    assert_one_line(here("explain", by_mi_run, "a film", "--html", tmp_path / "x.pdf"), "ends in .html")

"""The training text of the bundled model (recipes/pt_en.py): its phrasebook, and which pairs are worth training on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"
sys.path.insert(0, str(RECIPES))

import pt_en  # noqa: E402


@pytest.fixture(scope="module")
def phrases():
    return pt_en.expand(RECIPES / "phrases.pt-en.txt")


def test_slots_are_filled_and_have_surface_variants(phrases, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text(
        "@place\no hotel | the hotel\n@labels\nSalvar | Save\n@\nOnde fica {place}? | Where is {place}?\n", "utf-8"
    )
    assert pt_en.expand(book) == {
        "Onde fica o hotel?": "Where is the hotel?",
        "onde fica o hotel?": "where is the hotel?",
        "onde fica o hotel": "where is the hotel",
        "Salvar": "Save",
    }
    assert phrases["Bom dia!"] == "Good morning!"
    assert phrases["bom dia"] == "good morning"
    assert phrases["posso entrar"] == "may I come in"


def test_phrases_keep_what_is_always_in_capitals(phrases):
    for portuguese, english in phrases.items():
        assert not re.search(r"\bi('|\b)(?!/)", english.replace("wi-fi", "")), (portuguese, english)
        assert not (portuguese.islower() and english.startswith("May I ")), (portuguese, english)
        assert english.strip() == english


def test_no_phrase_has_two_translations():
    """Lines of the phrasebook that differ in case and final punctuation only, with different English."""
    book = (RECIPES / "phrases.pt-en.txt").read_text("utf-8").splitlines()
    found: dict[str, set[str]] = {}
    for line in book[book.index("@") :]:
        if " | " in line:
            portuguese, english = line.split(" | ")
            found.setdefault(portuguese, set()).add(english)
    assert {portuguese: english for portuguese, english in found.items() if len(english) > 1} == {}


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (("O gato dorme.", "The cat sleeps.", "news"), None),
        (("Lisboa", "Lisboa", "news"), "copy"),
        (("Sim.", "Yes, that is what I have been saying all along.", "news"), "length ratio"),
        (("Ele vai vai vai vai embora.", "He is leaving.", "news"), "loop"),
        (("Uma frase do teste.", "A phrase.", "news"), "equals a test sentence"),
        (("escola", "school of the", "word"), "no translation of a word"),
    ],
)
def test_pairs_that_are_left_out(row, fault, tmp_path):
    (tmp_path / "test.pt").write_text("uma frase do teste\n", "utf-8")
    assert pt_en.Filter([tmp_path / "test.pt"]).fault(row) == fault


def test_the_script_reads_its_arguments(tmp_path):
    """Options may come without folders: they are no folders."""
    done = subprocess.run(
        ["bash", RECIPES / "pt-en.sh", "--set", "train.steps=2"],
        env={"PATH": "/usr/bin:/bin", "ANYDEPTH": str(tmp_path / "none")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "make demo" in done.stderr or "needs Linux" in done.stderr
    assert list(tmp_path.iterdir()) == []

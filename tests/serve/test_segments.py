"""Texts are split into sentences and put together again without loss."""

import random

import pytest

from anydepth.serve.segments import Segment, split

TEXT = "  Bonjour M. Dupont. Comment ça va ?\r\n\r\nJe vais bien… merci !\tEt toi ?\u2028- un\n- deux\n\n😀 --- ?! "


def whole(segments):
    return "".join(one.around(one.text) for one in segments)


def fits_in(length):
    return lambda piece: len(piece) <= length


def test_sentences_and_white_space():
    found = split(TEXT, "fr", fits_in(200))
    assert whole(found) == TEXT
    assert [one.text for one in found if one.is_for_the_model] == [
        "Bonjour M. Dupont.",
        "Comment ça va ?",
        "Je vais bien… merci !",
        "Et toi ?",
        "- un",
        "- deux",
    ]
    assert found[0] == Segment("  ", "Bonjour M. Dupont.", " ")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Il a vu M. Dupont hier.", "fr"),
        ("M. Martin dort.", "fr"),
        ("J'ai vu le Dr. Martin.", "fr"),
        ("Mme. Durand et Mlle. Petit sont venues.", "fr"),
        ("J. B. Martin habite à St. Denis.", "fr"),
        ("Dr. Smith met Mrs. Jones.", "en"),
        ("El Sr. García y la Sra. López.", "es"),
    ],
)
def test_a_title_or_an_initial_ends_no_sentence(text, language):
    assert [one.text for one in split(text, language, fits_in(200))] == [text]
    assert [one.text for one in split(f"{text} Oui. {text}", language, fits_in(200))] == [text, "Oui.", text]


def test_a_run_of_white_space_is_no_trap():
    """It took minutes once, by the square of its length."""
    text = "mot " * 100 + " " * 100_000 + "x"
    found = split(text, "fr", fits_in(200))
    assert whole(found) == text
    assert found[-1].text.endswith("x")


@pytest.mark.parametrize("length", [1, 2, 7, 50])
def test_whatever_the_text_nothing_is_lost_and_everything_fits(length):
    rng = random.Random(length)
    letters = "aé,.;: \t\n\r\u2028\u3000?!😀本。-–'’\"0\u200b\u0301"
    for _ in range(200):
        text = "".join(rng.choices(letters, k=rng.randrange(120)))
        found = split(text, "fr", fits_in(length))
        assert whole(found) == text
        assert all(len(one.text) <= length for one in found)


def test_what_is_too_long_is_divided_at_clauses_and_then_at_words():
    text = "un deux trois quatre, cinq six sept huit neuf"
    assert [one.text for one in split(text, "fr", fits_in(30))] == ["un deux trois quatre,", "cinq six sept huit neuf"]
    assert [one.text for one in split("un deux trois quatre", "fr", fits_in(12))] == ["un deux", "trois quatre"]
    assert [len(one.text) for one in split("x" * 100, "fr", fits_in(30))] == [25, 25, 25, 25]


@pytest.mark.parametrize("language", ["fr", "en", "ja", "source", "", "xx-yy", "🙂"])
def test_any_language_code_will_do(language):
    assert whole(split("One. Two!\nThree?", language, fits_in(99))) == "One. Two!\nThree?"

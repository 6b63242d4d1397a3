"""Text in capitals: what counts as such, and its sentence case and back."""

import pytest

from anydepth.data.capitals import LOWER, UPPER, is_in_capitals, to_capitals, to_sentence_case


@pytest.mark.parametrize(
    ("text", "lower"),
    [
        ("BOM DIA!", "Bom dia!"),
        ("3 PESSOAS CHEGARAM", "3 pessoas chegaram"),
        ("OS E.U.A. SÃO GRANDES. ÉS TU?", "Os e.U.A. São grandes. És tu?"),
        ("«ATENÇÃO»: {NOME}", "«Atenção»: {nome}"),
        ("ПРИВЕТ, МИР", "Привет, мир"),
    ],
)
def test_capitals_come_back(text, lower):
    assert is_in_capitals(text)
    assert to_sentence_case(text) == lower
    assert to_capitals(lower) == text


@pytest.mark.parametrize("text", ["", "OTAN", "A B C D", "Bom dia", "BOM DIA a todos", "12345", "漢字漢字漢字"])
def test_other_text_stays(text):
    assert not is_in_capitals(text)


def test_letters_are_those_of_unicode():
    assert all(capital.lower() == small and small.upper() == capital for capital, small in LOWER.items())
    assert len(UPPER) == len(LOWER)
    assert {chr(c) for c in range(0x180) if chr(c).isupper()} - LOWER.keys() == {"İ"}

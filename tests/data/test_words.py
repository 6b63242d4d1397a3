import random

import pytest

from anydepth.data.words import split_words, words_of_pieces


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A TERRIBLE film.", ["a", "terrible", "film", "."]),
        ("don't, really?!", ["don", "'", "t", ",", "really", "?", "!"]),
        ("snake_case 3rd  10", ["snake", "_", "case", "3rd", "10"]),
        ("Łódź\tÀ\u00a0Straße\n", ["łodz", "a", "straße"]),
        ("東京タワーはすこい", list("東京タワーはすこい")),
        ("iPhone東京x", ["iphone", "東", "京", "x"]),
        ("İstanbul Ⅷ", ["istanbul", "viii"]),
        ("हिन्दी สวัสดี", ["हिनदी", "สวสด"]),  # marks are of their word, and not of its name
        ("café cafe\u0301 soft\u00adhyphen", ["cafe", "cafe", "softhyphen"]),
        ("\u0301 \u200b", ["\u0301", "\u200b"]),
        ("", []),
        (" \n\u3000", []),
    ],
)
def test_words(text, words):
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("surfaces", "numbers"),
    [
        ([" terr", "ible", ".", " Film"], [0, 0, 1, 2]),
        (["a", "b c", "d"], [0, 0, 1]),  # a piece of two words goes with the first
        ([" İ", "x", " y"], [0, 0, 1]),
        (["don", "'", "t", " go"], [0, 1, 2, 3]),
        ([" ", "a", "  ", " ", "b", " "], [0, 0, 1, 1, 1, 1]),
        (["", "ab", "", " ", "", "c", ""], [0, 0, 0, 1, 1, 1, 1]),
        (["東京", "都"], [0, 2]),
        ([" "], [-1]),
        (["", " "], [-1, -1]),
        ([], []),
    ],
)
def test_words_of_sub_words(surfaces, numbers):
    assert words_of_pieces(surfaces) == (split_words("".join(surfaces)), numbers)


def slow_numbers(surfaces):
    """Character by character: each word's start is found by splitting what comes before it."""
    text = "".join(surfaces)
    total = len(split_words(text))
    numbers, start = [], 0
    for surface in surfaces:
        first = start + len(surface) - len(surface.lstrip())
        # the words that begin up to this character, which is in the last of them unless it is a space
        within = surface.strip() != ""
        numbers.append(min(len(split_words(text[: first + within])) - within, total - 1))
        start += len(surface)
    return numbers


def test_any_cut_of_any_text():
    rng = random.Random(1)
    for _ in range(300):
        text = "".join(rng.choice("aZ é.,'_9東カ  ") for _ in range(rng.randint(1, 30)))
        cuts = sorted(rng.choices(range(len(text) + 1), k=8))
        surfaces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if text[a:b].strip()]
        words, numbers = words_of_pieces(surfaces)
        assert words == split_words("".join(surfaces))
        assert numbers == slow_numbers(surfaces), surfaces

import pytest

from anydepth.evaluate.metrics import repetition_rate, score, sentence_chrf


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("the the cat", 1 / 3),
        ("the the the cat", 2 / 4),
        ("No, no, thank you.", 1 / 4),
        ("I go I go home", 2 / 5),
        ("a b c d a b c d", 4 / 8),
        ("a b c d e a b c d e", 0.0),  # five words are too long a span
        ("a b a b a", 3 / 5),
        ("the cat and the dog", 0.0),  # not immediately
        ("well - well", 1 / 2),  # a lone dash is no word
        ("काका का", 0.0),
        ("", 0.0),
        ("... !", 0.0),
    ],
)
def test_repetition_rate_by_hand(text: str, share: float) -> None:
    assert repetition_rate([text]) == pytest.approx(share)


def test_repetition_rate_counts_words_of_the_whole_corpus() -> None:
    assert repetition_rate(["no no", "a b c d e f"]) == pytest.approx(1 / 8)


def test_spans_do_not_cross_lines() -> None:
    assert repetition_rate(["yes", "yes"]) == 0.0


def test_bleu_by_hand() -> None:
    # 1- to 4-gram precisions 5/6, 3/5, 2/4, 1/3 without brevity penalty: their geometric mean
    quality = score(["the cat sat on the rug"], ["the cat sat on a rug"])
    assert quality.bleu == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25, abs=1e-6)
    assert quality.length_ratio == 1.0


def test_perfect_output() -> None:
    lines = ["A small house by the river.", "No, no, he said."]
    quality = score(lines, lines)
    assert quality.bleu == pytest.approx(100)
    assert quality.chrf == pytest.approx(100)
    assert quality.length_ratio == 1.0
    assert quality.repetition_rate == quality.reference_repetition_rate == pytest.approx(1 / 10)


def test_empty_output_scores_nothing() -> None:
    quality = score(["", ""], ["a house", "a tree"])
    assert (quality.bleu, quality.chrf, quality.length_ratio, quality.repetition_rate) == (0, 0, 0, 0)


def test_length_ratio_counts_13a_tokens() -> None:
    assert score(["a b ."], ["a b c d e."]).length_ratio == pytest.approx(3 / 6)


def test_signatures_name_tokeniser_and_version() -> None:
    quality = score(["a"], ["a"])
    assert "tok:13a" in quality.bleu_signature
    assert "version:" in quality.bleu_signature
    assert "nc:6|nw:0" in quality.chrf_signature


def test_sentence_chrf_is_one_number_per_line() -> None:
    same, different = sentence_chrf(["a small house", "xyz"], ["a small house", "a small tree"])
    assert same == pytest.approx(100)
    assert different == pytest.approx(0)

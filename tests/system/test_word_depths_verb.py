"""The verb word-depths mi."""

import pytest
from conftest import assert_one_line

from anydepth.evaluate.figures import draw
from anydepth.evaluate.word_depths import word_depths_report
from anydepth.word_depths.table import WordDepths

REVIEWS = "good\tgreat film, great fun\ngood\tgreat and [warm]\nbad\tdull film\nbad\tdull and $flat_\n" * 5
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(REVIEWS)
    return path


def test_table_picture_and_histogram(train, here):
    out = train.with_name("depths.json")
    done = here("word-depths", "mi", "--train", train, "--layers", 3, "--out", out)
    assert done.returncode == 0, done.stderr
    table = WordDepths.load(out)
    assert table.layers == 3
    assert table.facts["labels"] == {"good": 10, "bad": 10}
    # great and dull say all; film and and, half here and half there, nothing
    assert table.depths(["great", "dull", "film", "and", "never"]) == [1, 1, 3, 3, 3]
    assert out.with_suffix(".png").read_bytes().startswith(PNG)
    header, first, *_, mean = done.stdout.decode().splitlines()
    assert header.split() == ["depth", "words", "occurrences", "share", "examples"]
    # great 15, dull 10 of the 85 words and signs
    assert first.split() == ["1", "2", "25", "29.4%", "great,", "dull"]
    assert mean.startswith("mean depth by occurrence: 1.9")
    assert mean.endswith(" of 3")
    again = out.read_bytes()
    assert here("word-depths", "mi", "--train", train, "--layers", 3, "--out", out).returncode == 0
    assert out.read_bytes() == again


def test_shuffled_depths_are_those_of_other_words(train, here):
    tables = {}
    for name, flags in (("plain", ()), ("shuffled", ("--shuffled",)), ("again", ("--shuffled",))):
        out = train.with_name(f"{name}.json")
        assert here("word-depths", "mi", "--train", train, "--layers", 3, "--out", out, *flags).returncode == 0
        tables[name] = WordDepths.load(out)
    plain, shuffled = tables["plain"].values, tables["shuffled"].values
    assert plain.keys() == shuffled.keys()
    assert plain != shuffled
    assert sorted(plain.values()) == sorted(shuffled.values())
    assert shuffled == tables["again"].values
    assert tables["shuffled"].facts["shuffled"]


def test_columns_of_csv(tmp_path, here):
    path = tmp_path / "train.csv"
    path.write_text('stars,review\n1,"dull, dull"\n5,great\n')
    out = tmp_path / "d.json"
    options = ("--layers", 2, "--out", out)
    assert_one_line(here("word-depths", "mi", "--train", path, *options), "no column 'text'", "stars, review")
    done = here("word-depths", "mi", "--train", path, *options, "--text-column", "review", "--label-column", "stars")
    assert done.returncode == 0, done.stderr
    assert set(WordDepths.load(out).values) == {"dull", ",", "great"}


def test_what_is_not_ours_stays(train, here, tmp_path):
    thesis = tmp_path / "thesis.json"
    thesis.write_text('{"years": 4}')
    options = ("word-depths", "mi", "--train", train, "--layers", 3, "--out")
    assert_one_line(here(*options, thesis), "is not a table of word depths", "--out")
    assert thesis.read_text() == '{"years": 4}'
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"a face")
    assert_one_line(here(*options, tmp_path / "photo.json"), "photo.png exists")
    assert_one_line(here(*options, photo), "give the name of a .json file")
    assert photo.read_bytes() == b"a face"
    assert_one_line(here(*options, tmp_path), "is not a table of word depths")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photo.png", "thesis.json", "train.tsv"]


def test_refusals(tmp_path, here):
    path = tmp_path / "train.tsv"
    run = ("word-depths", "mi", "--train", path, "--out", tmp_path / "d.json", "--layers")
    assert_one_line(here(*run, 3), "does not exist")
    path.write_text("good\tfilm\ngood film\n")
    assert_one_line(here(*run, 3), "line 2", "no tab")
    path.write_text("good\tfilm\ngood\tfun\n")
    assert_one_line(here(*run, 3), "only the label 'good'")
    assert_one_line(here(*run, 0), "--layers")
    assert not (tmp_path / "d.json").exists()


def test_many_texts_are_watched(tmp_path, here):
    path = tmp_path / "train.tsv"
    path.write_text("good\tfun\nbad\tdull\n" * 11_000)
    done = here("word-depths", "mi", "--train", path, "--layers", 3, "--out", tmp_path / "d.json")
    lines = done.stderr.decode().splitlines()
    assert lines[:2] == ["texts read: 2,200 of 22,000", "texts read: 4,400 of 22,000"]
    assert "d.json" in lines[-1]


@pytest.mark.parametrize(
    "table",
    [
        WordDepths("mi", 1, {"one": (1.5,)}),
        WordDepths("mi", 6, {}),
        WordDepths("reconstruction", 4, {"one": (1.0, 1.0), "$two_": (4.0, 2.0)}, (0.0, 0.1), 0.1),
    ],
)
def test_pictures_of_unlike_tables(table):
    def drawn(words: dict[str, int]) -> tuple[bytes, str]:
        (figure,) = word_depths_report(table, words).figures()
        return draw(figure)

    first = drawn({"one": 3, "$two_": 1, "unseen": 2})
    assert first[0].startswith(PNG)
    assert "% of the occurrences" in first[1]
    assert drawn({"one": 3, "$two_": 1, "unseen": 2}) == first
    assert drawn({"one": 1, "unseen": 60})[0] != first[0] or table.layers == 1

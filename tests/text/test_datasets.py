import subprocess
from pathlib import Path

import pytest

from anydepth.errors import UserError
from anydepth.files import sha256_of
from anydepth.text import datasets as module
from anydepth.text import fetch, read_lines

# Scores on the test set compare only while it is made of the same bytes.
TEST_FR_SHA256 = "748baabc13c4e04a4f87e272ceef17afb164f1cebcc7238e1f7ac72d5af2f92c"


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
    assert sha256_of(french / "test.fr") == TEST_FR_SHA256
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
    monkeypatch.setattr(module, "_download", lambda folder: pytest.fail("downloaded again"))
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
    with pytest.raises(UserError, match="pass it with --archive") as caught:
        fetch("tatoeba-en-fr", tmp_path / "data")
    assert "\n" not in str(caught.value)


def test_unknown_name(tmp_path):
    with pytest.raises(UserError, match="choose from tatoeba-en-fr, tatoeba-en-es"):
        fetch("tatoeba-en-xx", tmp_path / "data")

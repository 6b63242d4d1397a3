import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from anydepth.config import CorpusConfig
from anydepth.data.corpus import decode_lines, read_lines, read_pairs
from anydepth.errors import UserError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def two_files(tmp_path: Path, source: str | bytes, target: str | bytes) -> CorpusConfig:
    return CorpusConfig(source=write(tmp_path / "a.en", source), target=write(tmp_path / "a.fr", target))


def failure(config: CorpusConfig) -> str:
    with pytest.raises(UserError) as caught:
        list(read_pairs(config))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_two_files(tmp_path):
    config = two_files(tmp_path, "one\ntwo\n", "un\r\ndeux")
    assert list(read_pairs(config)) == [("one", "un"), ("two", "deux")]


def test_only_a_line_feed_ends_a_line(tmp_path):
    odd = "a\u2028b\x0bc\x85d\x0ce\x1cf\rg"
    config = two_files(tmp_path, f"\ufeff{odd}\nsecond\n", "un\ndeux\n")
    assert list(read_pairs(config)) == [(odd, "un"), ("second", "deux")]


def test_a_mark_inside_the_file_stays(tmp_path):
    assert list(read_lines(write(tmp_path / "x", "a\n\ufeffb\n"))) == ["a", "\ufeffb"]


def test_gzip_is_known_by_its_content_not_its_name(tmp_path):
    plain_named_gz = write(tmp_path / "a.gz", "one\n")
    zipped_named_txt = write(tmp_path / "a.txt", gzip.compress(b"un\n"))
    config = CorpusConfig(source=plain_named_gz, target=zipped_named_txt)
    assert list(read_pairs(config)) == [("one", "un")]


@pytest.mark.parametrize("damage", [lambda raw: raw[:-9], lambda raw: raw[:40] + b"\0\0\0\0" + raw[44:]])
def test_damaged_gzip(tmp_path, damage):
    text = "".join(f"line {number * 7919}\n" for number in range(2000))
    path = write(tmp_path / "a.gz", damage(gzip.compress(text.encode())))
    with pytest.raises(UserError, match=r"a\.gz: the gzip file is damaged"):
        list(read_lines(path))


@pytest.mark.parametrize(("source", "target"), [("a\nb\nc\n", "x\ny\n"), ("a\nb\n", "x\ny\nz\n")])
def test_different_line_counts(tmp_path, source, target):
    message = failure(two_files(tmp_path, source, target))
    assert f"a.en has {source.count(chr(10))} lines" in message
    assert f"a.fr has {target.count(chr(10))}" in message


def test_broken_utf8_is_located(tmp_path):
    assert "a.fr, line 2" in failure(two_files(tmp_path, "a\nb\n", b"x\n\xff\xfe\n"))


def test_missing_folder_and_empty(tmp_path):
    good = write(tmp_path / "good", "x\n")
    empty = write(tmp_path / "empty", "")
    assert "nowhere does not exist" in failure(CorpusConfig(source=tmp_path / "nowhere", target=good))
    assert "is a folder" in failure(CorpusConfig(source=good, target=tmp_path))
    assert "empty is empty" in failure(CorpusConfig(source=empty, target=good))


def test_tsv_columns(tmp_path):
    path = write(tmp_path / "a.tsv", "1\tone\tun\n2\ttwo\tdeux\n")
    config = CorpusConfig(tsv=path, source_column=3, target_column=2)
    assert list(read_pairs(config)) == [("un", "one"), ("deux", "two")]


def test_tsv_line_with_too_few_columns(tmp_path):
    path = write(tmp_path / "a.tsv", "one\tun\ntwo\n")
    assert "a.tsv, line 2: 1 columns" in failure(CorpusConfig(tsv=path))


def test_decode_lines_names_its_stream():
    assert list(decode_lines(io.BytesIO(b""), "stdin")) == []
    with pytest.raises(UserError, match="stdin, line 1"):
        list(decode_lines(io.BytesIO(b"\xc3\n"), "stdin"))


def hub_folder(tmp_path: Path, rows: list[dict]) -> str:
    pytest.importorskip("datasets")
    folder = tmp_path / "hub"
    folder.mkdir()
    write(folder / "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


@pytest.mark.slow
def test_huggingface_columns(tmp_path):
    name = hub_folder(tmp_path, [{"en": "one", "fr": "un"}, {"en": "two", "fr": None}])
    config = CorpusConfig(huggingface=name, source_column="en", target_column="fr")
    assert list(read_pairs(config)) == [("one", "un"), ("two", "")]


def test_huggingface_translation_dict(tmp_path):
    name = hub_folder(tmp_path, [{"id": 1, "translation": {"en": "one", "fr": "un"}}])
    config = CorpusConfig(huggingface=name, source_column="fr", target_column="en")
    assert list(read_pairs(config)) == [("un", "one")]


def test_huggingface_mistakes(tmp_path):
    name = hub_folder(tmp_path, [{"en": "one", "fr": "un"}])
    assert "set source_column and target_column" in failure(CorpusConfig(huggingface=name))
    wrong_column = CorpusConfig(huggingface=name, source_column="en", target_column="de")
    assert "no column 'de': choose from en, fr" in failure(wrong_column)
    wrong_split = CorpusConfig(huggingface=name, split="dev", source_column="en", target_column="fr")
    assert "split dev" in failure(wrong_split)


def test_huggingface_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    config = CorpusConfig(huggingface="any", source_column="en", target_column="fr")
    assert "pip install 'anydepth[huggingface]'" in failure(config)

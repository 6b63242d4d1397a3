"""Tokens in shards, made by several processes, are those that one process makes."""

import json

import pytest
from conftest import toy_pairs

from anydepth.config import DataConfig
from anydepth.data import prepare, shards
from anydepth.data.tokenizer import sample_sentences

LONG = "le chat dort " * 40


def write_text(path, pairs):
    for side, name in enumerate(("source", "target")):
        lines = (f"{pair[side]}\n" for pair in pairs)
        path.with_suffix(f".{name}").write_text("".join(lines), "utf-8")
    return {"source": str(path.with_suffix(".source")), "target": str(path.with_suffix(".target"))}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    pairs = toy_pairs(300, seed=3)
    corpora = [write_text(folder / "a", [*pairs[:120], (LONG, LONG), *pairs[120:200]])]
    corpora.append(write_text(folder / "b", pairs[:50]))  # nothing of it is new
    corpora.append(write_text(folder / "c", [(LONG, LONG + "é"), *pairs[200:]]))
    settings = {"vocabulary": 300, "hold_out": 20, "max_tokens": 100, "max_ratio": 10}
    return DataConfig.model_validate({"train": corpora, **settings})


def read_tokens(prepared):
    store = prepared.parts[0].train
    return [tuple(side.tolist() for side in store.pair(index)) for index in range(len(store))]


@pytest.mark.slow
def test_shards_do_not_matter(config, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "BLOCK", 100)
    whole = prepare(config, tmp_path / "whole", seed=1)
    monkeypatch.setattr(shards, "SHARD", 7)
    monkeypatch.setattr(shards, "cores", lambda: 2)
    cut = prepare(config, tmp_path / "cut", seed=1)
    assert len(list((tmp_path / "cut").glob("train*.source.tokens"))) > len(read_tokens(cut)) // 7
    assert read_tokens(cut) == read_tokens(whole)
    assert cut.counts == whole.counts
    assert cut.counts["train"]["too_long"] == 2
    assert cut.parts[0].spans == whole.parts[0].spans
    assert [span.pairs for span in cut.parts[0].spans][1] == 0
    assert sum(span.pairs for span in cut.parts[0].spans) == len(read_tokens(cut)) == cut.counts["train"]["kept"]


def test_a_missing_shard_is_noticed(config, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD", 100)
    monkeypatch.setattr(shards, "cores", lambda: 1)
    prepare(config, tmp_path / "data", seed=1)
    assert "train-1.source.tokens" in json.loads((tmp_path / "data" / "prepared.json").read_text("utf-8"))["files"]
    (tmp_path / "data" / "train-1.source.offsets").unlink()
    with pytest.raises(shards.UserError, match="damaged: delete"):
        prepare(config, tmp_path / "data", seed=1)


def test_a_sample_is_as_large_as_it_may_be_and_uniform():
    sentences = [f"{number:05d}" for number in range(20_000)]
    assert sample_sentences(iter(sentences), 20_000, 1) == sentences
    assert sample_sentences(iter(sentences), 20_000, 1, characters=100_000) == sentences
    for options in ({"size": 1000}, {"size": 20_000, "characters": 5000}):
        found = sample_sentences(iter(sentences), seed=1, **options)
        assert 850 <= len(found) <= 1000
        assert found == sorted(set(found))
        # Half of them from either half; 60 are four standard deviations.
        assert abs(sum(one < "10000" for one in found) - len(found) / 2) < 60
        assert found == sample_sentences(iter(sentences), seed=1, **options)
        assert found != sample_sentences(iter(sentences), seed=2, **options)

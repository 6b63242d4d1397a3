"""Several corpora of one language pair, each with a weight."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import run_recipe, toy_pairs, write_corpus
from labelled_texts import toy_texts, write_labelled
from pydantic import ValidationError

from anydepth.config import DataConfig
from anydepth.config.reading import read_recipe
from anydepth.data import BatchStream, prepare
from anydepth.data.batching import CorpusSpan, epoch_rows
from anydepth.errors import UserError


@pytest.fixture
def corpora(tmp_path):
    """Two that share their first hundred pairs."""
    first = write_corpus(tmp_path, 600, "first", seed=1)
    second = write_corpus(tmp_path, 300, "second", seed=2)
    for path, side in zip(second, (0, 1), strict=True):
        shared = "".join(f"{pair[side]}\n" for pair in toy_pairs(600, 1)[:100])
        path.write_text(shared + path.read_text("utf-8"), "utf-8")
    return [{"source": str(source), "target": str(target)} for source, target in (first, second)]


def make_config(corpora, *weights):
    train = [corpus | {"weight": weight} for corpus, weight in zip(corpora, weights, strict=True)]
    return DataConfig.model_validate({"train": train, "hold_out": 20, "vocabulary": 300})


def test_what_is_in_both_is_trained_on_once_and_what_is_held_out_in_neither(corpora, tmp_path):
    prepared = prepare(make_config(corpora, 1, 1), tmp_path / "data", 1)
    (part,) = prepared.parts
    pairs = list(prepared.training_text())
    assert len(set(pairs)) == len(pairs) == len(part.train) == sum(span.pairs for span in part.spans)
    held_out = {source for source, _ in part.valid_pairs}
    assert not held_out & {source for source, _ in pairs}
    first = {tuple(pair) for pair in toy_pairs(600, 1)}
    assert {pair in first for pair in pairs[: part.spans[0].pairs]} == {True}
    assert not first & set(pairs[part.spans[0].pairs :])


def test_an_epoch_has_a_corpus_as_often_as_it_weighs(corpora, tmp_path):
    config = make_config(corpora, 0.5, 2)
    (part,) = prepare(config, tmp_path / "data", 1).parts
    stream = BatchStream(part.train, 200, 1, spans=part.spans)
    size = part.spans[0].pairs
    epochs = [
        Counter(int(i) for index in range(stream.batches_in(epoch)) for i in stream.at(epoch, index).indices)
        for epoch in range(2)
    ]
    for seen in epochs:
        assert {count for row, count in seen.items() if row >= size} == {2}
        assert len([row for row in seen if row >= size]) == part.spans[1].pairs
    halves = [{row for row in seen if row < size} for seen in epochs]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == set(range(size))


def test_weights_are_not_part_of_what_is_prepared(corpora, tmp_path):
    one, two = (prepare(make_config(corpora, *weights), tmp_path / "data", 1) for weights in ((1, 1), (3, 1)))
    assert one.fingerprint == two.fingerprint
    assert [span.weight for span in two.parts[0].spans] == [3, 1]


def test_a_fraction_goes_round(tmp_path):
    seen = Counter(np.concatenate([epoch_rows([CorpusSpan(10, 0.3)], 1, epoch) for epoch in range(10)]).tolist())
    assert seen == Counter(dict.fromkeys(range(10), 3))


def test_a_recipe_may_list_corpora(corpora, toy_recipe, tmp_path):
    listed = ", ".join(f"{{source: {one['source']}, target: {one['target']}, weight: 2}}" for one in corpora)
    run_recipe(toy_recipe, tmp_path / "run", f"data.train=[{listed}]", "train.steps=3", "data.vocabulary=300")
    assert "first.fr, first.en; second.fr, second.en" in (tmp_path / "run/model/README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"train": []}, "nothing to train on"),
        ({"train": {"text": "a", "weight": 2}}, "no effect on a single corpus"),
        ({"train": {"text": "a"}, "valid": {"text": "b", "weight": 2}}, "no effect on a validation corpus"),
        ({"train": [{"text": "a"}, {"labelled": "b"}]}, "in each corpus or in none"),
        ({"train": [{"text": "a", "weight": 0}]}, "greater than 0"),
    ],
)
def test_weights_and_lists_that_make_no_sense(data, words):
    with pytest.raises(ValidationError, match=words):
        DataConfig.model_validate(data)


def test_a_fold_takes_from_every_corpus(tmp_path):
    corpora = []
    for name, seed in (("first", 1), ("second", 2)):
        corpora.append({"labelled": str(write_labelled(tmp_path / f"{name}.tsv", toy_texts(200, seed)))})
    settings = {"folds": 3, "hold_out": 20, "vocabulary": 300, "deduplicate": False}
    config = DataConfig.model_validate({"train": corpora, **settings})
    prepared = prepare(config, tmp_path / "data", 1)
    tested = {line.split("\t")[1] for line in (tmp_path / "data" / "test.tsv").read_text("utf-8").splitlines()}
    for corpus in corpora:
        texts = {line.split("\t")[1] for line in Path(corpus["labelled"]).read_text("utf-8").splitlines()}
        assert 0 < len(tested & texts) < len(texts)
    assert not tested & {text for text, _ in prepared.training_text()}


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ("{sorce: a, target: b}", "there is no key data.train.sorce"),
        ("[{source: a, target: b}, {sorce: a, target: b}]", r"there is no key data.train.2.sorce \(counted from 1\)"),
        ("[{source: a, target: b}, {source: a, target: b, weight: -1}]", "data.train.2.weight"),
        ("a file", "data.train is a section"),
    ],
)
def test_what_is_wrong_with_a_corpus_is_named(tmp_path, train, words):
    (tmp_path / "recipe.yaml").write_text(f"data: {{train: {train}}}\n", "utf-8")
    with pytest.raises(UserError, match=words):
        read_recipe(tmp_path / "recipe.yaml")

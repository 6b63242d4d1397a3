"""Preparing texts with labels: from files to numbers, with parts to validate and, in cross-validation, to test with."""

import json
import random
from pathlib import Path

import pytest

from anydepth.config import CorpusConfig, DataConfig, PairConfig
from anydepth.data import Prepared, prepare
from anydepth.data.batching import BatchStream
from anydepth.data.corpus import read_labelled
from anydepth.data.parts import TEST
from anydepth.data.preparation import describe_data
from anydepth.errors import UserError

WORDS = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "good", "bad", "fine", "film",
    "story", "actor", "scene", "plot",
]  # fmt: skip


def made_texts(count: int = 400, seed: int = 1) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    texts = {" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 9))) for _ in range(2 * count)}
    return [(text, rng.choice(["neg", "pos", "so-so"])) for text in sorted(texts)[:count]]


def labelled(path: Path, texts: list[tuple[str, str]]) -> CorpusConfig:
    path.write_text("".join(f"{label}\t{text}\n" for text, label in texts), "utf-8")
    return CorpusConfig(labelled=path)


@pytest.fixture
def corpus(tmp_path) -> CorpusConfig:
    return labelled(tmp_path / "train.tsv", made_texts())


def config(train: CorpusConfig, **keys: object) -> DataConfig:
    return DataConfig(**({"train": train, "hold_out": 40, "vocabulary": 300, "max_tokens": 60} | keys))


def run(folder: Path, data: DataConfig, seed: int = 1) -> Prepared:
    return prepare(data, folder / "prepared", seed)


def trained_on(prepared: Prepared) -> list[tuple[str, str]]:
    return list(prepared.training_text())


def read_numbers(prepared: Prepared) -> list[int]:
    store = prepared.parts[0].train
    return [int(store.pair(i)[1][0]) for i in range(len(store))]


def test_a_label_becomes_its_number(tmp_path, corpus):
    prepared = run(tmp_path, config(corpus))
    assert prepared.labels == ("neg", "pos", "so-so")
    assert [prepared.labels[number] for number in read_numbers(prepared)] == [
        label for _, label in trained_on(prepared)
    ]
    batch = BatchStream(prepared.parts[0].train, 200, 1, labelled=True).at(0, 0)
    texts = {tuple(prepared.tokenizer.encode(text)): label for text, label in trained_on(prepared)}
    for row, label in zip(batch.source.tolist(), batch.labels.tolist(), strict=True):
        ids = tuple(token for token in row if token not in (0, 3))
        assert texts[ids] == prepared.labels[label]
    assert batch.terms == len(batch) == len(batch.labels)


def test_what_is_held_out_shares_no_text_with_train(tmp_path):
    texts = made_texts()
    other = [(text, {"neg": "pos"}.get(label, "neg")) for text, label in texts[:50]]
    prepared = run(tmp_path, config(labelled(tmp_path / "train.tsv", texts + other)))
    valid = prepared.parts[0].valid_pairs
    assert len(valid) == 40
    assert not {text for text, _ in valid} & {text for text, _ in trained_on(prepared)}
    assert set(valid) <= set(texts + other)
    assert prepared.counts["train"]["kept"] == len(trained_on(prepared))


def test_a_long_text_is_cut_and_not_left_out(tmp_path):
    long = " ".join(random.Random(2).choices(WORDS, k=300))
    texts = [*made_texts(), (long, "pos")]
    prepared = run(tmp_path, config(labelled(tmp_path / "train.tsv", texts), max_tokens=12, hold_out=1))
    assert (long, "pos") in [*trained_on(prepared), *prepared.parts[0].valid_pairs]
    assert max(prepared.parts[0].train.source_lengths) == 12
    assert prepared.counts["train"]["too_long"] == prepared.counts["train"]["ratio"] == 0


def test_duplicates_stay_if_asked_for(tmp_path):
    texts = made_texts()
    twice = labelled(tmp_path / "train.tsv", texts * 2)
    valid = labelled(tmp_path / "valid.tsv", [("one film", "pos")])
    once = run(tmp_path / "a", config(twice, valid=valid))
    assert sorted(trained_on(once)) == sorted(texts)
    assert once.counts["train"]["duplicates"] == 400
    both = run(tmp_path / "b", config(twice, valid=valid, deduplicate=False))
    assert sorted(trained_on(both)) == sorted(texts * 2)
    # and none of two is validated with while the other is trained on
    held_out = run(tmp_path / "c", config(twice, deduplicate=False))
    seen = {text for text, _ in trained_on(held_out)}
    assert not seen & {text for text, _ in held_out.parts[0].valid_pairs}


def test_folds_part_all_texts(tmp_path, corpus):
    tests, everything = [], set(made_texts())
    for fold in (1, 2, 3, 4):
        prepared = run(tmp_path / str(fold), config(corpus, folds=4, fold=fold))
        test = list(read_labelled(prepared.folder / TEST))
        valid, train = prepared.parts[0].valid_pairs, trained_on(prepared)
        assert len(test) + len(valid) + len(train) == 400
        assert set(test) | set(valid) | set(train) == everything
        assert prepared.counts["train"]["held_out"] == len(test) + 40
        assert prepared.counts["train"]["kept"] == len(train)
        assert 60 < len(test) < 140
        tests += test
    assert sorted(tests) == sorted(everything)


def test_equal_texts_are_in_one_fold_whatever_the_seed(tmp_path):
    texts = made_texts(200)
    other = [(text, "so-so" if label != "so-so" else "pos") for text, label in texts]
    corpus = labelled(tmp_path / "train.tsv", texts + other)
    of_seeds = []
    for seed in (1, 2):
        prepared = run(tmp_path / str(seed), config(corpus, folds=3, fold=2), seed)
        test = list(read_labelled(prepared.folder / TEST))
        assert len(test) == 2 * len({text for text, _ in test})
        assert not {text for text, _ in test} & {text for text, _ in trained_on(prepared)}
        of_seeds.append((test, prepared.parts[0].valid_pairs))
    (test, valid), (same_test, other_valid) = of_seeds
    assert test == same_test
    assert valid != other_valid


def test_without_folds_there_is_nothing_to_test_with(tmp_path, corpus):
    assert not (run(tmp_path, config(corpus)).folder / TEST).exists()


def test_a_csv_has_columns(tmp_path):
    rows = "".join(f'{label},"{text}, {text}"\n' for text, label in made_texts())
    (path := tmp_path / "train.csv").write_text("stars,review\n" + rows, "utf-8")
    corpus = CorpusConfig(labelled=path, text_column="review", label_column="stars")
    assert run(tmp_path, config(corpus)).labels == ("neg", "pos", "so-so")


@pytest.mark.parametrize(
    ("train", "valid", "words"),
    [
        (made_texts(), [("one film", "great")], "the label 'great' of the validation corpus does not occur"),
        ([(text, "pos") for text, _ in made_texts()], None, "all texts of the training corpus have the label 'pos'"),
        ([("", "pos"), (" ", "neg")], None, "none of the texts of the training corpus is usable"),
        (made_texts()[:5], None, "hold"),
    ],
    ids=["unknown", "one", "empty", "few"],
)
def test_what_nothing_can_be_learnt_from_is_refused(tmp_path, train, valid, words):
    keys = {} if valid is None else {"valid": labelled(tmp_path / "valid.tsv", valid)}
    with pytest.raises(UserError, match=words):
        run(tmp_path, config(labelled(tmp_path / "train.tsv", train), **keys))
    assert not (tmp_path / "prepared").exists()


def test_the_same_is_used_again_and_another_refused(tmp_path, corpus):
    first = run(tmp_path, config(corpus, folds=3, fold=1))
    before = {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    again = run(tmp_path, config(corpus, folds=3, fold=1))
    assert {path.name: path.stat().st_mtime_ns for path in again.folder.iterdir()} == before
    assert (again.labels, again.fingerprint) == (first.labels, first.fingerprint)
    for change in ({"fold": 2}, {"folds": 4}, {"folds": None}, {"deduplicate": False}, {"max_tokens": 20}):
        with pytest.raises(UserError, match=f"was prepared with another data.{next(iter(change))}"):
            run(tmp_path, config(corpus, **({"folds": 3, "fold": 1} | change)))
    with pytest.raises(UserError, match=r"train\.seed"):
        run(tmp_path, config(corpus, folds=3, fold=1), seed=2)


def test_notes_of_other_texts_say_what_they_always_said(tmp_path):
    pair = CorpusConfig(source=Path("a.fr"), target=Path("a.en"))
    keys = ["source_language", "target_language", "licence", "train", "valid", "hold_out", "vocabulary", "tokenizer"]
    keys += ["vocabulary_sample", "byte_fallback", "max_tokens", "max_ratio", "deduplicate"]
    of_files = ["source", "target", "tsv", "source_column", "target_column", "huggingface", "subset", "split"]
    noted = describe_data(DataConfig(train=pair, valid=pair))
    assert list(noted) == keys
    assert list(noted["train"]) == list(noted["valid"]) == of_files
    text = describe_data(DataConfig(train=CorpusConfig(text=Path("a.txt"))))
    assert list(text) == keys
    assert list(text["train"]) == [*of_files, "text"]
    pairs = [PairConfig(source_language="fr", target_language=code, train=pair) for code in ("en", "es")]
    several = describe_data(DataConfig(pairs=pairs))
    assert list(several["pairs"][0]["train"]) == [*of_files, "text"]
    own = json.dumps(describe_data(config(CorpusConfig(labelled=tmp_path / "a.tsv"))))
    assert "labelled" in own
    assert "folds" not in own


def test_a_rare_label_is_one_in_every_fold(tmp_path):
    texts = [*made_texts(), ("one of a kind", "rare")]
    train = labelled(tmp_path / "train.tsv", texts)
    found = [prepare(config(train, folds=2, fold=fold), tmp_path / f"{fold}", 1) for fold in (1, 2)]
    assert {one.labels for one in found} == {("neg", "pos", "rare", "so-so")}
    assert sorted(any(label == "rare" for _, label in one.training_text()) for one in found) == [False, True]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("test.tsv", "another label\t{first}\n{second}\n{label}\n"),  # also without labels
        ("test.csv", 'label,text\n{label},"{first}"\nanother label,"{second}"\n'),
    ],
)
def test_test_texts_are_kept_out_whatever_their_label(tmp_path, corpus, name, content):
    (first, label), (second, _) = made_texts()[:2]
    other = tmp_path / name
    other.write_text(content.format(first=first, second=second, label=label), "utf-8")
    asked = config(corpus, valid=corpus, decontaminate=[other])
    kept = [text for text, _ in prepare(asked, tmp_path / "data", 1).training_text()]
    assert len(kept) == 398
    assert not {first, second} & set(kept)

import json
from pathlib import Path

import pytest

from anydepth.config import CorpusConfig, DataConfig
from anydepth.data import Prepared, prepare
from anydepth.errors import UserError
from anydepth.files import file_sha256

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
NOMBRES = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]


def counting_pairs() -> list[tuple[str, str]]:
    digits = [(i // 100, i // 10 % 10, i % 10) for i in range(1000)]
    return [(" ".join(NUMBERS[d] for d in row), " ".join(NOMBRES[d] for d in row)) for row in digits]


def tsv(path: Path, pairs: list[tuple[str, str]]) -> CorpusConfig:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return CorpusConfig(tsv=path)


def config(train: CorpusConfig, **keys) -> DataConfig:
    return DataConfig(**{"train": train, "hold_out": 50, "vocabulary": 300, "max_tokens": 60, **keys})


def run(tmp_path: Path, data: DataConfig, seed: int = 1) -> Prepared:
    return prepare(data, tmp_path / "prepared", seed)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_hold_out_shares_no_source_with_train(tmp_path):
    other_wording = [(source, target + " !") for source, target in counting_pairs()]
    prepared = run(tmp_path, config(tsv(tmp_path / "a.tsv", counting_pairs() + other_wording)))
    train_sources = set(lines(prepared.folder / "train.source"))
    valid_sources = [source for source, _ in prepared.parts[0].valid_pairs]
    assert len(set(valid_sources)) == len(valid_sources) == 50
    assert not train_sources & set(valid_sources)
    assert len(prepared.parts[0].train) == 1900
    assert prepared.counts["train"]["held_out"] == 100
    assert prepared.counts["train"]["kept"] == 1900
    assert prepared.counts["valid"]["kept"] == 50


def test_what_is_to_be_kept_out_is_not_trained_on(tmp_path):
    """Whichever side it is on, and however it is spaced; it may still be validated with."""
    pairs = counting_pairs()
    (test := tmp_path / "test").write_text(f"{pairs[3][0]}\n  {pairs[7][1]}\t\nno such line\n", "utf-8")
    corpus = tsv(tmp_path / "a.tsv", pairs)
    valid = tsv(tmp_path / "b.tsv", [pairs[3], pairs[500]])
    prepared = run(tmp_path, config(corpus, valid=valid, decontaminate=[test]))
    sides = [lines(prepared.folder / f"train.{side}") for side in ("source", "target")]
    left_out = set(pairs) - set(zip(*sides, strict=True))
    assert left_out == {pairs[3], pairs[7]}
    assert prepared.counts["train"]["held_out"] == 2
    assert prepared.counts["valid_seen_in_train"] == 1  # and not the one that was kept out
    with pytest.raises(UserError, match=r"another data\.decontaminate"):
        run(tmp_path, config(corpus, valid=valid))
    (everything := tmp_path / "all").write_text("".join(f"{source}\n" for source, _ in pairs), "utf-8")
    with pytest.raises(UserError, match="decontamination removed all"):
        prepare(config(corpus, valid=valid, decontaminate=[everything]), tmp_path / "none", 1)


def test_the_store_holds_the_cleaned_text(tmp_path):
    prepared = run(tmp_path, config(tsv(tmp_path / "a.tsv", counting_pairs())))
    sources, targets = (lines(prepared.folder / f"train.{side}") for side in ("source", "target"))
    for index in (0, 123, len(prepared.parts[0].train) - 1):
        source, target = prepared.parts[0].train.pair(index)
        assert prepared.tokenizer.decode(source.tolist()) == sources[index]
        assert prepared.tokenizer.decode(target.tolist()) == targets[index]
    files = {path.name for path in prepared.folder.iterdir()}
    assert "prepared.json" in files
    assert not {name for name in files if name.startswith("cleaned")}


def test_every_pair_is_accounted_for(tmp_path):
    bad = [("", "vide"), ("one", "x" * 500), ("x" * 700, "y" * 700), counting_pairs()[0], ("\u200b", "un")]
    long = ("⚗ " * 40, "⚗ " * 40)  # few characters, but several bytes each
    prepared = run(tmp_path, config(tsv(tmp_path / "a.tsv", [*counting_pairs(), *bad, long])))
    counts = prepared.counts["train"]
    assert counts["read"] == 1006
    assert counts["too_long"] == 2
    assert counts["empty"] == 2
    assert counts["ratio"] == counts["duplicates"] == 1
    assert counts["read"] == sum(value for key, value in counts.items() if key != "read")
    assert len(prepared.parts[0].train) == counts["kept"]


def test_given_validation_is_cleaned_and_compared_with_train(tmp_path):
    pairs = counting_pairs()
    valid = [pairs[0], pairs[0], ("new sentence", "phrase"), ("", "vide"), ("⚗ " * 40, "⚗ " * 40)]
    prepared = run(tmp_path, config(tsv(tmp_path / "a.tsv", pairs), valid=tsv(tmp_path / "v.tsv", valid)))
    assert prepared.parts[0].valid_pairs == valid[:3]
    assert prepared.counts["valid_seen_in_train"] == 2
    assert prepared.counts["valid"]["too_long"] == 1
    assert len(prepared.parts[0].train) == 1000


def test_same_seed_same_files(tmp_path):
    data = config(tsv(tmp_path / "a.tsv", counting_pairs()))
    for name in ("first", "second"):
        prepare(data, tmp_path / name, 1)
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


GOLDEN_TOKENIZER = Path(__file__).parent.parent / "golden" / "model" / "tokenizer.model"


@pytest.mark.parametrize(
    ("keys", "fingerprint", "notes"),
    [
        ({}, "188c7bd1db781fb4", "ba8a8a398c985fa3"),
        ({"valid": CorpusConfig(tsv="v.tsv")}, "31f71eafdd38f7f3", "8d772fe275b6fd4e"),
    ],
)
def test_one_pair_gives_the_bytes_that_earlier_versions_gave(tmp_path, monkeypatch, keys, fingerprint, notes):
    """The digests were taken before there could be several pairs. The tokenizer is a given one: how sentencepiece
    trains is not ours to fix."""
    monkeypatch.chdir(tmp_path)
    Path("tokenizer.model").write_bytes(GOLDEN_TOKENIZER.read_bytes())
    tsv(Path("v.tsv"), counting_pairs()[:20])
    data = config(tsv(Path("a.tsv"), counting_pairs()), tokenizer="tokenizer.model", **keys)
    prepared = prepare(data, Path("prepared"), 1)
    assert prepared.fingerprint[:16] == fingerprint
    assert file_sha256(Path("prepared/prepared.json"))[:16] == notes
    assert [part.name for part in prepared.parts] == ["source-target"]


def test_notes_of_earlier_versions_are_understood(tmp_path):
    data = config(tsv(tmp_path / "a.tsv", counting_pairs()))
    first = run(tmp_path, data)
    notes = json.loads((first.folder / "prepared.json").read_text())
    assert not {"pairs", "sampling", "temperature", "masked"} & set(notes["data"])
    notes["data"] = data.model_dump(mode="json")  # as a version would write that has all keys
    (first.folder / "prepared.json").write_text(json.dumps(notes))
    idle = data.model_copy(update={"sampling": "temperature", "masked": 0.3})
    assert run(tmp_path, idle).fingerprint == first.fingerprint


def test_a_finished_preparation_is_reused(tmp_path):
    data = config(tsv(tmp_path / "a.tsv", counting_pairs()))
    first = run(tmp_path, data)
    (tmp_path / "a.tsv").unlink()
    again = run(tmp_path, data)
    assert again.parts[0].valid_pairs == first.parts[0].valid_pairs
    assert again.counts == first.counts


def test_another_configuration_is_refused(tmp_path):
    train = tsv(tmp_path / "a.tsv", counting_pairs())
    run(tmp_path, config(train))
    with pytest.raises(UserError, match=r"another data\.max_ratio"):
        run(tmp_path, config(train, max_ratio=2.0))
    with pytest.raises(UserError, match=r"another train\.seed"):
        run(tmp_path, config(train), seed=2)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    precious = tmp_path / "prepared" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    with pytest.raises(UserError, match="something other"):
        run(tmp_path, config(tsv(tmp_path / "a.tsv", counting_pairs())))
    assert precious.read_text() == "years of work"


def test_damaged_notes(tmp_path):
    data = config(tsv(tmp_path / "a.tsv", counting_pairs()))
    prepared = run(tmp_path, data)
    notes = prepared.folder / "prepared.json"
    notes.write_text(notes.read_text()[:-20])
    with pytest.raises(UserError, match="damaged"):
        run(tmp_path, data)
    notes.write_text(json.dumps({"data": {"unheard": 1}}))
    with pytest.raises(UserError, match="damaged"):
        run(tmp_path, data)


def test_a_failure_leaves_nothing_behind(tmp_path):
    train = tsv(tmp_path / "a.tsv", counting_pairs())
    with open(tmp_path / "a.tsv", "ab") as file:
        file.write(b"\xff\tx\n")
    with pytest.raises(UserError, match=r"a\.tsv, line 1001"):
        run(tmp_path, config(train))
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


def test_too_few_sources_to_hold_out(tmp_path):
    with pytest.raises(UserError, match="only 60 different source sentences"):
        run(tmp_path, config(tsv(tmp_path / "a.tsv", counting_pairs()[:60])))


def test_never_more_than_half_is_held_out(tmp_path):
    often = [(f"often {i % 50}", f"{i}") for i in range(500)]
    train = tsv(tmp_path / "a.tsv", [*often, *counting_pairs()[:50]])
    refusals = []
    for seed in range(12):
        try:
            prepared = prepare(config(train, vocabulary=290), tmp_path / f"{seed}", seed)
        except UserError as error:
            refusals.append(str(error))
        else:
            assert prepared.counts["train"]["held_out"] <= 275
    assert 0 < len(refusals) < 12
    assert all("too small to hold out 50 pairs" in message for message in refusals)


def test_nothing_usable(tmp_path):
    valid = tsv(tmp_path / "v.tsv", counting_pairs()[:5])
    empty = tsv(tmp_path / "a.tsv", [("", "x")])
    with pytest.raises(UserError, match=r"training corpus is usable \(0 of 1 pairs kept \(1 empty\)\)"):
        run(tmp_path, config(empty, valid=valid))
    with pytest.raises(UserError, match="validation corpus is usable"):
        run(tmp_path, config(tsv(tmp_path / "b.tsv", counting_pairs()), valid=empty))

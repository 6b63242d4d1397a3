"""Several language pairs in one prepared folder, and text without translations."""

import json
from pathlib import Path

import pytest
import yaml
from test_prepare import NUMBERS, counting_pairs, lines, tsv

from anydepth.config import CorpusConfig, DataConfig, PairConfig
from anydepth.config.reading import read_recipe
from anydepth.data import Prepared, Tokenizer, prepare
from anydepth.data.corpus import read_pairs
from anydepth.data.tokenizer import MASK
from anydepth.errors import UserError

NUMEROS = ["uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez"]


def spanish_pairs() -> list[tuple[str, str]]:
    spanish = dict(zip(NUMBERS, NUMEROS, strict=True))
    return [(source, " ".join(spanish[word] for word in source.split())) for source, _ in counting_pairs()]


def pair(languages: str, train: CorpusConfig, valid: CorpusConfig | None = None) -> PairConfig:
    source, target = languages.split("-")
    return PairConfig(source_language=source, target_language=target, train=train, valid=valid)


def config(*pairs: PairConfig, **keys) -> DataConfig:
    return DataConfig(**{"pairs": list(pairs), "hold_out": 50, "vocabulary": 295, "max_tokens": 60, **keys})


def run(folder: Path, data: DataConfig) -> Prepared:
    return prepare(data, folder / "prepared", 1)


@pytest.fixture
def two_targets(tmp_path) -> DataConfig:
    french, spanish = tsv(tmp_path / "fr.tsv", counting_pairs()), tsv(tmp_path / "es.tsv", spanish_pairs()[:600])
    return config(pair("en-fr", french), pair("en-es", spanish, tsv(tmp_path / "valid.tsv", spanish_pairs()[600:640])))


def test_every_source_of_several_targets_begins_with_its_tag(tmp_path, two_targets):
    prepared = run(tmp_path, two_targets)
    french, spanish = prepared.parts
    assert [(part.name, part.languages, part.tag) for part in prepared.parts] == [
        ("en-fr", ("en", "fr"), "<2fr>"),
        ("en-es", ("en", "es"), "<2es>"),
    ]
    for part in prepared.parts:
        tag = prepared.tokenizer.symbol_id(part.tag)
        text = [lines(prepared.folder / f"{part.name}.train.{side}") for side in ("source", "target")]
        assert len(part.train) == len(text[0]) == len(text[1])
        for index in range(0, len(part.train), 50):
            source, target = (ids.tolist() for ids in part.train.pair(index))
            assert source == [tag, *prepared.tokenizer.encode(text[0][index])]
            assert target == prepared.tokenizer.encode(text[1][index])
    assert prepared.tokenizer.symbol_id("<2fr>") != prepared.tokenizer.symbol_id("<2es>")
    assert len(french.valid_pairs) == 50
    assert spanish.valid_pairs == spanish_pairs()[600:640]


def test_one_target_language_needs_no_tag(tmp_path):
    backwards = [(target, source) for source, target in counting_pairs()]
    many_to_one = config(
        pair("fr-en", tsv(tmp_path / "a.tsv", backwards)), pair("es-en", tsv(tmp_path / "b.tsv", backwards)), hold_out=5
    )
    assert many_to_one.tags == {}
    prepared = run(tmp_path, many_to_one)
    assert [part.tag for part in prepared.parts] == [None, None]
    source, _ = prepared.parts[0].train.pair(0)
    assert prepared.tokenizer.decode(source.tolist()) == lines(prepared.folder / "fr-en.train.source")[0]


def test_what_one_pair_holds_out_no_other_is_trained_on(tmp_path, two_targets):
    prepared = run(tmp_path, two_targets)
    held_out = {side for part in prepared.parts for pair in part.valid_pairs for side in pair}
    for part in prepared.parts:
        for side in ("source", "target"):
            assert not held_out & set(lines(prepared.folder / f"{part.name}.train.{side}"))
    counts = prepared.counts["train"]
    french_valid = {source for source, _ in prepared.parts[0].valid_pairs}
    spanish_valid = {source for source, _ in prepared.parts[1].valid_pairs}
    assert counts["en-fr"]["held_out"] == len(french_valid | spanish_valid)
    assert counts["en-es"]["held_out"] == len(french_valid & {source for source, _ in spanish_pairs()[:600]}) > 0
    for part in prepared.parts:
        of_pair = counts[part.name]
        assert of_pair["read"] == sum(value for key, value in of_pair.items() if key != "read")
        assert of_pair["kept"] == len(part.train)
        assert prepared.counts["valid"][part.name]["kept"] == len(part.valid_pairs)
    assert prepared.counts["valid_seen_in_train"] == 0


def test_a_target_that_is_held_out_is_left_out_too(tmp_path):
    other_source = [*counting_pairs(), ("a dozen less eleven", "un"), ("zero", "un deux")]
    valid = tsv(tmp_path / "v.tsv", [("one", "un")])
    prepared = run(
        tmp_path,
        config(
            pair("en-fr", tsv(tmp_path / "a.tsv", other_source), valid),
            pair("en-es", tsv(tmp_path / "b.tsv", spanish_pairs()), valid),
        ),
    )
    sources = lines(prepared.folder / "en-fr.train.source")
    assert "zero" in sources
    assert "a dozen less eleven" not in sources


def test_a_tag_counts_as_a_sub_word(tmp_path):
    """With a limit that the longest text just keeps to, its tag is one too many."""
    numbered = tsv(tmp_path / "a.tsv", [(source, str(i)) for i, (source, _) in enumerate(counting_pairs())])
    pairs = pair("en-fr", numbered), pair("en-es", numbered)
    first = run(tmp_path, config(*pairs, max_ratio=9))
    longest = max(int(part.train.source_lengths.max()) for part in first.parts)
    shorter = config(*pairs, max_ratio=9, max_tokens=longest - 1)
    again = prepare(shorter, tmp_path / "again", 1)
    assert again.tokenizer.to_bytes() == first.tokenizer.to_bytes()
    assert max(int(part.train.source_lengths.max()) for part in again.parts) < longest
    assert again.counts["train"]["en-fr"]["too_long"] > 0


def test_a_tag_cannot_come_from_text(tmp_path):
    odd = [("<2fr> one", "<2es> un"), ("<2es>", "<2fr>")]
    french, spanish = [*counting_pairs(), *odd], [*spanish_pairs(), *odd]
    pairs = [pair("en-fr", tsv(tmp_path / "a.tsv", french)), pair("en-es", tsv(tmp_path / "b.tsv", spanish))]
    prepared = run(tmp_path, config(*pairs, hold_out=5))
    tags = {prepared.tokenizer.symbol_id(part.tag) for part in prepared.parts}
    for part in prepared.parts:
        for index in range(len(part.train)):
            source, target = (ids.tolist() for ids in part.train.pair(index))
            assert tags & set(source) == {source[0]}
            assert not tags & set(source[1:])
            assert not tags & set(target)
    assert prepared.tokenizer.decode([*tags, *prepared.tokenizer.encode("one two")]) == "one two"


def test_a_small_corpus_counts_as_much_in_the_vocabulary_as_a_large_one(tmp_path):
    """Its ten different words are pieces of their own although the other corpus is 25 times as large."""
    other = [(f"{source} {source[::-1]}", target) for source, target in counting_pairs()]
    small = spanish_pairs()[:40]
    prepared = run(
        tmp_path,
        config(
            pair("en-fr", tsv(tmp_path / "a.tsv", other)),
            pair("en-es", tsv(tmp_path / "b.tsv", small), tsv(tmp_path / "v.tsv", spanish_pairs()[900:910])),
            vocabulary=310,
        ),
    )
    split = [len(prepared.tokenizer.encode(word)) for word in ("uno", "dos", "tres")]
    alone = prepare(
        DataConfig(train=tsv(tmp_path / "c.tsv", [*other, *small]), hold_out=50, vocabulary=310, max_tokens=60),
        tmp_path / "alone",
        1,
    )
    by_size = [len(alone.tokenizer.encode(word)) for word in ("uno", "dos", "tres")]
    assert sum(split) < sum(by_size)


def test_several_pairs_are_prepared_the_same_way_and_reused(tmp_path, two_targets):
    first, again = run(tmp_path, two_targets), prepare(two_targets, tmp_path / "again", 1)
    assert first.fingerprint == again.fingerprint
    for path in first.folder.iterdir():
        assert path.read_bytes() == (again.folder / path.name).read_bytes()
    (tmp_path / "fr.tsv").unlink()
    drawn = two_targets.model_copy(update={"sampling": "temperature"})  # which the files do not depend on
    assert run(tmp_path, drawn).counts == first.counts
    with pytest.raises(UserError, match=r"another data\.pairs"):
        run(tmp_path, two_targets.model_copy(update={"pairs": two_targets.pairs[::-1]}))


def test_a_tokenizer_without_the_symbols_is_refused(tmp_path, two_targets):
    first = run(tmp_path, two_targets)
    path = first.folder / "tokenizer.model"
    given = two_targets.model_copy(update={"tokenizer": path})
    second = prepare(given, tmp_path / "second", 1)
    assert second.tokenizer.to_bytes() == first.tokenizer.to_bytes()
    german = [*two_targets.pairs, pair("en-de", tsv(tmp_path / "de.tsv", counting_pairs()))]
    with pytest.raises(UserError, match="has no symbol <2de>, which these corpora need"):
        prepare(given.model_copy(update={"pairs": german}), tmp_path / "third", 1)
    text = tmp_path / "text"
    text.write_text("\n".join(source for source, _ in counting_pairs()))
    masks = DataConfig(train=CorpusConfig(text=text), tokenizer=path)
    with pytest.raises(UserError, match="has no symbol <mask>"):
        prepare(masks, tmp_path / "fourth", 1)


def test_messages_name_the_pair(tmp_path):
    good, few = tsv(tmp_path / "a.tsv", counting_pairs()), tsv(tmp_path / "b.tsv", spanish_pairs()[:60])
    with pytest.raises(UserError, match="the en-es training corpus is too small to hold out 50 pairs"):
        run(tmp_path, config(pair("en-fr", good), pair("en-es", few)))
    with pytest.raises(UserError, match=r"decontamination removed all of the en-es training corpus"):
        run(tmp_path, config(pair("en-fr", good), pair("en-es", few, few)))
    empty = tsv(tmp_path / "c.tsv", [("", "x")])
    with pytest.raises(UserError, match="none of the pairs of the en-es validation corpus is usable"):
        run(tmp_path, config(pair("en-fr", good), pair("en-es", good, empty)))


def test_text_is_paired_with_itself_and_has_a_mask(tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(source for source, _ in counting_pairs()) + "\n")
    corpus = CorpusConfig(text=path)
    assert list(read_pairs(corpus))[:2] == [("one one one", "one one one"), ("one one two", "one one two")]
    prepared = run(tmp_path, DataConfig(train=corpus, hold_out=50, vocabulary=280))
    (part,) = prepared.parts
    assert part.tag is None
    assert prepared.tokenizer.symbol_id(MASK) == Tokenizer.EOS + 1
    source, target = part.train.pair(7)
    assert source.tolist() == target.tolist()
    assert prepared.tokenizer.decode(source.tolist()) == lines(prepared.folder / "train.source")[7]
    assert json.loads((prepared.folder / "prepared.json").read_text())["data"]["train"]["text"] == str(path)


def test_messages_on_a_text_speak_of_sentences(tmp_path):
    path = tmp_path / "text"
    path.write_text("one\n" * 3 + "two\n")
    text = DataConfig(train=CorpusConfig(text=path), hold_out=50)
    with pytest.raises(UserError, match="too small to hold out 50 sentences, it has only 2 different sentences"):
        run(tmp_path, text)
    path.write_text("\n\n")
    with pytest.raises(UserError, match=r"none of the sentences of the .* usable \(0 of 2 sentences kept \(2 empty\)"):
        run(tmp_path, text)


def section(**keys) -> dict:
    corpus = {"tsv": "x.tsv"}
    both = [
        {"source_language": "en", "target_language": "fr", "train": corpus},
        {"source_language": "en", "target_language": "es", "train": corpus},
    ]
    return {"pairs": both, **keys}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "data: there is nothing to train on: give train, or pairs"),
        ({"pairs": []}, "nothing to train on"),
        (section(train={"tsv": "y"}), "train and pairs are both given"),
        (section(valid={"tsv": "y"}), r"leave out data\.valid"),
        (section(source_language="en"), r"leave out data\.source_language"),
        (section(pairs=section()["pairs"] * 2), "the pair en-fr is there twice"),
        (section(pairs={"en-fr": "x"}), r"data\.pairs: input should be a valid list"),
        (
            section(pairs=[{"source_language": "en", "train": {"tsv": "x"}}]),
            r"data\.pairs\.1\.target_language \(counted from 1\): f",
        ),
        (
            {"pairs": [{"source_language": "../en", "target_language": "fr", "train": {"tsv": "x"}}]},
            "write '../en' as a language code",
        ),
        (
            {"pairs": [{"source_language": False, "target_language": "fr", "train": {"tsv": "x"}}]},
            "source_language cannot be true or false",
        ),
        (section(sampling="equal"), r"data\.sampling: input should be 'each' or 'temperature'"),
        (section(temperature=0.5), r"data\.temperature: input should be greater than or equal to 1"),
        ({"train": {"text": "x", "tsv": "y"}}, "exactly one of"),
        ({"train": {"text": "x"}, "valid": {"tsv": "y"}}, "a text in each corpus or in none"),
        ({"train": {"text": "x"}, "masked": 1}, r"data\.masked: input should be less than 1"),
        ({"train": {"text": "x"}, "source_language": "en", "target_language": "fr"}, "a text has one language"),
        (
            {"pairs": [{"source_language": "en", "target_language": "fr", "train": {"text": "x"}}]},
            "one language: leave out the target_language fr",
        ),
        ({"train": {"tsv": "x"}, "masked": 0.3}, "masked has no effect without a text"),
        ({"train": {"tsv": "x"}, "sampling": "temperature"}, "sampling has no effect with one language pair"),
        ({"train": {"tsv": "x"}, "temperature": 2}, "temperature has no effect with one language pair"),
        (section(temperature=2), "temperature has no effect where sampling is each"),
    ],
)
def test_bad_pairs_give_one_line(tmp_path, data, words):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"data": data}))
    with pytest.raises(UserError, match=words) as caught:
        read_recipe(path)
    assert "\n" not in str(caught.value)


def test_corpora_tags_and_languages():
    one = DataConfig(source_language="en", target_language="fr", train=CorpusConfig(tsv="x"))
    assert [(pair.name, pair.train) for pair in one.corpora] == [("en-fr", one.train)]
    assert one.tags == {}
    assert one.languages == ("en", "fr")
    several = DataConfig(**section())
    assert several.tags == {"en-fr": "<2fr>", "en-es": "<2es>"}
    assert several.languages == ("en", "es, fr")


def test_a_text_has_one_language():
    one = DataConfig(source_language="en", train=CorpusConfig(text="x"))
    assert one.languages == ("en", "en")
    texts = [{"source_language": code, "train": {"text": code}} for code in ("en", "fr")]
    several = DataConfig(pairs=texts)
    assert (several.tags, several.languages) == ({}, ("en, fr", "en, fr"))


@pytest.mark.parametrize(
    "data",
    [section(), section(sampling="temperature", temperature=2.0), {"train": {"text": "x"}, "source_language": "en"}],
)
def test_what_is_written_out_can_be_read_again(data):
    config = DataConfig.model_validate(data)
    assert DataConfig.model_validate(config.model_dump(mode="json")) == config

"""Training text as people write it: what each change does, and that the same is sampled for the same pair and epoch."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest

from anydepth.config import AugmentConfig, DataConfig
from anydepth.data.augment import (
    CHANGES,
    AugmentedStore,
    Augmenter,
    Languages,
    augment,
    find_lowercase_words,
)
from anydepth.data.batching import BatchStream
from anydepth.data.shards import PairEncoder, PairStore, StoreWriter
from anydepth.data.tokenizer import Tokenizer, TokenizerOptions
from anydepth.errors import UserError

LANGUAGES = Languages("pt", "en", frozenset({"where", "is", "a", "un"}))
PAIR = ("João viu 27 gatos em Lisboa.", "John saw 27 cats in Lisboa.")
OTHER = ("Ótimo!", "Great!")


def changed(kind, pair=PAIR, seed=1, others=(OTHER,)):
    return augment(pair, [kind], random.Random(seed), others, LANGUAGES)


def test_what_does_not_depend_on_chance():
    assert changed("no_final_punctuation") == ("João viu 27 gatos em Lisboa", "John saw 27 cats in Lisboa")
    assert changed("upper") == ("JOÃO VIU 27 GATOS EM LISBOA.", "JOHN SAW 27 CATS IN LISBOA.")
    assert changed("no_accents") == ("Joao viu 27 gatos em Lisboa.", PAIR[1])
    assert changed("join") == (f"{PAIR[0]} {OTHER[0]}", f"{PAIR[1]} {OTHER[1]}")
    assert changed("target_as_source") == (PAIR[1], PAIR[1])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Onde fica?", "Where is it?", "where is it?"),
        ("Eu vi o João.", "I saw John.", "I saw John."),
        ("O Brasil é grande.", "Brazil is big.", "Brazil is big."),
        ("A ONU disse.", "UN officials said.", "UN officials said."),
        ("Um gato.", "A cat.", "a cat."),
    ],
)
def test_small_letters_leave_the_capitals_that_the_target_needs(source, target, expected):
    assert changed("lower", (source, target)) == (source.lower(), expected)


def test_words_that_are_written_in_lowercase():
    texts = ["He saw Brazil, where it rains on Monday.", "Where are you?", "Is that where I am? Yes, in Brazil."]
    found = find_lowercase_words(texts)
    assert {"saw", "where", "it", "rains", "on", "am"} <= found
    assert not found & {"brazil", "monday", "i", "yes", "he"}


@pytest.mark.parametrize("pair", [("Não", "No"), ("Que?", "What"), ("?", "!")])
def test_punctuation_stays_where_not_both_sides_would_lose_it_and_keep_something(pair):
    assert changed("no_final_punctuation", pair) == pair


def test_numbers_change_alike_and_keep_the_separators_of_their_language():
    source, target = changed("numbers", ("Custa 1.234,50 em 2019.", "It costs 1,234.50 in 2019."))
    _, money, _, year = source.strip(".").split()
    _, _, dollars, _, same_year = target.strip(".").split()
    assert money != "1.234,50"
    assert money.replace(".", "").replace(",", ".") == dollars.replace(",", "")
    assert (money[1], money[5]) == (".", ",")
    assert year == same_year != "2019"
    three = changed("numbers", ("12 de 34 por 560", "12 of 34 for 560"))
    assert three[0].replace("de", "of").replace("por", "for") == three[1]
    assert [len(number) for number in three[0].split()[::2]] == [2, 2, 3]
    assert changed("numbers", ("Vi 22 e 22.", "I saw 22.")) == ("Vi 22 e 22.", "I saw 22.")  # which of the two?


def test_measures_are_written_as_each_language_does():
    found = {changed("measures", seed=seed) for seed in range(300)}
    assert any(" de " in source and target.endswith(tuple("0123456789")) for source, target in found)  # dates
    assert any("quilômetros" in source and "kilometers" in target for source, target in found)
    commas = [(source, target) for source, target in found if source.replace(",", "").isdigit() and "," in source]
    assert commas
    assert all(source.replace(",", ".") == target for source, target in commas)
    with pytest.raises(UserError, match="Babel does not know the language 'source'"):
        Augmenter(AugmentConfig(measures=0.1), ("source", "en"), seed=1)


def test_what_is_carried_over_is_on_both_sides():
    for seed in range(200):
        source, target = changed("placeholders", seed=seed)
        new = set(source.split()) - set(PAIR[0].split())
        assert new
        assert new == set(target.split()) - set(PAIR[1].split())
        line = changed("copies", seed=seed)
        assert line[0] == line[1]
    assert any("27" not in changed("placeholders", seed=seed)[0] for seed in range(20))  # in the place of a number


def test_typos_are_few_and_of_the_source():
    text = "uma frase comprida com muitas palavras que alguém escreveu depressa no telefone"
    made = [changed("typos", (text, "x"), seed) for seed in range(50)]
    assert all(target == "x" for _, target in made)
    assert sum(source != text for source, _ in made) > 30
    assert all(abs(len(source) - len(text)) <= 2 for source, _ in made)
    assert all(len(source.split()) == len(text.split()) for source, _ in made)


def test_changes_meet_except_where_one_would_undo_the_other():
    both = augment(PAIR, ["no_final_punctuation", "upper", "no_accents"], random.Random(1), (), LANGUAGES)
    assert both == ("JOAO VIU 27 GATOS EM LISBOA", "JOHN SAW 27 CATS IN LISBOA")
    held = augment(PAIR, ["placeholders", "upper"], random.Random(1), (), LANGUAGES)
    assert "viu" in held[0]


def test_shares_of_the_pairs_others_in_each_epoch():
    augmenter = Augmenter(AugmentConfig(upper=0.3, lower=0.1), LANGUAGES, seed=5)
    rows = np.arange(20_000)
    first, second = augmenter.sample(0, rows), augmenter.sample(1, rows)
    assert sum("upper" in kinds for kinds in first.values()) / len(rows) == pytest.approx(0.3, abs=0.015)
    assert sum("lower" in kinds for kinds in first.values()) / len(rows) == pytest.approx(0.1, abs=0.01)
    assert first != second
    assert augmenter.sample(0, rows[500:700]) == {row: first[row] for row in range(500, 700) if row in first}


@pytest.fixture
def tokenizer() -> Tokenizer:
    text = [side for _ in range(30) for pair in (PAIR, OTHER) for side in (*pair, pair[0].upper(), pair[1].upper())]
    return Tokenizer.train(iter(text), TokenizerOptions(310, sample=1000, required="0123456789"), seed=1)


@pytest.fixture
def stored(tokenizer, tmp_path):
    with StoreWriter(tmp_path, "train", tokenizer.vocabulary_size) as writer:
        for _ in range(100):
            for source, target in (PAIR, OTHER):
                writer.add(tokenizer.encode(source), tokenizer.encode(target))
    return PairStore(tmp_path, "train")


def augmented(stored, tokenizer, max_tokens=200, **shares):
    augmenter = Augmenter(AugmentConfig(**shares), LANGUAGES, seed=3)
    return AugmentedStore(stored, augmenter, PairEncoder(tokenizer, [], max_tokens))


def test_a_store_has_other_pairs_in_each_epoch_and_the_same_when_asked_again(stored, tokenizer):
    store = augmented(stored, tokenizer, upper=0.5)
    first, again, second = store.epoch(0), store.epoch(0), store.epoch(1)

    def texts(epoch):
        return [tokenizer.decode(epoch.pair(row)[0].tolist()) for row in range(len(store))]

    assert texts(first) == texts(again) != texts(second)
    assert set(texts(first)) == {side for pair in (PAIR, OTHER) for side in (pair[0], pair[0].upper())}
    assert first.source_lengths.tolist() == [len(first.pair(row)[0]) for row in range(len(store))]
    assert first.target_lengths.tolist() == [len(first.pair(row)[1]) for row in range(len(store))]


def test_what_would_be_too_long_stays_as_it_was(stored, tokenizer):
    longest = int(max(stored.source_lengths.max(), stored.target_lengths.max()))
    epoch = augmented(stored, tokenizer, max_tokens=longest, join=1.0).epoch(0)
    assert max(epoch.source_lengths.max(), epoch.target_lengths.max()) <= longest
    assert (epoch.source_lengths > stored.source_lengths).any()  # two short ones together


def test_batches_are_planned_by_the_lengths_after_the_change(stored, tokenizer):
    stream = BatchStream(augmented(stored, tokenizer, upper=0.3, join=0.3), 200, seed=1)
    for index in range(stream.batches_in(2)):
        batch = stream.at(2, index)
        assert batch.source.numel() <= 200 or len(batch) == 1


def test_the_vocabulary_has_required_characters_and_single_digits():
    text = ["o gato viu 1234 gatos", "uma casa tem 12 portas", "ele leu 34 livros ontem"] * 50
    tokenizer = Tokenizer.train(
        iter(text), TokenizerOptions(290, sample=100, required="%€Z", split_digits=True), seed=1
    )
    pieces = tokenizer.pieces(tokenizer.encode("1234 %€Z"))
    assert [piece for piece in pieces if piece != "▁"] == ["1", "2", "3", "4", "%", "€", "Z"]
    plain = Tokenizer.train(iter(text), TokenizerOptions(285, sample=100), seed=1)
    assert any(piece.startswith("<0x") for piece in plain.pieces(plain.encode("€")))


def test_every_change_has_a_key():
    assert set(CHANGES) == set(AugmentConfig.model_fields)
    with pytest.raises(ValueError, match="augment is for translation"):
        DataConfig(train={"text": "a"}, augment={"upper": 0.1})


def test_changes_do_not_depend_on_how_strings_are_hashed():
    """A resumed run, and each of several processes, hashes them in another way."""
    program = (
        "import random; from anydepth.data.augment import Languages, augment\n"
        "pair = ('12 de 345 por 6789 em 1999', '12 of 345 for 6789 in 1999')\n"
        "print(augment(pair, ['numbers'], random.Random(3), (), Languages('pt', 'en')))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(found) == 1
    assert "1999" not in found.pop()

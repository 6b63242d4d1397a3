"""How well each layer tells a hidden word, and the depth that follows."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.data.tokenizer import MASK, TokenizerOptions
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.word_depths import reconstruction
from anydepth.word_depths.reconstruction import LAMBDAS, Averager, Occurrences, occurrence_depths, reconstruct
from anydepth.word_depths.table import TokenDepths, text_key

LINES = [
    "the film was good",
    "a dull film, extraordinarily dull",
    "we saw it",
    "the actors were good and the film dull",
]
LAYERS = 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(iter(LINES * 20), TokenizerOptions(286, sample=1000, symbols=[MASK]), seed=1)


@pytest.fixture(scope="module")
def model(tokenizer) -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(
        width=16, heads=2, ffn=24, encoder_layers=LAYERS, decoder_layers=0, head="transform", max_length=64
    )
    made = Transformer(config, tokenizer.vocabulary_size).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2)
    return made


def read(tokenizer: Tokenizer, lines: list[str] = LINES) -> list[list[int]]:
    return [[*tokenizer.encode(line), Tokenizer.EOS] for line in lines]


@torch.no_grad()
def test_the_loss_of_a_word_by_hand(model, tokenizer):
    found = list(reconstruct(model, tokenizer, read(tokenizer)))
    assert [one.words for one in found] == [
        ["the", "film", "was", "good"],
        ["a", "dull", "film", ",", "extraordinarily", "dull"],
        ["we", "saw", "it"],
        ["the", "actors", "were", "good", "and", "the", "film", "dull"],
    ]
    ids = read(tokenizer)[1]
    pieces = tokenizer.pieces(ids)
    text = "".join(pieces)
    start, end = text.index("▁extra"), text.rindex("▁dull")
    starts = np.cumsum([0, *map(len, pieces)])
    places = [i for i in range(len(ids)) if start <= starts[i] < end]
    assert len(places) > 1
    hidden = [tokenizer.symbol_id(MASK) if i in places else token for i, token in enumerate(ids)]
    states = model.encode(torch.tensor([hidden]), model.full)
    for layer, state in enumerate(states):
        logits = model.output(model.transform(model.memory(state)))[0, places]
        expected = F.cross_entropy(logits, torch.tensor(ids)[places])  # the mean over subwords
        assert found[1].losses_wn[4, layer] == pytest.approx(float(expected), abs=1e-5)
    assert all(one.losses_wn.min() > 0 for one in found)


def test_how_texts_are_put_together_does_not_matter(model, tokenizer, monkeypatch):
    before = list(reconstruct(model, tokenizer, read(tokenizer)))
    for texts, tokens in ((1, 8192), (3, 40), (256, 1)):
        monkeypatch.setattr(reconstruction, "TEXTS", texts)
        monkeypatch.setattr(reconstruction, "TOKENS", tokens)
        counted: list[int] = []
        after = list(reconstruct(model, tokenizer, read(tokenizer), counted.append))
        assert sum(counted) == len(LINES)
        for one, other in zip(before, after, strict=True):
            assert one.words == other.words
            np.testing.assert_allclose(one.losses_wn, other.losses_wn, rtol=1e-5, atol=1e-5)


def test_a_text_without_words_has_none(model, tokenizer):
    empty, other = reconstruct(model, tokenizer, [[Tokenizer.EOS], read(tokenizer)[2]])
    assert empty.words == []
    assert empty.losses_wn.shape == (0, LAYERS)
    assert empty.depths(0.1).tolist() == []
    assert other.words == ["we", "saw", "it"]
    (alone,) = reconstruct(model, tokenizer, [[Tokenizer.EOS]])
    assert alone.words == []


def test_without_a_mask_nothing_can_be_hidden(model):
    plain = Tokenizer.train(iter(LINES * 20), TokenizerOptions(286, sample=1000), seed=1)
    with pytest.raises(UserError, match="does not know <mask>"):
        next(reconstruct(model, plain, read(plain)))


def test_the_depth_by_hand():
    losses = [[3.0, 2.95, 1.0], [1.0, 1.0, 1.0], [2.0, 1.9, 1.7], [1.0, 0.5, 4.0]]
    one = Occurrences(["a", "b", "c", "d"], np.array(losses, np.float32))
    assert one.depths(0.0).tolist() == [3, 1, 3, 2]  # the first of equal ones
    assert one.depths(0.2).tolist() == [3, 1, 1, 2]
    assert one.depths(1.1).tolist() == [1, 1, 1, 1]


def test_a_larger_lambda_makes_words_shallower():
    rng = np.random.default_rng(1)
    one = Occurrences([str(i) for i in range(200)], rng.normal(2, 0.3, (200, 6)).astype(np.float32))
    depths = np.stack([one.depths(lambda_) for lambda_ in LAMBDAS])
    assert (np.diff(depths, axis=0) <= 0).all()  # each word for itself
    means = depths.mean(1)
    assert (np.diff(means) < 0).all()


def test_the_table_has_the_depth_of_the_mean_loss():
    averager = Averager(3, 0.05)
    averager.add(Occurrences(["film", "the"], np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]], np.float32)))
    averager.add(Occurrences(["film", "film"], np.array([[1.0, 2.0, 3.0], [1.4, 0.8, 3.0]], np.float32)))
    table = averager.table({}, {"texts": 2})
    assert averager.counts == {"film": 3, "the": 1}
    assert table.lambdas == LAMBDAS
    at = dict(zip(LAMBDAS, table.values["film"], strict=True))
    assert at[0.0] == 2.0  # losses of 1.8, 1.6 and 2.333; the depths of the occurrences are 3, 1 and 2
    assert at[0.3] == 1.0
    assert table.values["the"] == (1.0,) * len(LAMBDAS)
    assert table.rare == table.values["the"]  # the only word that occurred once
    assert table.depths(["film", "the", "unseen"]) == [2, 1, 3]
    assert (table.kind, table.lambda_, table.facts) == ("reconstruction", 0.05, {"texts": 2})


def test_the_lambda_that_was_asked_for_is_in_the_table():
    one = Occurrences(["film"], np.array([[3.0, 2.5, 1.0]], np.float32))
    averager = Averager(3, 1.1)
    averager.add(one)
    table = averager.table({}, {})
    assert table.lambdas == (*LAMBDAS, 1.1)
    assert table.depths(["film"]) == one.depths(1.1).tolist() == [1]
    assert table.depths(["film"], lambda_=0.5) == one.depths(0.5).tolist() == [3]


def test_a_word_without_a_sub_word_of_its_own_tells_nothing(model):
    lines = ["well... good...", "a film... dull..."]
    own = Tokenizer.train(iter(lines * 50), TokenizerOptions(275, sample=1000, symbols=[MASK]), seed=1)
    assert any(piece.strip("▁") == "..." for piece in own.pieces(own.encode(lines[0])))
    torch.manual_seed(1)
    made = Transformer(model.config, own.vocabulary_size).eval()
    (found,) = reconstruct(made, own, read(own, lines[:1]))
    assert found.words == ["well", ".", ".", ".", "good", ".", ".", "."]
    told = ~np.isnan(found.losses_wn).any(1)
    assert told.sum() < len(told)  # one subword for several full stops
    averager = Averager(LAYERS, 0.1)
    averager.add(found)
    assert averager.counts["."] == sum(told[i] for i, word in enumerate(found.words) if word == ".")
    assert set(found.depths(0.1)[~told]) == {LAYERS}  # nothing speaks for leaving it early


def test_what_is_unknown_is_no_word_of_the_table():
    averager = Averager(3, 0.1)
    averager.add(Occurrences(["film", "\ufffd"], np.array([[1.0, 2.0, 3.0]] * 2, np.float32)))
    assert averager.table({}, {}).depths(["film", "\ufffd"]) == [1, 3]


def test_texts_that_were_gone_through_are_found_again(model, tokenizer):
    found = list(reconstruct(model, tokenizer, read(tokenizer)))
    averager = Averager(LAYERS, 0.1)
    for one in found:
        averager.add(one)
    of_texts = occurrence_depths(found, 0.1)
    assert of_texts[text_key(["we", "saw", "it"])] == tuple(found[2].depths(0.1).tolist())
    table = averager.table(of_texts, {})
    depths = TokenDepths(table, tokenizer)
    for one, ids in zip(found, read(tokenizer), strict=True):
        assert depths.words(ids)[1] == one.depths(0.1).tolist()
    twice = found[3].words.index("the"), found[3].words.index("the", 1)
    assert found[3].losses_wn[twice[0]].tolist() != found[3].losses_wn[twice[1]].tolist()  # each has its own

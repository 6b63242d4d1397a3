"""From the depths of words to those of tokens."""

import math
import random

import pytest
import torch
from made_checkpoints import TEXTS, bert_tokenizer, roberta_tokenizer, unigram_tokenizer
from tokenizers import Tokenizer as Splitter
from tokenizers import decoders, models, pre_tokenizers

from anydepth.data import Batch, Tokenizer, stacked
from anydepth.data.batching import WHOLE, BatchShare
from anydepth.data.tokenizer import PretrainedTokenizer, TokenizerOptions
from anydepth.errors import UserError
from anydepth.word_depths.table import DepthStream, TokenDepths, WordDepths, text_key

LINES = ["the film was wonderfully good", "a terribly dull film", "the actors were good and the film was dull"] * 30
VALUES = {"the": (1.0,), "film": (2.0,), "good": (1.0,), "wonderfully": (3.0,), ",": (2.0,), "dull": (3.4,)}


def suffix_tokenizer() -> Splitter:
    """The end of a word is marked, so that the text of a piece depends on the one before it."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefgilmo's", *(f"{one}</w>" for one in "abcdefgilmo's"), "film</w>"]
    merges = [("f", "i"), ("fi", "l"), ("fil", "m</w>")]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, "fi", "fil"])}
    made = Splitter(models.BPE(vocabulary, merges, unk_token="<unk>", end_of_word_suffix="</w>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder()
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    return made


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(iter(LINES), TokenizerOptions(286, sample=1000, symbols=["<2fr>"]), seed=1)


@pytest.fixture
def table() -> WordDepths:
    return WordDepths("mi", 4, VALUES)


def read(tokenizer: Tokenizer, text: str) -> list[int]:
    return [*tokenizer.encode(text), Tokenizer.EOS]


def shown(depths: TokenDepths, text: str) -> list[tuple[str, int]]:
    """The text of each token with its depth."""
    ids = read(depths.tokenizer, text)
    return list(zip(depths.tokenizer.surfaces(ids), depths.of(ids), strict=True))


def test_sub_words_have_the_depth_of_their_word(tokenizer, table):
    found = shown(TokenDepths(table, tokenizer), "the WONDERfully goodfilm")
    words: dict[int, str] = {}
    for surface, depth in found[:-1]:
        words[depth] = words.get(depth, "") + surface
    # goodfilm is one word, which was never seen: the deepest
    assert {depth: text.strip() for depth, text in words.items()} == {1: "the", 3: "WONDERfully", 4: "goodfilm"}
    assert len(found) > 4


@pytest.mark.parametrize(("rule", "expected"), [("deepest", 3), ("shallowest", 1)])
def test_what_is_no_word_follows_the_rule(tokenizer, table, rule, expected):
    depths = TokenDepths(table, tokenizer, rule)
    assert shown(depths, "the dull film")[-1] == ("", expected)
    opened = [Tokenizer.BOS, *read(tokenizer, "the dull film")]
    assert depths.of(opened)[0] == expected
    assert depths.of(opened)[1:] == depths.of(opened[1:])


def test_the_mean_is_over_the_subwords_of_words(tokenizer, table):
    depths = TokenDepths(table, tokenizer, "mean")
    for text in ("the wonderfully good film", "dull unheard of", "the the the the dull"):
        *words, end = depths.of(read(tokenizer, text))
        assert end == math.ceil(sum(words) / len(words) - 0.5)


def test_an_unseen_word_by_frequency_and_by_its_subwords(tokenizer):
    values = {**VALUES, "dully": (2.0,)}
    table = WordDepths("mi", 4, values, rare=(3.0,))
    found = {rule: TokenDepths(table, tokenizer, unseen=rule) for rule in ("deepest", "frequency", "subword")}
    ids = read(tokenizer, "film goodfilm")
    assert found["deepest"].words(ids)[1] == [2, 4]
    assert found["frequency"].words(ids)[1] == [2, 3]
    tokens = [token for token, number in zip(ids, found["subword"].words(ids)[2], strict=True) if number == 1]
    pieces = {word: set(tokenizer.encode(word)) for word in values}
    means = [[values[word][0] for word in values if token in pieces[word]] for token in tokens if token != 3]
    means = [sum(each) / len(each) for each in means if each]
    expected = math.ceil(sum(means) / len(means) - 0.5)
    assert found["subword"].words(ids)[1] == [2, expected] != [2, 3]
    assert found["subword"].words(read(tokenizer, "film ✈"))[1] == [2, 3]  # no known word has such a subword


TRICKY = [
    "", " ", "the", "...", "it's the film's end...", "a1b2 c-d e_f", "goodfilm  good\u00a0film", "Ünïcode CAFÉ naïve",
    "ΟΔΟΣ ὈΔΥΣΣΕΎΣ", "東京の film 😀 good", "e\u0301te\u0301 x\u0301", "हिन्दी film", "don't — “stop” (now)!?",
    "\u200bfilm\u200d good",
    "the film was wonderfully good, dull; dull! 12,345.67", "xqzj vvkw", "'", "s's's", "!!dull", "film .good",
]  # fmt: skip


def check_arrays(depths: TokenDepths, rows: list[list[int]]) -> int:
    """Against spelling word by word; returns how many rows were read as arrays."""
    batch = stacked(rows)
    for row, ids in zip(depths.tensor(batch).tolist(), rows, strict=True):
        expected, known = depths._one_by_one(ids)
        words = [depth for depth, is_word in zip(expected, known, strict=True) if is_word] or [1]
        mean = math.ceil(sum(words) / len(words) - 0.5)
        end = {"deepest": max(words), "mean": mean, "shallowest": 1}[depths.special]
        expected = [depth if is_word else end for depth, is_word in zip(expected, known, strict=True)]
        assert row == expected + [0] * (len(row) - len(ids))
        assert depths.of(ids) == expected
    return int(depths._lookups.index(depths.tokenizer).can_read(batch.numpy()).sum())


def any_subwords(tokenizer: Tokenizer, count: int) -> list[list[int]]:
    """As no text has them."""
    rng = random.Random(1)
    return [[rng.randrange(1, tokenizer.vocabulary_size) for _ in range(rng.randint(1, 12))] for _ in range(count)]


@pytest.mark.parametrize("unseen", ["deepest", "frequency", "subword"])
@pytest.mark.parametrize("special", ["deepest", "mean", "shallowest"])
def test_arrays_give_what_spelling_word_by_word_gives(tokenizer, special, unseen):
    """Some rows need to be spelt, as a character is in several bytes."""
    table = WordDepths("mi", 9, {**VALUES, "'": (7.0,), "s": (5.0,), ".": (6.0,), "it": (8.0,)}, rare=(4.0,))
    depths = TokenDepths(table, tokenizer, special, unseen=unseen)
    rows = [read(tokenizer, text) for text in (*TRICKY, *LINES[:3])]
    rows += [[Tokenizer.BOS, *rows[3]], [tokenizer.symbol_id("<2fr>"), *rows[4]], *any_subwords(tokenizer, 300)]
    assert 20 < check_arrays(depths, rows) < len(rows)


@pytest.mark.parametrize("made", [bert_tokenizer, roberta_tokenizer, unigram_tokenizer, suffix_tokenizer])
def test_arrays_with_the_tokenizers_of_others(made):
    theirs = PretrainedTokenizer(made().to_str().encode())
    rows = [[*theirs.opening, *read(theirs, text)] for text in (*TRICKY, *TEXTS)] + any_subwords(theirs, 300)
    values = {**VALUES, "films": (3.0,), "'": (7.0,), "s": (5.0,), "x": (8.0,)}
    for unseen in ("deepest", "subword"):
        depths = TokenDepths(WordDepths("mi", 9, values, rare=(4.0,)), theirs, "shallowest", unseen=unseen)
        assert check_arrays(depths, rows) > 10


def test_the_deepest_is_that_of_this_text_not_of_the_table(tokenizer, table):
    assert shown(TokenDepths(table, tokenizer), "the good film")[-1] == ("", 2)


@pytest.mark.parametrize(("rule", "expected"), [("deepest", 3), ("shallowest", 1)])
def test_a_tag_is_no_word(tokenizer, table, rule, expected):
    tag, ids = tokenizer.symbol_id("<2fr>"), read(tokenizer, "film dull")
    depths = TokenDepths(table, tokenizer, rule)
    assert depths.of([tag, *ids]) == [expected, *depths.of(ids)]


def test_bytes_of_a_character_are_of_its_word(tokenizer, table):
    """Only the first of them is written, and still they are no special subwords."""
    found = shown(TokenDepths(table, tokenizer), "the 😀 film")
    assert sum(surface.strip() == "" for surface, _ in found) >= 4  # three bytes and the end of the text
    assert [depth for _, depth in found if depth == 4] == [4] * (len(found) - 2)


def test_a_text_without_words_runs_one_layer(tokenizer, table):
    for rule in ("deepest", "shallowest"):
        assert TokenDepths(table, tokenizer, rule).of([Tokenizer.EOS]) == [1]


def test_padding_has_depth_zero(tokenizer, table):
    depths = TokenDepths(table, tokenizer)
    rows = [tokenizer.encode("the wonderfully good film"), tokenizer.encode("film")]
    batch = depths.on(Batch.from_rows(rows, [[5], [6]]))
    expected = [depths.of([*row, Tokenizer.EOS]) for row in rows]
    length = len(expected[0])
    assert batch.depths.tolist() == [expected[0], expected[1] + [0] * (length - len(expected[1]))]
    assert torch.equal(batch.depths == 0, batch.source_padding)


def test_scale_and_what_cannot_be(tokenizer, table):
    depths = TokenDepths(table, tokenizer)
    ids = read(tokenizer, "the film")
    doubled = depths.changed(scale=2.0)
    assert doubled.of(ids) == [2 * depth for depth in depths.of(ids)]
    assert doubled.changed().of(ids) == doubled.of(ids)  # stays unless another is given
    assert depths.changed(scale=0.1).of(ids) == [1] * len(ids)
    with pytest.raises(UserError, match="cannot be scaled by 0"):
        depths.changed(scale=0.0)
    with pytest.raises(UserError, match="have no lambda"):
        depths.changed(lambda_=0.1)
    depths.check_layers(4)
    with pytest.raises(UserError, match="for 4 layers and the encoder has 6"):
        depths.check_layers(6)


def test_occurrences_count_where_the_text_was_gone_through(tokenizer):
    words = ["the", "film", "the"]
    values = dict.fromkeys(words, (4.0, 2.0))
    table = WordDepths("reconstruction", 4, values, (0.0, 0.1), 0.1, {text_key(words): (1, 3, 4)})
    depths = TokenDepths(table, tokenizer, "shallowest")

    def of_words(depths: TokenDepths, text: str) -> list[int]:
        return depths.words(read(tokenizer, text))[1]

    assert of_words(depths, "The film the") == [1, 3, 4]  # in whichever case
    assert of_words(depths, "film the the") == [2, 2, 2]
    assert of_words(depths.changed(scale=0.5), "the film the") == [1, 1, 2]
    text = read(tokenizer, "the film the")
    assert set(depths.of(text)) == {1, 3, 4}


class Rows:
    """A stream of two batches."""

    together = 3

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.rows = [[tokenizer.encode(text)] for text in ("the film", "dull")]

    def batches_in(self, epoch: int) -> int:
        return 2

    def at(self, epoch: int, index: int, share: BatchShare = WHOLE) -> Batch:
        return Batch.from_rows(self.rows[index], [[7]], place=(epoch, index))


def test_a_stream_with_depths(tokenizer, table):
    depths = TokenDepths(table, tokenizer)
    stream = DepthStream(Rows(tokenizer), [depths], seed=1)
    assert (stream.together, stream.batches_in(5)) == (3, 2)
    for index, text in enumerate(("the film", "dull")):
        batch = stream.at(4, index)
        assert batch.place == (4, index)
        assert batch.depths.tolist() == [depths.of(read(tokenizer, text))]
    assert stream.at(0, 1).depths.max() == 3


def test_a_stream_draws_a_scale_for_each_batch(tokenizer, table):
    choices = [TokenDepths(table, tokenizer, scale=scale) for scale in (0.1, 10.0)]
    stream, again = (DepthStream(Rows(tokenizer), choices, seed=1) for _ in range(2))
    places = [(epoch, index) for epoch in range(8) for index in range(2)]
    drawn = [int(stream.at(*place).depths.max()) for place in places]
    assert set(drawn) == {1, table.layers}
    assert [int(again.at(*place).depths.max()) for place in reversed(places)] == drawn[::-1]

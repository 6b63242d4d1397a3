import hashlib
import subprocess
import sys

import pytest

from anydepth.data import Tokenizer
from anydepth.data.tokenizer import TokenizerOptions
from anydepth.errors import UserError

WORDS = [
    first + middle + last for first in ("th", "c", "st", "m") for middle in "aeiou" for last in ("t", "g", "rd", "ne")
]
TRAIN_ELSEWHERE = """
import hashlib
from test_tokenizer import train
print(hashlib.sha256(train(sample=500).to_bytes()).hexdigest())
"""


def sentences(count: int = 2000) -> list[str]:
    return [" ".join(WORDS[(i * k + i // 7) % len(WORDS)] for k in range(1, 9)) + "!" for i in range(count)]


def train(vocabulary: int = 300, sample: int = 10_000, byte_fallback: bool = True) -> Tokenizer:
    return Tokenizer.train(
        iter(sentences()), TokenizerOptions(vocabulary, sample=sample, byte_fallback=byte_fallback), seed=5
    )


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train()


@pytest.mark.parametrize("text", ["that mine stog!", "naïve 😀 emoji 👩‍🚀", "日本語 and Ελληνικά", ""])
def test_round_trip(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(Tokenizer.EOS < i < tokenizer.vocabulary_size for i in ids)


def test_vocabulary_and_specials(tokenizer):
    assert tokenizer.vocabulary_size == 300
    assert (Tokenizer.PAD, Tokenizer.UNK, Tokenizer.BOS, Tokenizer.EOS) == (0, 1, 2, 3)
    ids = tokenizer.encode("that mine")
    assert tokenizer.decode([2, *ids, 3, 0, 0]) == "that mine"
    assert "".join(tokenizer.pieces(ids)) == "▁that▁mine"


def test_special_words_in_the_text_are_only_text(tokenizer):
    assert not {0, 2, 3} & set(tokenizer.encode("<s> </s> <pad> the <unk>"))


@pytest.mark.parametrize("text", ["a\0b", "\x01\x7f\x9f", "\ud800 alone", "\n\r\n", "\ufeff\u200b", "x" * 100_000])
def test_odd_input_does_not_crash(tokenizer, text):
    assert tokenizer.encode_many([text, "the"]) == [tokenizer.encode(text), tokenizer.encode("the")]


def test_decoded_text_is_one_line(tokenizer):
    pieces = {piece: i for i, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary_size)))}
    ids = [*tokenizer.encode("the"), pieces["<0x0A>"], pieces["<0x0D>"], *tokenizer.encode("cat"), 99_999]
    text = tokenizer.decode(ids)
    assert text.splitlines() == [text]
    assert "the" in text
    assert "cat" in text


def test_encode_many_of_nothing(tokenizer):
    assert tokenizer.encode_many([]) == []


@pytest.mark.parametrize("sample", [500, 10_000])
def test_same_bytes_every_time(sample):
    assert train(sample=sample).to_bytes() == train(sample=sample).to_bytes()


@pytest.mark.slow
def test_same_bytes_in_another_process(request):
    command = [sys.executable, "-c", TRAIN_ELSEWHERE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=request.path.parent, check=True)
    assert done.stdout.strip() == hashlib.sha256(train(sample=500).to_bytes()).hexdigest()


def test_bytes_make_the_same_tokenizer(tokenizer):
    again = Tokenizer.from_bytes(tokenizer.to_bytes())
    assert again.encode("the big house 😀") == tokenizer.encode("the big house 😀")


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: b"junk", lambda raw: raw[:-7]])
def test_damaged_model(tokenizer, damage):
    with pytest.raises(UserError, match="damaged"):
        Tokenizer.from_bytes(damage(tokenizer.to_bytes()))


def test_too_large_a_vocabulary_tells_the_largest():
    with pytest.raises(UserError, match=r"set data.vocabulary to at most \d+$") as caught:
        train(vocabulary=5000)
    largest = int(str(caught.value).split()[-1])
    assert train(vocabulary=largest).vocabulary_size == largest


def test_too_small_a_vocabulary():
    with pytest.raises(UserError, match=r"set data\.vocabulary to more than 2\d\d$"):
        train(vocabulary=120)


def test_no_sentences():
    with pytest.raises(UserError, match="no sentence"):
        Tokenizer.train(iter([]), TokenizerOptions(300, sample=10), seed=1)


def test_without_bytes_unknown_characters_are_unknown():
    tokenizer = train(vocabulary=45, byte_fallback=False)
    assert Tokenizer.UNK in tokenizer.encode("😀")


def test_symbols_follow_the_specials_and_never_come_from_text():
    symbols = ["<2es>", "<2pt-BR>", "<mask>"]
    with_them = [sentence + " <2es> <mask>" for sentence in sentences()]
    tokenizer = Tokenizer.train(iter(with_them), TokenizerOptions(310, sample=10_000, symbols=symbols), seed=5)
    assert [tokenizer.symbol_id(symbol) for symbol in symbols] == [4, 5, 6]
    assert not {4, 5, 6} & set(tokenizer.encode("<2es> that <mask><2pt-BR> ▁<2es>▁"))
    assert tokenizer.decode([4, *tokenizer.encode("that mine"), 6, 5]) == "that mine"
    assert tokenizer.decode(tokenizer.encode("<2es> that")) == "<2es> that"
    assert Tokenizer.from_bytes(tokenizer.to_bytes()).symbol_id("<mask>") == 6
    for other in ("<2de>", "<s>", "<unk>", "<pad>", "<0x0A>", "▁", "that", ""):
        assert tokenizer.symbol_id(other) is None


def test_without_symbols_the_bytes_stay_as_they_were():
    explicit = Tokenizer.train(iter(sentences()), TokenizerOptions(300, sample=10_000, symbols=()), seed=5)
    assert explicit.to_bytes() == train().to_bytes()
    assert explicit.symbol_id("<mask>") is None

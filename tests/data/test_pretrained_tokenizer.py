"""Tokenizers of checkpoints from elsewhere, and the text of single subwords."""

import json

import pytest
from made_checkpoints import BERT_VOCABULARY, TEXTS, TOKENIZERS, bert_tokenizer, make_json, roberta_tokenizer

from anydepth.data import Tokenizer
from anydepth.data.tokenizer import MASK, PretrainedTokenizer, renumber
from anydepth.data.words import sentencepiece_surfaces, suffix_surfaces
from anydepth.errors import UserError

NAMES = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "roberta": ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
    "unigram": ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
}


@pytest.fixture(params=list(TOKENIZERS))
def kind(request) -> str:
    return request.param


@pytest.fixture
def tokenizer(kind) -> PretrainedTokenizer:
    return PretrainedTokenizer.from_bytes(make_json(TOKENIZERS[kind]()))


def test_specials_have_our_numbers_and_all_others_stay(kind, tokenizer):
    theirs = TOKENIZERS[kind]()
    assert tokenizer.pieces(range(4)) == list(NAMES[kind][:4])
    assert sorted(tokenizer.order) == list(range(theirs.get_vocab_size()))
    assert tokenizer.vocabulary_size == theirs.get_vocab_size()
    assert all(tokenizer.pieces([new]) == [theirs.id_to_token(old)] for new, old in enumerate(tokenizer.order))
    displaced = {*range(4), *(theirs.token_to_id(name) for name in NAMES[kind][:4])}
    assert all(new == old for new, old in enumerate(tokenizer.order) if new not in displaced)
    assert tokenizer.opening == (Tokenizer.BOS,)


def test_renumbering_changes_places():
    assert renumber(8, [0, 5, 6, 7]) == [0, 5, 6, 7, 4, 1, 2, 3]
    assert renumber(5, [1, 3, 0, 2]) == [1, 3, 0, 2, 4]
    assert renumber(5, [0, 1, 2, 3]) == [0, 1, 2, 3, 4]


def test_a_number_that_the_vocabulary_leaves_out_is_nothing():
    content = json.loads(bert_tokenizer().to_str())
    left_out = content["model"]["vocab"].pop("good")
    tokenizer = PretrainedTokenizer.from_bytes(json.dumps(content).encode())
    assert tokenizer.vocabulary_size == len(BERT_VOCABULARY)
    assert tokenizer.pieces([left_out]) == tokenizer.surfaces([left_out]) == [""]
    assert tokenizer.decode([left_out]) == ""


def test_the_mask_is_the_only_symbol(kind, tokenizer):
    mask = tokenizer.symbol_id(MASK)
    assert tokenizer.pieces([mask]) == [NAMES[kind][4]]
    assert [tokenizer.symbol_id(name) for name in ("[CLS]", "film", "<2fr>")] == [None] * 3
    without = bert_tokenizer([piece for piece in BERT_VOCABULARY if piece != "[MASK]"]).to_str()
    content = json.loads(without)
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[MASK]"]
    assert PretrainedTokenizer.from_bytes(json.dumps(content).encode()).symbol_id(MASK) is None


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_splits_text_as_transformers_does(kind, tokenizer, tmp_path):
    from transformers import AutoTokenizer

    TOKENIZERS[kind]().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}), "utf-8")
    theirs = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in TEXTS:
        ids = [Tokenizer.BOS, *tokenizer.encode(text), Tokenizer.EOS]
        assert [tokenizer.order[i] for i in ids] == theirs(text)["input_ids"], text
    assert tokenizer.encode_many(TEXTS) == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_many(TEXTS[:1]) == [tokenizer.encode(TEXTS[0])]


@pytest.mark.parametrize("make", [bert_tokenizer, roberta_tokenizer])
def test_texts_are_neither_cut_nor_filled_up(make):
    plain, limited = make(), make()
    limited.enable_truncation(3)
    limited.enable_padding(length=8, pad_id=plain.token_to_id("[PAD]") or 0)
    expected = PretrainedTokenizer.from_bytes(make_json(plain)).encode_many(["film", "the film was good"])
    assert PretrainedTokenizer.from_bytes(make_json(limited)).encode_many(["film", "the film was good"]) == expected
    assert len(expected[0]) == 1
    assert len(expected[1]) > 3


def test_special_words_in_the_text_are_only_text(kind, tokenizer):
    written = "film " + " ".join(NAMES[kind]) + " film" + NAMES[kind][3]
    for ids in (tokenizer.encode(written), tokenizer.encode_many([written, "film"])[0]):
        assert not {Tokenizer.PAD, Tokenizer.BOS, Tokenizer.EOS, tokenizer.symbol_id(MASK)} & set(ids)
        assert len(ids) > 6
        # Unigram knows no other way to write the name of a special piece.
        assert (Tokenizer.UNK in ids) == (kind == "unigram")


@pytest.mark.parametrize("text", ["a\0b", "\x01\x7f\x9f", "\ud800 alone", "\n\r\n", "\ufeff\u200b", "x" * 100_000])
def test_odd_input_does_not_crash(tokenizer, text):
    assert tokenizer.encode_many([text, "film"]) == [tokenizer.encode(text), tokenizer.encode("film")]


def test_decoded_text_is_one_line_without_specials(kind, tokenizer):
    ids = [
        Tokenizer.BOS,
        *tokenizer.encode("good film"),
        tokenizer.symbol_id(MASK),
        Tokenizer.EOS,
        Tokenizer.PAD,
        10**6,
        -1,
    ]
    assert tokenizer.decode(ids) == "good film"
    assert tokenizer.decode([Tokenizer.UNK]).strip() == NAMES[kind][1]
    if kind == "roberta":
        assert tokenizer.decode(tokenizer.encode("film\nfilm")) == "film film"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("bert", "incible films, q\u0416", [" inc", "ible", " film", "s", " ,", " \ufffd"]),
        ("roberta", "film good é日q", ["film", " good", " ", "é", "", "日", "", "", "q"]),
        ("unigram", "film s\u0416", [" film", " ", "s", " \ufffd"]),
    ],
)
def test_surfaces_have_a_space_where_a_word_starts(tokenizer, text, expected):
    ids = tokenizer.encode(text)
    assert tokenizer.surfaces([Tokenizer.BOS, *ids, tokenizer.symbol_id(MASK), Tokenizer.EOS]) == [
        "",
        *expected,
        "",
        "",
    ]


def test_sentencepiece_surfaces():
    pieces = ["<2fr>", "▁caf", "<0xC3>", "<0xA9>", "▁", "<0xE6>", "<0x97>", "<0xA5>", "s", "<mask>", "<unk>", "</s>"]
    assert sentencepiece_surfaces(pieces) == ["", " caf", "é", "", " ", "日", "", "", "s", "", " \ufffd", ""]
    assert sentencepiece_surfaces(["<0xE9>", "a", "<0xA9>", "<0xC3>"]) == ["\ufffd", "a", "\ufffd", "\ufffd"]
    assert sentencepiece_surfaces(["<0xC3>", "<0xA9>", "<0xC3>", "<0xA9>"]) == ["é", "", "é", ""]
    assert sentencepiece_surfaces(["▁<b>", "<i>", "<", "s", ">"]) == [" <b>", "<i>", "<", "s", ">"]
    assert sentencepiece_surfaces([]) == []


def test_surfaces_with_marked_ends_of_words():
    assert suffix_surfaces(["fil", "m</w>", "good</w>", ".</w>"], "</w>") == [" fil", "m", " good", " ."]


def test_the_same_bytes_come_back():
    data = make_json(bert_tokenizer())
    again = PretrainedTokenizer.from_bytes(PretrainedTokenizer.from_bytes(data).to_bytes())
    assert again.to_bytes() == data
    assert again.encode("films") == PretrainedTokenizer.from_bytes(data).encode("films")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[]", make_json(bert_tokenizer())[:-100]])
def test_damage_is_one_line(data):
    with pytest.raises(UserError, match=r"^the tokenizer\.json is damaged: copy it again$"):
        PretrainedTokenizer.from_bytes(data)


@pytest.mark.parametrize("missing", ["[PAD]", "[CLS]", "[SEP]"])
def test_without_a_special_it_is_refused(missing):
    content = json.loads(bert_tokenizer().to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != missing]
    content["model"]["vocab"]["other"] = content["model"]["vocab"].pop(missing)
    with pytest.raises(UserError, match=rf"^the tokenizer has no \{missing[:-1]}\] or .*: take a checkpoint .*$"):
        PretrainedTokenizer.from_bytes(json.dumps(content).encode())


@pytest.mark.slow
def test_minilm_splits_text_as_transformers_does(minilm):
    from transformers import AutoTokenizer

    ours = PretrainedTokenizer.from_bytes((minilm / "tokenizer.json").read_bytes())
    theirs = AutoTokenizer.from_pretrained(minilm, local_files_only=True)
    for text in [*TEXTS, "film " * 600]:
        ids = [Tokenizer.BOS, *ours.encode(text), Tokenizer.EOS]
        assert [ours.order[i] for i in ids] == theirs(text, truncation=False, padding=False)["input_ids"], text

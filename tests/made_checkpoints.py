"""Tiny checkpoints of the BERT family, with random weights and tokenizers made by hand."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = ["film", "good", "bad", "not", "the", "was", "##ible", "inc", "日", "本", "é", *".,!?'-()[]<>/"]
BERT_VOCABULARY = [
    "[PAD]", "[unused1]", "[unused2]", "[unused3]", "[unused4]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS,
]  # fmt: skip
MERGES = [("f", "i"), ("l", "m"), ("fi", "lm"), ("Ġ", "film"), ("g", "o"), ("o", "d"), ("go", "od"), ("Ġ", "good")]
ROBERTA_VOCABULARY = [
    "<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(first + second for first, second in MERGES), "<mask>",
]  # fmt: skip
UNIGRAM_VOCABULARY = [
    *((name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")), ("▁film", -1.0), ("▁", -2.0), ("s", -3.0),
    *((letter, -4.0) for letter in "fgod<>/"), ("<mask>", 0.0),
]  # fmt: skip
TEXTS = [
    "The film was good!",
    "not a BAD film, incredible (naïve) café's films",
    "日本 film: 映画 😀 👩‍🚀",
    "x" * 150 + " film",
    "e\u0301 fi\nlm\tgood  \u00a0 film\u200b",
    "",
]
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
DISTILBERT_SIZES = {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24}


def bert_tokenizer(vocabulary: list[str] = BERT_VOCABULARY, lowercase: bool = True) -> Tokenizer:
    made = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return made


def roberta_tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE({piece: i for i, piece in enumerate(ROBERTA_VOCABULARY)}, MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return made


def unigram_tokenizer() -> Tokenizer:
    """As XLM-R has it; nothing but the scores keeps the names of its special pieces apart from text."""
    made = Tokenizer(models.Unigram(UNIGRAM_VOCABULARY, 3, False))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


TOKENIZERS = {"bert": bert_tokenizer, "roberta": roberta_tokenizer, "unigram": unigram_tokenizer}


def make_json(tokenizer: Tokenizer) -> bytes:
    written: str = tokenizer.to_str()
    return written.encode("utf-8")


def make_model(kind: str, vocabulary: int, **settings: Any) -> Any:
    """One whose every number is random: norms and biases too, which the library would start as ones and zeros."""
    import transformers

    sizes = DISTILBERT_SIZES if kind == "distilbert" else SIZES | {"layer_norm_eps": 1e-3}
    config = transformers.AutoConfig.for_model(kind, vocab_size=vocabulary, **(sizes | settings))
    model = transformers.AutoModel.from_config(config).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model


def make_checkpoint(folder: Path, kind: str = "bert", **settings: Any) -> Any:
    """A folder with a model and its tokenizer.json; the model as transformers has it."""
    bert_like = kind in ("bert", "distilbert")
    settings = {"max_position_embeddings": 24 if bert_like else 26, "pad_token_id": 0 if bert_like else 1} | settings
    tokenizer = roberta_tokenizer() if settings["pad_token_id"] else bert_tokenizer()
    model = make_model(kind, **({"vocabulary": tokenizer.get_vocab_size()} | settings))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model

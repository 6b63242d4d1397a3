"""Exports for transformers: from_pretrained loads them, and `generate` has the same tokens."""

import json

import pytest
import torch
from conftest import assert_one_line
from made_translators import LINES, TEXTS, make_m2m100, make_marian, make_mbart, train_pieces
from random_models import random_translator

from anydepth import Translator, UserError
from anydepth.artifact.saving import ModelContent, save
from anydepth.data.sentencepiece_file import SPECIALS, read_pieces, with_pieces
from anydepth.data.tokenizer import Tokenizer
from anydepth.export.importing import import_model
from anydepth.model.hf_translation import check_settings

pytestmark = pytest.mark.slow

SENTENCES = [f"{a} {b}" for a in LINES for b in (*TEXTS, *(one[::-1] for one in TEXTS), *LINES)][:500]


def their_texts(folder, texts, longest, prefix="", **languages):
    """As the README of the export says."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, **languages)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    found = []
    for start in range(0, len(texts), 50):
        batch = tokenizer([prefix + text for text in texts[start : start + 50]], return_tensors="pt", padding=True)
        outputs = model.generate(**batch, max_length=longest + 1)
        found += tokenizer.batch_decode(outputs, skip_special_tokens=True)
    return found


def our_tokenizer():
    model = train_pieces(LINES, 90)
    return Tokenizer.from_bytes(with_pieces(model, [*SPECIALS, *read_pieces(model, "it")[3:]]))


def saved(folder, tokenizer, **changes):
    translator = random_translator(tokenizer, max_length=90, **changes)
    with torch.no_grad():  # so that outputs have to do with their sources, and no token is every output
        table = translator.model.target_embedding.weight
        table.div_(table.norm(dim=1, keepdim=True))
        for name, value in translator.model.named_parameters():
            if name.endswith("bias"):
                value.mul_(0.1)
            elif value.ndim == 2 and ".layers." in name:
                value.mul_(2.0)
    tensors = {name: value.detach() for name, value in translator.model.named_parameters()}
    save(folder, ModelContent(translator.model.config, tensors, tokenizer, translator.menu, ("fr", "en")), {})
    return Translator.load(folder, engine="torch")


OURS = {
    "pre-norm": {},
    "gelu, shared layers, layer weights in the depth": {"activation": "gelu", "encoder_shared": [1, 1, 2]},
    "with a bias": {"output_bias": True, "activation": "swish"},
    "post-norm": {"norm": "post", "embedding_norm": False},
    "positions of fairseq": {"positions": "fairseq"},
}


@pytest.mark.parametrize("name", OURS)
def test_our_models_have_the_same_output_there(name, tmp_path, here):
    translator = saved(tmp_path / "ours", our_tokenizer(), **OURS[name])
    (tmp_path / "in").write_text("\n".join(SENTENCES[:60]) + "\n", "utf-8")
    for depth in ("3-2", "1-1") if "weights" in name else ("3-2-soft", "2-1"):
        arguments = ["--depth", depth, "--to", "transformers", "--out", tmp_path / depth, "--source", tmp_path / "in"]
        done = here("export", tmp_path / "ours", *arguments)
        assert done.returncode == 0, done.stderr
        assert "same tokens: 60 of 60" in done.stdout.decode()
        if "fairseq" in name:
            continue  # their tokenizers have tokens of languages, which this model has not
        texts = SENTENCES[:20]
        theirs = their_texts(tmp_path / depth, texts, 12)
        assert theirs == translator.translate(texts, depth=depth, max_length=12)
        assert len(set(theirs)) > 1


FAMILIES = {
    "marian": (make_marian, {}, [], {}),
    "marian-separate": (make_marian, {"separate": True}, [], {}),
    "marian-languages": (make_marian, {"languages": ("fra", "deu")}, ["en-deu"], {}),
    "m2m100": (make_m2m100, {}, ["fr-en"], {"src_lang": "fr"}),
    "nllb": (make_m2m100, {"nllb": True}, ["fra_Latn-eng_Latn"], {"src_lang": "fra_Latn"}),
    "mbart50": (make_mbart, {}, ["fr_XX-en_XX"], {"src_lang": "fr_XX"}),
    "mbart": (make_mbart, {"old": True}, ["fr_XX-ro_RO"], {"src_lang": "fr_XX"}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_there_and_back_no_token_differs_on_500_sentences(name, tmp_path, here):
    make, settings, pairs, languages = FAMILIES[name]
    model = make(tmp_path / "theirs", max_position_embeddings=200, **settings)
    import_model(str(tmp_path / "theirs"), tmp_path / "ours", pairs, check=False)
    (tmp_path / "in").write_text("\n".join(SENTENCES) + "\n", "utf-8")
    arguments = ["--to", "transformers", "--out", tmp_path / "back", "--source", tmp_path / "in"]
    done = here("export", tmp_path / "ours", *arguments)
    assert done.returncode == 0, done.stderr
    assert f"same tokens: {len(SENTENCES):,} of {len(SENTENCES):,}" in done.stdout.decode()
    config = json.loads((tmp_path / "back" / "config.json").read_text("utf-8"))
    assert config["model_type"] == model.config.model_type

    translator = Translator.load(tmp_path / "ours", engine="torch").choices[0]
    expected = translator.translate(SENTENCES, max_length=10)
    prefix = ">>deu<< " if "languages" in name else ""
    theirs = their_texts(
        tmp_path / "back", SENTENCES, 10 + (translator.loaded.first_output is not None), prefix, **languages
    )
    assert [one.strip() for one in theirs] == [one.strip() for one in expected]
    assert len(set(theirs)) > 8

    import_model(str(tmp_path / "back"), tmp_path / "again", pairs)
    again = Translator.load(tmp_path / "again", engine="torch").choices[0]
    assert again.translate(SENTENCES[:50], max_length=10) == expected[:50]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"positions": "learned"}, "learned positions"),
        ({"norm": "post"}, "an embedding norm"),
        ({"residual": "rezero"}, "residual rezero"),
        ({"share_embeddings": "none"}, "share_embeddings none"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon"),
    ],
)
def test_what_transformers_does_not_have_is_refused(changes, reason, tmp_path, here):
    saved(tmp_path / "ours", our_tokenizer(), **changes)
    (tmp_path / "in").write_text("le chat\n", "utf-8")
    arguments = ["--to", "transformers", "--out", tmp_path / "out", "--source", tmp_path / "in"]
    assert_one_line(here("export", tmp_path / "ours", *arguments), reason)
    assert not (tmp_path / "out").exists()


def test_a_wrong_export_is_not_kept(tmp_path, here, monkeypatch):
    from anydepth.export import to_transformers

    saved(tmp_path / "ours", our_tokenizer())
    monkeypatch.setattr(to_transformers, "their_feature_order", lambda width: torch.arange(width))
    (tmp_path / "in").write_text("\n".join(TEXTS) + "\n", "utf-8")
    arguments = ["--to", "transformers", "--out", tmp_path / "out", "--source", tmp_path / "in"]
    assert_one_line(here("export", tmp_path / "ours", *arguments), "does not translate as its source")
    assert not (tmp_path / "out").exists()


def test_an_encoder_needs_no_import():
    with pytest.raises(UserError, match="name it in init_from"):
        check_settings("it", {"model_type": "bert"})

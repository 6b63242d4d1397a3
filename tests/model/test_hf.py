"""Encoders of Hugging Face checkpoints: the same states here as there, and what is refused."""

import json
import logging
import os
import sys
from pathlib import Path

import pytest
import torch
from conftest import python
from made_checkpoints import BERT_VOCABULARY, TEXTS, bert_tokenizer, make_checkpoint, make_model
from torch import Tensor

from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.data.tokenizer import PretrainedTokenizer
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.model.hf import is_pretrained, load_pretrained, read_pretrained

TIED = {"source_embedding.weight", "output.weight"}


def built(config: ModelConfig, tensors: dict[str, Tensor], tokenizer: PretrainedTokenizer) -> Transformer:
    model = Transformer(config, tokenizer.vocabulary_size)
    report = model.load_state_dict(tensors, strict=False)
    assert not report.unexpected_keys
    assert set(report.missing_keys) <= TIED
    return model.eval()


def pad_rows(tokenizer: PretrainedTokenizer, texts: list[str], longest: int) -> tuple[Tensor, Tensor]:
    """Texts of several lengths, one of which takes all positions; and where there is padding."""
    rows = [[Tokenizer.BOS, *tokenizer.encode(text)[: longest - 2], Tokenizer.EOS] for text in texts]
    width = max(map(len, rows))
    assert width == longest > min(map(len, rows))
    ids_bs = torch.tensor([row + [Tokenizer.PAD] * (width - len(row)) for row in rows])
    return ids_bs, ids_bs == Tokenizer.PAD


@torch.no_grad()
def furthest(folder: Path, theirs: torch.nn.Module, longest: int, texts: list[str] = TEXTS) -> float:
    """The greatest difference between a state here and there, at any layer and real position."""
    config, tensors, tokenizer = load_pretrained(folder)
    model = built(config, tensors, tokenizer)
    ids_bs, padding_bs = pad_rows(tokenizer, texts, longest)
    ours = model.encode(ids_bs, model.full, padding_bs)
    old_bs = torch.tensor(tokenizer.order)[ids_bs]
    found = theirs(input_ids=old_bs, attention_mask=(~padding_bs).long(), output_hidden_states=True).hidden_states[1:]
    assert len(ours) == len(found) == config.encoder_layers
    return max(float((a - b)[~padding_bs].abs().max()) for a, b in zip(ours, found, strict=True))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bert", {}),
        ("bert", {"hidden_act": "gelu_new", "type_vocab_size": 3}),
        ("bert", {"hidden_act": "relu", "hidden_size": 15, "num_attention_heads": 3}),
        ("roberta", {"type_vocab_size": 1}),
        ("roberta", {"hidden_act": "gelu_pytorch_tanh", "pad_token_id": 0, "max_position_embeddings": 25}),
        ("xlm-roberta", {}),
        ("camembert", {"type_vocab_size": 1}),
        ("distilbert", {}),
        ("distilbert", {"activation": "relu", "sinusoidal_pos_embds": True}),
    ],
)
def test_states_are_those_of_transformers(tmp_path, kind, settings):
    theirs = make_checkpoint(tmp_path, kind, **settings)
    assert furthest(tmp_path, theirs, longest=24) < 1e-5


def test_config_and_shapes_of_a_roberta(tmp_path):
    theirs = make_checkpoint(tmp_path, "roberta", type_vocab_size=1, hidden_dropout_prob=0.2)
    found = read_pretrained(tmp_path)
    config = found.config
    assert (config.width, config.heads, config.ffn, config.encoder_layers, config.decoder_layers) == (16, 2, 24, 3, 0)
    assert (config.norm, config.norm_epsilon, config.activation, config.positions) == ("post", 1e-3, "gelu", "learned")
    assert (config.token_types, config.dropout, config.attention_dropout) == (1, 0.2, 0.1)
    assert config.max_length == 24  # of 26 rows: positions begin after that of padding
    assert torch.equal(found.tensors["positions.weight"], theirs.embeddings.position_embeddings.weight[2:])
    assert found.vocabulary == len(found.tensors["target_embedding.weight"])
    assert found.tokenizer_json == (tmp_path / "tokenizer.json").read_bytes()


def test_an_older_file_with_a_head_in_half_precision(tmp_path):
    theirs = make_checkpoint(tmp_path).half()
    (tmp_path / "model.safetensors").unlink()
    weights = {f"bert.{key}": tensor for key, tensor in theirs.state_dict().items()}
    torch.save(weights | {"cls.predictions.bias": torch.zeros(5)}, tmp_path / "pytorch_model.bin")
    assert {tensor.dtype for tensor in read_pretrained(tmp_path).tensors.values()} == {torch.float32}
    assert furthest(tmp_path, theirs.float(), longest=24) < 1e-5


def test_without_tokenizer_json_its_vocabulary_is_read(tmp_path):
    theirs = make_checkpoint(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in BERT_VOCABULARY), "utf-8")
    assert furthest(tmp_path, theirs, longest=24) < 1e-5
    tokenizer = load_pretrained(tmp_path)[2]
    expected = bert_tokenizer().encode("The café, films", add_special_tokens=False).tokens
    assert tokenizer.pieces(tokenizer.encode("The café, films")) == expected
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"^\S+ has no tokenizer that .*: give it a tokenizer\.json$"):
        read_pretrained(tmp_path)


def test_tokenizer_json_is_taken_as_it_is(tmp_path):
    make_checkpoint(tmp_path)
    bert_tokenizer(lowercase=False).save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_pretrained(tmp_path)[2]
    assert tokenizer.pieces(tokenizer.encode("Film film")) == ["[UNK]", "film"]


def test_rows_without_sub_words_are_left_out_and_rows_may_not_lack(tmp_path):
    theirs = make_checkpoint(tmp_path, vocabulary=len(BERT_VOCABULARY) + 7)
    assert len(load_pretrained(tmp_path)[1]["target_embedding.weight"]) == len(BERT_VOCABULARY)
    assert furthest(tmp_path, theirs, longest=24) < 1e-5
    make_checkpoint(tmp_path, vocabulary=len(BERT_VOCABULARY) - 1)
    with pytest.raises(UserError, match=r"^the tokenizer of \S+ has \d+ subwords, but .*: take a checkpoint .*$"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "t5"}, "is a model of type t5"),
        ({"model_type": "nonesuch"}, "is a model of type nonesuch"),
        ({"position_embedding_type": "relative_key"}, "has relative positions"),
        ({"is_decoder": True}, "is a decoder"),
        ({"add_cross_attention": True}, "is a decoder"),
        ({"hidden_act": "silu"}, "has the activation silu"),
        ({"model_type": "roberta", "pad_token_id": None}, "has no pad_token_id, after which its positions begin"),
    ],
)
def test_what_we_cannot_run_is_refused_in_one_line(tmp_path, changes, reason):
    make_checkpoint(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")
    with pytest.raises(UserError, match=rf"^\S+ {reason}: take an encoder of type bert, .* gelu or relu$"):
        read_pretrained(tmp_path)


def test_a_size_that_we_do_not_have(tmp_path):
    make_checkpoint(tmp_path, max_position_embeddings=3)
    with pytest.raises(UserError, match=r"^\S+ has a size that anydepth does not support \(max_length: .*\): take .*$"):
        read_pretrained(tmp_path)


def test_weights_that_lack_or_are_damaged(tmp_path):
    from safetensors.torch import save_file

    model = make_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    lacking = "encoder.layer.1.output.dense.bias"
    save_file({k: v for k, v in model.state_dict().items() if k != lacking}, path, {"format": "pt"})
    with pytest.raises(UserError, match=rf"^the weights of \S+ lack {lacking}: take a checkpoint .*$"):
        read_pretrained(tmp_path)
    for spoil in (lambda: path.write_bytes(b"damaged"), path.unlink):
        spoil()
        with pytest.raises(UserError, match=r"^the weights of \S+ are missing or damaged: copy the checkpoint again$"):
            read_pretrained(tmp_path)


def test_a_folder_without_a_checkpoint(tmp_path):
    complaint = r"^\S+ has no config\.json with a model_type: give the folder .*$"
    with pytest.raises(UserError, match=complaint):
        read_pretrained(tmp_path)
    for content in ('{"model_type"', "{}", "[]"):
        (tmp_path / "config.json").write_text(content, "utf-8")
        with pytest.raises(UserError, match=complaint):
            read_pretrained(tmp_path)


def test_without_transformers_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"^a checkpoint .* needs transformers: pip install 'anydepth\[bert\]'$"):
        read_pretrained(tmp_path)


def downloaded(cache: Path, name: str) -> Path:
    """Where the files of a model on the hub are once they have been downloaded."""
    there = cache / f"models--{name.replace('/', '--')}"
    (there / "refs").mkdir(parents=True)
    (there / "refs" / "main").write_text("a" * 40, "utf-8")
    return there / "snapshots" / ("a" * 40)


@pytest.mark.slow
def test_names_on_the_hub(tmp_path):
    make_checkpoint(downloaded(tmp_path, "somebody/tiny"))
    second = downloaded(tmp_path, "tiny-without-json")
    make_checkpoint(second)
    (second / "tokenizer.json").unlink()
    (second / "vocab.txt").write_text("".join(f"{piece}\n" for piece in BERT_VOCABULARY), "utf-8")
    script = """
from anydepth.model.hf import load_pretrained
for name in ("somebody/tiny", "tiny-without-json", "nobody/no-such-model"):
    config, tensors, tokenizer = load_pretrained(name)
    print(len(tensors["target_embedding.weight"]), *tokenizer.pieces(tokenizer.encode("Films")))
"""
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    done = python(script, offline)
    assert done.stdout.splitlines() == [f"{len(BERT_VOCABULARY)} film ##s"] * 2, done.stderr
    last = done.stderr.strip().splitlines()[-1].removeprefix("anydepth.errors.UserError: ")
    assert last.startswith("there is no folder nobody/no-such-model, and "), done.stderr


def test_reading_is_silent_and_leaves_the_library_as_it_was(tmp_path, capfd):
    from transformers.utils import logging as their_logging

    make_checkpoint(tmp_path)
    # A file for another model: transformers would report the weights that it has no use for.
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"num_hidden_layers": 2}), "utf-8")
    before = their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()
    their_logging.set_verbosity(logging.INFO)
    their_logging.enable_progress_bar()
    capfd.readouterr()
    try:
        assert read_pretrained(tmp_path).config.encoder_layers == 2
        assert capfd.readouterr() == ("", "")
        assert (their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()) == (logging.INFO, True)
    finally:
        their_logging.set_verbosity(before[0])
        if not before[1]:
            their_logging.disable_progress_bar()


def test_what_counts_as_pretrained(tmp_path):
    make_model("bert", 20).config.save_pretrained(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.json").write_text('{"format": 1, "model_type": "x"}', "utf-8")
    (tmp_path / "empty").mkdir()
    assert is_pretrained(tmp_path / "theirs")
    assert is_pretrained(str(tmp_path / "theirs"))
    assert not any(is_pretrained(tmp_path / name) for name in ("ours", "empty", "nowhere", "theirs/config.json"))
    assert all(map(is_pretrained, ("bert-base-no-such", "nobody/no_such.model-v2", Path("nobody/no-such"))))
    assert not any(
        map(is_pretrained, ("./nobody", "../x/y", "/nobody/x", "a/b/c", ".hidden", "a/.b", "a b", "~/x", ""))
    )


@pytest.mark.slow
def test_minilm_has_the_states_of_transformers(minilm):
    from transformers import AutoModel

    theirs = AutoModel.from_pretrained(minilm, local_files_only=True).eval()
    assert furthest(minilm, theirs, 512, [*TEXTS, "a good film " * 250]) < 1e-5

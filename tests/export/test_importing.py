"""Translation models of transformers, imported: the same logits, the same tokens, on every road."""

import json
import shutil

import pytest
import torch
from conftest import assert_one_line
from made_translators import TEXTS, make_m2m100, make_marian, make_mbart
from safetensors.torch import load_file

from anydepth import Translator, UserError
from anydepth.data.imported_tokenizer import MBART_LANGUAGES, read_fairseq, read_marian
from anydepth.export.importing import import_model

pytestmark = pytest.mark.slow

FAMILIES = {
    "marian": (make_marian, {}, []),
    "marian-pickled": (make_marian, {"pickled": True, "scale_embedding": False, "activation_function": "gelu"}, []),
    "marian-languages": (make_marian, {"languages": ("fra", "deu")}, ["en-deu", "en-fra"]),
    "marian-separate": (make_marian, {"separate": True}, []),
    "m2m100": (make_m2m100, {}, ["fr-en"]),
    "nllb": (make_m2m100, {"nllb": True}, ["fra_Latn-eng_Latn", "eng_Latn-por_Latn"]),
    "mbart50": (make_mbart, {}, ["fr_XX-en_XX"]),
    "mbart": (make_mbart, {"old": True}, ["fr_XX-ro_RO"]),
}


def their_outputs(model, rows, source, start, first, never):
    """Greedy search by transformers' own `generate`."""
    from transformers import GenerationConfig

    length = 12
    options = GenerationConfig(
        num_beams=1,
        do_sample=False,
        max_new_tokens=length + (first is not None),
        min_new_tokens=1 + (first is not None),
        decoder_start_token_id=start,
        forced_bos_token_id=first,
        suppress_tokens=never,
        eos_token_id=rows[3],
        pad_token_id=rows[0],
    )
    model.generation_config = options
    ids = torch.tensor([[rows[i] for i in source]])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=options)[0].tolist()
    found = found[1 + (first is not None) :]
    return found[: found.index(rows[3])] if rows[3] in found else found


@pytest.mark.parametrize("name", FAMILIES)
def test_an_import_has_the_logits_and_tokens_of_transformers(name, tmp_path):
    make, settings, pairs = FAMILIES[name]
    model = make(tmp_path / "theirs", **settings)
    result = import_model(str(tmp_path / "theirs"), tmp_path / "ours", pairs, sentences=TEXTS)
    assert (result.same, result.same_subwords) == (len(TEXTS), len(TEXTS))
    assert result.difference < 1e-4

    start = model.config.decoder_start_token_id
    if make is make_marian:
        read = read_marian(tmp_path / "theirs", start, separate=name == "marian-separate")
    else:
        read = read_fairseq(tmp_path / "theirs", 2, model.config.vocab_size)
    translator = Translator.load(tmp_path / "ours", engine="torch").choices[0]
    pair = translator.pairs[0]
    first = translator.loaded.first_output
    if name == "mbart":
        start = read.target_rows[translator.tokenizer.symbol_id("ro_RO")]
    elif start is None:
        start = 2
    kept = {read.target_rows[i] for i in range(3, len(read.target_rows))}
    never = [i for i in range(model.lm_head.out_features) if i not in kept]
    for text in TEXTS:
        source = translator.as_read(translator.subwords([text])[0])
        begin = None if first is None else read.target_rows[first]
        rows = [
            read.target_rows[i] if name != "marian-separate" or i < 4 else read.source_rows[i]
            for i in range(len(read.target_rows))
        ]
        source_rows = read.source_rows[:4] + rows[4:] if name == "marian-separate" else read.source_rows
        theirs = their_outputs(model, source_rows, source, start, begin, never)
        ((best, *_),) = translator.hypotheses([text], max_length=12)
        assert [read.target_rows[i] for i in best.tokens] == theirs, (text, pair)


def test_tables_of_an_import_keep_their_type(tmp_path):
    model = make_m2m100(tmp_path / "theirs")
    model.to(torch.bfloat16).save_pretrained(tmp_path / "theirs")
    assert import_model(str(tmp_path / "theirs"), tmp_path / "ours", ["fr-en"]).same == 4
    assert {one.dtype for one in load_file(tmp_path / "ours" / "model.safetensors").values()} == {torch.bfloat16}


def test_each_engine_runs_what_it_can(tmp_path):
    """CTranslate2 has the same tokens; the native engine, in int8, nearly the same; what one cannot, it says."""
    make_marian(tmp_path / "marian")
    import_model(str(tmp_path / "marian"), tmp_path / "opus")
    expected = Translator.load(tmp_path / "opus", engine="torch").translate(TEXTS, max_length=12, beam=2)
    assert len(set(expected)) > 8
    found = Translator.load(tmp_path / "opus", engine="ctranslate2").translate(TEXTS, max_length=12, beam=2)
    assert found == expected
    found = Translator.load(tmp_path / "opus", engine="native").translate(TEXTS, max_length=12, beam=2)
    assert sum(a == b for a, b in zip(found, expected, strict=True)) > len(TEXTS) / 2

    make_m2m100(tmp_path / "nllb", nllb=True)
    import_model(str(tmp_path / "nllb"), tmp_path / "many", ["fra_Latn-eng_Latn", "fra_Latn-por_Latn"])
    options = {"source_language": "fra_Latn", "target_language": "por_Latn"}
    for beam in (1, 3):
        expected = Translator.load(tmp_path / "many", engine="torch", **options).hypotheses(
            TEXTS, max_length=12, beam=beam
        )
        found = Translator.load(tmp_path / "many", engine="ctranslate2", **options).hypotheses(
            TEXTS, max_length=12, beam=beam
        )
        assert [one[0].tokens for one in found] == [one[0].tokens for one in expected]
    with pytest.raises(UserError, match="begin with the tag of a language"):
        Translator.load(tmp_path / "many", engine="native", **options)
    assert Translator.load(tmp_path / "many", engine="auto", **options).engine.name.startswith("ctranslate2")

    make_mbart(tmp_path / "mbart", old=True)
    import_model(str(tmp_path / "mbart"), tmp_path / "two", ["en_XX-ro_RO"])
    with pytest.raises(UserError, match="positions of their own"):
        Translator.load(tmp_path / "two", engine="native")


def test_the_command_says_what_it_compared(tmp_path, here):
    make_marian(tmp_path / "theirs")
    (tmp_path / "theirs" / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# A model\n", "utf-8")
    done = here("import", tmp_path / "theirs", "--out", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().startswith("same tokens as transformers: 4 of 4; logits differ by at most ")
    assert "license: cc-by-4.0" in (tmp_path / "ours" / "README.md").read_text("utf-8")
    done = here("import", tmp_path / "theirs", "--out", tmp_path / "again", "--no-check", "--pair", "fr-en")
    assert "was not compared" in done.stderr.decode()
    assert Translator.load(tmp_path / "again").languages == ("fr", "en")


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


BROKEN = {
    "is a file": lambda f: f.rename(f.with_name("x")) and f.write_text("x", "utf-8"),
    "no config.json": lambda f: (f / "config.json").unlink(),
    "without model_type": lambda f: (f / "config.json").write_text("{}", "utf-8"),
    "config.json is damaged": lambda f: (f / "config.json").write_text("{", "utf-8"),
    "type t5, which cannot be imported": lambda f: change(f / "config.json", model_type="t5"),
    "activation tanh": lambda f: change(f / "config.json", activation_function="tanh"),
    "heads that differ": lambda f: change(f / "config.json", decoder_attention_heads=2),
    "do not fit": lambda f: change(f / "config.json", encoder_ffn_dim=24, decoder_ffn_dim=24),
    "are quantized": lambda f: change(f / "config.json", quantization_config={"bits": 4}),
    "lack model.encoder.layers.3": lambda f: change(f / "config.json", encoder_layers=4),
    "does not support": lambda f: change(f / "config.json", encoder_attention_heads=5, decoder_attention_heads=5),
    "there are no weights": lambda f: (f / "model.safetensors").unlink(),
    "damaged or cut off": lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:900]),
    "no source.spm": lambda f: (f / "source.spm").unlink(),
    "not a SentencePiece model": lambda f: (f / "source.spm").write_bytes(b"no model"),
    "no vocab.json": lambda f: (f / "vocab.json").unlink(),
    "has no </s>": lambda f: (f / "vocab.json").write_text('{"<unk>": 0, "<pad>": 1}', "utf-8"),
}


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theirs") / "marian"
    make_marian(folder)
    return folder


@pytest.mark.parametrize("reason", BROKEN)
def test_what_cannot_be_imported_is_refused_in_one_line(reason, marian, tmp_path, here):
    folder = tmp_path / "theirs"
    shutil.copytree(marian, folder)
    BROKEN[reason](folder)
    done = here("import", folder, "--out", tmp_path / "ours", "--no-check")
    assert_one_line(done, reason)
    assert not (tmp_path / "ours").exists()


def test_a_pickle_that_runs_code_is_not_run(marian, tmp_path, here):
    folder = tmp_path / "theirs"
    shutil.copytree(marian, folder)
    (folder / "model.safetensors").unlink()

    class Harm:
        def __reduce__(self):
            return open, (str(tmp_path / "harm"), "w")

    torch.save({"model.shared.weight": Harm()}, folder / "pytorch_model.bin")
    assert_one_line(here("import", folder, "--out", tmp_path / "ours", "--no-check"), "holds more than tensors")
    assert not (tmp_path / "harm").exists()


def test_the_languages_of_a_model_have_to_be_chosen(tmp_path):
    make_m2m100(tmp_path / "theirs")
    for pairs, reason in (([], "--pair fr-en"), (["fr"], "is no language pair"), (["fr-xx"], "know the language xx")):
        with pytest.raises(UserError, match=reason):
            import_model(str(tmp_path / "theirs"), tmp_path / "ours", pairs)


def test_languages_are_those_of_transformers():
    from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES

    assert MBART_LANGUAGES == FAIRSEQ_LANGUAGE_CODES


def test_a_wrong_import_would_be_seen(marian, tmp_path, monkeypatch):
    """The check compares what was written, not what was read."""
    from anydepth.model import hf_translation

    plain = hf_translation.feature_order
    monkeypatch.setattr(hf_translation, "feature_order", lambda width: torch.arange(width))
    with pytest.raises(UserError, match="does not translate as transformers does"):
        import_model(str(marian), tmp_path / "ours")
    monkeypatch.setattr(hf_translation, "feature_order", plain)
    assert not (tmp_path / "ours").exists()

"""Training that starts from an imported translation model."""

import pytest
import torch
from conftest import assert_one_line, write_corpus
from made_translators import make_m2m100, make_marian, make_mbart

from anydepth import Translator
from anydepth.artifact.model import load_model
from anydepth.data import Batch
from anydepth.data.shards import PairStore
from anydepth.export.importing import import_model
from anydepth.objectives.cross_entropy import cross_entropy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def opus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imported")
    make_marian(folder / "theirs")
    import_model(str(folder / "theirs"), folder / "opus", ["fr-en"])
    return folder / "opus"


def test_the_loss_has_the_output_bias(opus):
    """Against logits of the model, with plain autograd, and the gradients of matrix and bias."""
    model = load_model(opus).model.float()
    rows = [[7, 12, 9], [30, 8]]
    batch = Batch.from_rows(rows, [[11, 5, 6, 40], [9]])
    real = batch.target_out.flatten() != 0
    with torch.no_grad():
        memory = model.memory(model.encode(batch.source, model.full, batch.source_padding)[-1])
        states = model.decode(batch.target_in, memory, model.full, batch.source_padding)
        features = model.features(states[-1]).flatten(0, 1)[real]
    wanted = batch.target_out.flatten()[real]
    model.zero_grad()
    weight = torch.full((1, len(wanted)), 1 / len(wanted))
    found = cross_entropy(*model.output_product(features[None]), wanted, weight, 0.1)
    found.total.backward()
    ours = model.output.weight.grad.clone(), model.output.bias.grad.clone()
    model.zero_grad()
    expected = torch.nn.functional.cross_entropy(model.output(features), wanted, label_smoothing=0.1)
    expected.backward()
    assert torch.allclose(found.total, expected, atol=1e-5)
    for one, other in zip(ours, (model.output.weight.grad, model.output.bias.grad), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert float(ours[1].abs().max()) > 0.01


def recipe(folder, init_from, objective="{name: tied-multi}"):
    source, target = write_corpus(folder, 200)
    text = f"""
init_from: {init_from}
data:
  source_language: fr
  target_language: en
  train: {{source: {source}, target: {target}}}
  valid: {{source: {source}, target: {target}}}
  max_tokens: 40
objective: {objective}
train: {{steps: 30, batch_tokens: 300, learning_rate: 2.0e-3, warmup: 2, valid_sentences: 10, valid_every: 30,
  threads: 1}}
"""
    (folder / "recipe.yaml").write_text(text, "utf-8")
    return folder / "recipe.yaml"


def test_an_imported_model_becomes_anydepth(opus, tmp_path, here):
    """Tied-Multi from it: every depth translates, on torch and natively, and the loss has gone down."""
    done = here("train", recipe(tmp_path, opus), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    trained = Translator.load(tmp_path / "run", engine="torch")
    assert len(trained.menu) == 6
    assert trained.loaded.config == load_model(opus).config
    texts = ["le chat dort.", "un grand chien voit le petit oiseau."]
    for name in trained.menu.names:
        assert len(trained.translate(texts, depth=name, max_length=8)) == 2
    assert trained.translate(texts, depth="3-2") != Translator.load(opus, engine="torch").translate(texts)
    native = Translator.load(tmp_path / "run", engine="native")
    assert len(native.translate(texts, depth="1-1")) == 2
    sides = [trained.tokenizer.encode_many(texts), trained.tokenizer.encode_targets(texts)]
    assert sides[0] != sides[1]  # each side of a Marian model is split by rules of its own

    done = here("export", tmp_path / "run", "--to", "transformers", "--depth", "2-1", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr


def test_a_translation_model_has_to_be_imported_first(opus, tmp_path, here):
    path = recipe(tmp_path, opus.parent / "theirs")
    assert_one_line(here("train", path, "--out", tmp_path / "run"), "anydepth import")


def test_a_model_of_several_languages_is_trained_with_their_tokens(tmp_path, here):
    make_m2m100(tmp_path / "theirs", nllb=True)
    import_model(str(tmp_path / "theirs"), tmp_path / "nllb", ["fra_Latn-eng_Latn", "eng_Latn-por_Latn"])
    path = recipe(tmp_path, tmp_path / "nllb")
    assert_one_line(here("train", path, "--out", tmp_path / "run"), "not fr-en")
    languages = ["--set", "data.source_language=fra_Latn", "--set", "data.target_language=eng_Latn"]
    done = here("train", path, "--out", tmp_path / "run", *languages)
    assert done.returncode == 0, done.stderr
    done = here("train", path, "--out", tmp_path / "run", *languages)  # which has finished: nothing is refused
    assert done.returncode == 0, done.stderr
    trained = Translator.load(tmp_path / "run", engine="torch")
    (pair,) = trained.pairs
    assert (pair.tag, pair.target_tag) == ("fra_Latn", "eng_Latn")
    assert trained.loaded.first_output == trained.tokenizer.symbol_id("eng_Latn")
    prepared = PairStore(tmp_path / "run" / "data", "train")
    source, target = prepared.pair(0)
    assert source[0] == trained.tokenizer.symbol_id("fra_Latn")
    assert target[0] == trained.loaded.first_output
    begun = Translator.load(tmp_path / "nllb", engine="torch").between("fra_Latn", "eng_Latn")
    text = ["le chat dort."]
    assert trained.translate(text, depth="3-2", max_length=9) != begun.translate(text, max_length=9)
    assert len(trained.translate(text, depth="1-1", max_length=9)) == 1


def test_tokens_at_the_end_of_sources_are_refused(tmp_path, here):
    make_mbart(tmp_path / "theirs", old=True)
    import_model(str(tmp_path / "theirs"), tmp_path / "mbart", ["fr_XX-ro_RO"])
    path = recipe(tmp_path, tmp_path / "mbart")
    assert_one_line(here("train", path, "--out", tmp_path / "run"), "at the end")

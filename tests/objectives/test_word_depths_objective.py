"""The loss of a model whose words have depths of their own."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from anydepth.config import HaltingConfig, ModelConfig, TeacherConfig, TiedMultiConfig, WordDepthsConfig
from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.objectives import make_distillation, make_objective

SIZES = {"width": 16, "heads": 2, "ffn": 24, "dropout": 0.0, "max_length": 32}
CLASSIFIER = ModelConfig(**SIZES, encoder_layers=3, decoder_layers=0)
TRANSLATOR = ModelConfig(**SIZES, encoder_layers=3, decoder_layers=2)
SOURCES = [[5, 6, 7, 8], [9, 10], [11, 12, 13]]
DEPTHS = torch.tensor([[1, 2, 1, 1, 2], [1, 1, 1, 0, 0], [2, 1, 2, 1, 0]])
NO_DECODER = ("decoder.norm.weight", "decoder.norm.bias")  # all that is left of one without layers
BY_WORD = WordDepthsConfig(name="word-depths")


@pytest.fixture
def classifier() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CLASSIFIER, 40, classes=3)


@pytest.fixture
def texts() -> Batch:
    return replace(Batch.from_rows(SOURCES, [[0], [2], [1]], labelled=True), depths=DEPTHS)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_of_what_the_model_gives_at_these_depths(classifier, texts, smoothing):
    objective = make_objective(BY_WORD, CLASSIFIER, smoothing, seed=1, classifies=True)
    loss = objective(classifier, texts, step=1)
    states = classifier.encode(texts.source, SubNetwork.words(3, 0), texts.source_padding, depths=DEPTHS)
    logits = classifier.output(classifier.read_out(states[-1], texts.source_padding))
    torch.testing.assert_close(loss.total, F.cross_entropy(logits, texts.labels, label_smoothing=smoothing))
    torch.testing.assert_close(loss.parts["nll"], F.cross_entropy(logits, texts.labels).detach())


def test_depths_matter(classifier, texts):
    objective = make_objective(BY_WORD, CLASSIFIER, 0.0, seed=1, classifies=True)
    deeper = replace(texts, depths=torch.where(DEPTHS > 0, 3, 0))
    assert abs(objective(classifier, texts, 1).total - objective(classifier, deeper, 1).total) > 1e-4


def test_a_layer_that_nobody_reaches_has_gradient_zero_rather_than_none(classifier, texts):
    make_objective(BY_WORD, CLASSIFIER, 0.0, seed=1, classifies=True)(classifier, texts, step=1).total.backward()
    layers = classifier.encoder.layers
    assert all(p.grad is not None and p.grad.eq(0).all() for p in layers[2].parameters())
    assert all(p.grad.ne(0).any() for p in layers[1].parameters())
    assert all(p.grad is not None for name, p in classifier.named_parameters() if name not in NO_DECODER)


def test_a_translation_learns_from_tokens_at_their_depths():
    torch.manual_seed(1)
    model = Transformer(TRANSLATOR, 40)
    batch = replace(Batch.from_rows(SOURCES, [[20, 21], [22], [23, 24, 25]]), depths=DEPTHS)
    loss = make_objective(BY_WORD, TRANSLATOR, 0.1, seed=1)(model, batch, step=1)
    sub = SubNetwork.words(3, 2)
    memory = model.memory(model.encode(batch.source, sub, batch.source_padding, depths=DEPTHS)[-1])
    logits = model.output(model.features(model.decode(batch.target_in, memory, sub, batch.source_padding)[-1]))
    expected = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=0, label_smoothing=0.1)
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=1e-6)
    loss.total.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert all(p.grad.eq(0).all() for p in model.encoder.layers[2].parameters())


def test_the_menu_has_the_words_alone():
    assert make_objective(BY_WORD, TRANSLATOR, 0.1, seed=1).menu().names == ["3-2-words"]
    assert make_objective(BY_WORD, CLASSIFIER, 0.1, seed=1, classifies=True).menu().names == ["3-0-words"]


@pytest.mark.parametrize("weights", ["uniform", "linear"])
@pytest.mark.parametrize("mode", ["exact", "sampled"])
def test_tied_multi_on_an_encoder_alone_is_the_mean_over_its_exits(classifier, texts, weights, mode):
    config = TiedMultiConfig(name="tied-multi", mode=mode, weights=weights)
    objective = make_objective(config, CLASSIFIER, 0.1, seed=1, classifies=True)
    shares = {"uniform": [1 / 3] * 3, "linear": [1 / 6, 2 / 6, 3 / 6]}[weights]
    expected = torch.zeros(())
    for depth, share in enumerate(shares, 1):
        state = classifier.encode(texts.source, SubNetwork.prefix(depth, 0), texts.source_padding)[-1]
        logits = classifier.output(classifier.read_out(state, texts.source_padding))
        expected = expected + share * F.cross_entropy(logits, texts.labels, label_smoothing=0.1)
    loss = objective(classifier, texts, step=1)
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=1e-6)
    used = [p for name, p in classifier.named_parameters() if name not in NO_DECODER]
    mine, theirs = (torch.autograd.grad(total, used) for total in (loss.total, expected))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert objective.menu().names == ["1-0", "2-0", "3-0"]


def test_the_deepest_exit_teaches_the_others_of_a_classifier(classifier, texts):
    config = TiedMultiConfig(name="tied-multi", mode="exact")
    objective = make_objective(config, CLASSIFIER, 0.0, seed=1, classifies=True)
    objective.teaching = make_distillation(TeacherConfig(model="self", method="rkd", eta=0.4), None, objective)
    states = classifier.encode(texts.source, SubNetwork.prefix(3, 0), texts.source_padding)
    logits = [classifier.output(classifier.read_out(state, texts.source_padding)) for state in states]
    taught = F.softmax(logits[-1].detach(), dim=-1)
    shallow = [0.6 * F.cross_entropy(one, texts.labels) + 0.4 * F.cross_entropy(one, taught) for one in logits[:-1]]
    expected = (sum(shallow) + F.cross_entropy(logits[-1], texts.labels)) / 3
    torch.testing.assert_close(objective(classifier, texts, step=1).total, expected, rtol=1e-5, atol=1e-6)


def test_the_unit_is_for_classification():
    with pytest.raises(UserError, match="objective halting is for classification"):
        make_objective(HaltingConfig(name="halting"), TRANSLATOR, 0.1, seed=1)
    with pytest.raises(UserError, match="objective halting is for classification"):
        make_objective(HaltingConfig(name="halting"), CLASSIFIER, 0.1, seed=1)

"""Drafts change the time that a translation takes, never the translation."""

import pytest
from conftest import toy_pairs
from random_models import random_translator

import anydepth
from anydepth.artifact.model import LoadedModel
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.core import NativeModel
from anydepth.engines.native import NativeEngine
from anydepth.engines.native_format import packed
from anydepth.engines.torch import TorchEngine
from anydepth.errors import UserError
from anydepth.infer.translator import Translator, on_engine

TEXTS = [source for source, _ in toy_pairs(1000, seed=3)]


@pytest.fixture(scope="module")
def toy(toy_run):
    return anydepth.load(toy_run, engine="torch")


def test_a_thousand_sentences_come_out_the_same_to_the_bit(toy):
    plain, drafting = NativeModel(packed(toy.model)), NativeModel(packed(toy.model))
    sub, options = toy.menu["2-2"].subnetwork, SearchOptions()
    for number, text in enumerate(TEXTS):
        batch = SearchBatch([toy.as_read(toy.tokenizer.encode(text))], [30])
        found = drafting.search(sub, batch, options, draft_layers=1, draft_length=number % 7 + 2)
        assert found == plain.search(sub, batch, options)
    counts = drafting.speculation
    assert counts["drafted"] > 2000
    assert counts["accepted"] / counts["drafted"] > 0.5
    assert counts["tokens"] > 1.5 * counts["passes"]


@pytest.mark.parametrize("changes", [{}, {"decoder_shared": "all"}, {"residual": "dlcl"}, {"norm": "post"}])
def test_drafts_that_are_mostly_wrong_do_no_harm(toy, changes):
    """Weights are random: depths agree on next to nothing."""
    model = random_translator(toy.tokenizer, decoder_layers=3, **changes).model
    plain, drafting = NativeModel(packed(model)), NativeModel(packed(model))
    sub = SubNetwork.prefix(2, 3)
    for number, text in enumerate(TEXTS[:60]):
        source = toy.as_read(toy.tokenizer.encode(text))
        for limit in (30, 3, 1):
            batch, options = SearchBatch([source], [limit]), SearchOptions(length_penalty=0.3, min_length=number % 3)
            draft = {"draft_layers": number % 2 + 1, "draft_length": number % 7 + 2}
            assert drafting.search(sub, batch, options, **draft) == plain.search(sub, batch, options)
    assert drafting.speculation["accepted"] < drafting.speculation["drafted"]


def test_drafting_as_it_pays_gives_the_same(toy):
    """A deep decoder of shared weights, whose first layer drafts: whether it pays, the engine decides by itself."""
    model = random_translator(toy.tokenizer, decoder_layers=8, decoder_shared="all", ffn=8192).model
    menu = DepthMenu.of([SubNetwork.prefix(2, m) for m in (1, 8)])
    translator = Translator(LoadedModel(model, toy.tokenizer, menu), TorchEngine(model))
    plain, drafting = on_engine(translator, "native", 1), on_engine(translator, "native", 2, speculate=True)
    for options in ({}, {"max_length": 3}, {"batch_size": 7}):
        together = {"depth": "2-8", "batch_size": 1} | options
        assert drafting.hypotheses(TEXTS[:80], **together) == plain.hypotheses(TEXTS[:80], **together)
    assert isinstance(drafting.engine, NativeEngine)
    assert drafting.engine.native.speculation["drafted"] > 0


def test_drafts_come_from_the_shallowest_depth_that_the_asked_one_begins_with(toy):
    def layers(*subs: SubNetwork, of: SubNetwork) -> int:
        model = random_translator(toy.tokenizer, decoder_layers=3).model
        native = NativeModel(packed(model))
        return NativeEngine(native, model.config, DepthMenu.of([*subs, of]), 1).draft_layers(of)

    deep = SubNetwork((0, 1), (0, 1, 2))
    assert layers(SubNetwork((0, 1), (0, 1)), SubNetwork((0, 1), (0,)), of=deep) == 1
    assert layers(SubNetwork((0,), (0,)), SubNetwork((0, 1), (1,)), of=deep) == 0
    soft = SubNetwork((0, 1), (0, 1, 2), None, (0.5, 0.25, 1.0))
    assert layers(SubNetwork((0, 1), (0,)), of=soft) == 0
    assert layers(SubNetwork((0, 1), (0, 1), None, (0.5, 0.25)), of=soft) == 2


def test_other_engines_have_no_drafts(toy):
    for engine in ("torch", "ctranslate2"):
        with pytest.raises(UserError, match=r"speculate=True is for engine=.native."):
            on_engine(toy, engine, speculate=True)

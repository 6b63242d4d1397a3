"""CTranslate2 behind the Translator gives what PyTorch gives."""

import math
import shutil
from pathlib import Path

import pytest
from conftest import toy_pairs
from random_models import SIZES, TEXTS, random_translator

import anydepth
from anydepth.artifact.model import LoadedModel
from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.torch import TorchEngine
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import calibrate
from anydepth.evaluate.experiment import RunOptions
from anydepth.infer.translator import Translator, on_engine
from anydepth.model import Transformer
from anydepth.selectors.calibration import save

KINDS = {
    "plain": {},
    "gelu": {"activation": "gelu"},
    "gelu-tanh": {"activation": "gelu-tanh"},
    "as Marian": {"activation": "swish", "norm": "post", "embedding_norm": False},
    "as M2M100": {"positions": "fairseq"},
    "norm of embeddings": {"embedding_norm": True, "positions": "learned", "scale_embeddings": True},
    "rezero": {"residual": "rezero"},
    "norm after": {"norm": "post", "norm_epsilon": 1e-3},
    "learnt positions": {"positions": "learned", "token_types": 2},
    "recurrent": {"encoder_shared": "all", "decoder_shared": "all"},
    "three tables": {"share_embeddings": "none"},
}


@pytest.fixture(scope="module")
def toy(toy_run):
    return anydepth.load(toy_run, engine="torch")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_finds_the_same_tokens(toy, kind):
    ours = random_translator(toy.tokenizer, **KINDS[kind])
    theirs = on_engine(ours, "ctranslate2", 2)
    for depth in ours.menu.names:
        expected, found = (one.hypotheses(TEXTS, depth=depth) for one in (ours, theirs))
        assert [[(h.tokens, h.ended) for h in each] for each in found] == [
            [(h.tokens, h.ended) for h in each] for each in expected
        ]
        for (one,), (other,) in zip(expected, found, strict=True):
            assert math.isclose(one.score, other.score, rel_tol=1e-3, abs_tol=1e-3)


def test_a_trained_model_has_the_same_nbest_lists_and_scores(toy):
    theirs = on_engine(toy, "ctranslate2", 1)
    for depth in toy.menu.names:
        expected, found = (one.hypotheses(TEXTS[:4], depth=depth, beam=4, nbest=2) for one in (toy, theirs))
        assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in expected]
        for one, other in zip(expected, found, strict=True):
            assert [h.score for h in other] == pytest.approx([h.score for h in one], abs=2e-3)


def test_limits_and_long_lines_are_the_same(toy):
    theirs = on_engine(toy, "ctranslate2", 2)
    for options in ({"max_length": 2}, {"max_length": 1}, {"max_source": 3, "cut_long": True}):
        expected, found = (one.hypotheses(TEXTS, **options) for one in (toy, theirs))
        assert [[(h.tokens, h.ended) for h in each] for each in found] == [
            [(h.tokens, h.ended) for h in each] for each in expected
        ]
    with pytest.raises(UserError, match="the limit is"):
        theirs.translate(["le chat " * 100])


def test_depths_of_each_text_and_every_depth_at_once(toy):
    theirs = on_engine(toy, "ctranslate2", 2)
    depths = ["1-1", "2-2", "1-2", "2-1", "1-1"]
    assert theirs.translate(TEXTS, depth=depths) == toy.translate(TEXTS, depth=depths)
    assert [[h.text for (h, *_) in each] for each in theirs.every_depth(TEXTS, batch_size=2).values()] == [
        [h.text for (h, *_) in each] for each in toy.every_depth(TEXTS).values()
    ]


def test_int8_translates_the_toy_language_as_well(toy):
    theirs = on_engine(toy, "ctranslate2", 1, "int8")
    assert theirs.engine.name == "ctranslate2 int8"
    assert theirs.translate(["le chat dort.", "un chien voit le chat."]) == ["the cat sleeps.", "a dog sees the cat."]


def test_loading_with_an_engine(toy_run):
    loaded = anydepth.Translator.load(toy_run, engine="ctranslate2", quantize="int8")
    assert (loaded.engine.name, loaded.translate(["le chat dort."])) == ("ctranslate2 int8", ["the cat sleeps."])
    with pytest.raises(UserError, match="classifies"):
        anydepth.load(Path(__file__).parents[1] / "golden" / "classifier", engine="ctranslate2")


@pytest.mark.slow
def test_a_tag_goes_with_the_source(two_targets_run):
    both = anydepth.load(two_targets_run, engine="torch")
    loud = on_engine(both.between(target="loud"), "ctranslate2", 1)
    assert loud.translate(["le chat dort."]) == ["THE CAT SLEEPS."]


@pytest.mark.parametrize(
    ("changes", "sub", "reason"),
    [
        ({"norm": "none", "residual": "rezero"}, SubNetwork.prefix(3, 2), "no norms"),
        ({"residual": "dlcl"}, SubNetwork.prefix(3, 2), "reads all those before it"),
        ({}, SubNetwork.words(3, 2), "each word has its own depth"),
    ],
)
def test_what_it_cannot_run_is_refused_with_the_reason(toy, changes, sub, reason):
    model = Transformer(ModelConfig(**SIZES | changes), toy.tokenizer.vocabulary_size).eval()
    theirs = on_engine(
        Translator(LoadedModel(model, toy.tokenizer, DepthMenu.of([sub])), TorchEngine(model)), "ctranslate2", 1
    )
    with pytest.raises(UserError, match=reason):
        theirs.translate(["le chat."])


def test_a_calibration_is_of_one_engine(toy_run, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(toy_run / "model", folder)
    ours = anydepth.load(folder, engine="torch")
    theirs = on_engine(ours, "ctranslate2", 1)
    sources, references = zip(*toy_pairs(12), strict=True)
    save(calibrate(theirs, sources, references, RunOptions(repeats=1, batch_size=4)), folder, theirs.fingerprint)
    chosen = theirs.within_budget("10s")
    assert theirs.translate(["le chat dort."], depth=chosen) == ["the cat sleeps."]
    assert chosen.depth in ours.menu.names
    with pytest.raises(UserError, match="calibrated on this machine: beam 1, 1 threads, cpu, ctranslate2"):
        ours.within_budget("10s")


def test_unknown_engines_and_types_are_refused(toy):
    with pytest.raises(UserError, match="no engine 'tensorrt'; choose one of auto, native, ctranslate2, torch"):
        on_engine(toy, "tensorrt")
    with pytest.raises(UserError, match=r"no compute type int3; it has: .*int8"):
        on_engine(toy, "ctranslate2", 1, "int3")
    with pytest.raises(UserError, match=r"is for engine=.native. or engine=.ctranslate2."):
        on_engine(toy, "torch", 1, "int8")

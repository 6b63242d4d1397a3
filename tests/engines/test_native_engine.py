"""The native engine gives what PyTorch gives, up to int8; and to the bit what it gives itself in another way."""

import math
import os
import shutil
from itertools import product

import numpy as np
import pytest
import torch
from conftest import python, toy_pairs
from random_models import SIZES, TEXTS, random_translator

import anydepth
from anydepth.artifact.model import LoadedModel
from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.core import NativeModel, kernels
from anydepth.engines.native_format import _quantized_int4, packed
from anydepth.engines.search import never, run_search
from anydepth.engines.torch import TorchEngine
from anydepth.errors import UserError
from anydepth.infer.translator import Translator, on_engine
from anydepth.model import Transformer
from anydepth.model.layers import round_int4

KINDS = {
    "plain": {},
    "gelu": {"activation": "gelu"},
    "gelu-tanh": {"activation": "gelu-tanh"},
    "as Marian": {"activation": "swish", "norm": "post", "embedding_norm": False, "output_bias": True},
    "as M2M100": {"positions": "fairseq"},
    "norm of embeddings": {"embedding_norm": True, "positions": "learned", "scale_embeddings": True},
    "rezero": {"residual": "rezero"},
    "no norms": {"norm": "none", "residual": "rezero"},
    "dense": {"residual": "dlcl"},
    "norm after": {"norm": "post", "norm_epsilon": 1e-3},
    "learnt positions": {"positions": "learned", "token_types": 2},
    "recurrent": {"encoder_shared": "all", "decoder_shared": "all"},
    "partly recurrent": {"encoder_shared": (1, 2, 1)},
    "three tables": {"share_embeddings": "none"},
    "odd sizes": {"width": 36, "heads": 6, "ffn": 50},
}
FAST = [name for name in ("avx512-vnni", "avx-vnni", "avx2", "neon-i8mm", "neon-dot", "neon", "plain") if kernels(name)]


@pytest.fixture(scope="module")
def toy(toy_run):
    return anydepth.load(toy_run, engine="torch")


def quantized(model: Transformer) -> Transformer:
    """The model with the weights that the core has: int8 matrices, and embeddings in 16 bits."""
    with torch.no_grad():
        tables = {id(table.weight) for table in model.tables}
        for name, weight in model.named_parameters():
            if weight is model.output.weight:
                step = (weight.abs().amax(dim=1, keepdim=True) / 127 / 254).clamp_min(1e-30)
                weight.copy_((weight / step).round() * step)
            elif id(weight) in tables and "positions" not in name and "types" not in name:
                weight.copy_(weight.half().float())
            elif weight.ndim == 2 and "embedding" not in name:
                scale = (weight.abs().amax(dim=1, keepdim=True) / 127).clamp_min(1e-30)
                weight.copy_((weight / scale).round() * scale)
    return model


def logits_of_torch(model: Transformer, sub: SubNetwork, source: list[int], target: list[int]) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.tensor([source]), torch.tensor([target]), sub)[0].numpy()


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_the_logits_of_torch(toy, kind, name):
    ours = random_translator(toy.tokenizer, **KINDS[kind])
    native = NativeModel(packed(ours.model), name)
    source, target = toy.as_read(toy.tokenizer.encode("le chat dort.")), [Tokenizer.BOS, 9, 5, 17, 4, 30]
    for entry in ours.menu:
        expected = logits_of_torch(ours.model, entry.subnetwork, source, target)
        found = native.logits(entry.subnetwork, source, target, ours.model.vocabulary, len(target))
        off = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert off < 0.06, (entry.name, off)


def test_what_is_left_of_the_error_is_that_of_activations(toy):
    """With weights that int8 holds exactly, fast and plain kernels agree with torch more closely than with others."""
    ours = random_translator(toy.tokenizer)
    source, target = toy.as_read(toy.tokenizer.encode("un grand chien.")), [Tokenizer.BOS, 9, 5, 17]
    sub = ours.menu["3-2"].subnetwork
    native = NativeModel(packed(ours.model))
    found = native.logits(sub, source, target, ours.model.vocabulary, 4)
    before = logits_of_torch(ours.model, sub, source, target)
    after = logits_of_torch(quantized(ours.model), sub, source, target)
    assert np.linalg.norm(found - after) < np.linalg.norm(found - before)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("kind", ["plain", "gelu", "odd sizes", "recurrent"])
def test_int4_has_the_weights_that_training_simulates(toy, kind, name):
    """And rows do not depend on how many are computed together, though that decides how weights are read."""
    ours = random_translator(toy.tokenizer, **KINDS[kind])
    native = NativeModel(packed(ours.model, int4=True), name)
    source, target = toy.as_read(toy.tokenizer.encode("un grand chien.")), [Tokenizer.BOS, *range(4, 21)]
    sub, vocabulary = ours.menu.whole[ours.menu.names[0]].subnetwork, ours.model.vocabulary
    found = native.logits(sub, source, target, vocabulary, len(target))
    before = logits_of_torch(ours.model, sub, source, target)
    ours.model.configure_layers(int4=True)
    after = logits_of_torch(ours.model, sub, source, target)
    assert np.linalg.norm(found - after) < 0.7 * np.linalg.norm(found - before)
    assert np.linalg.norm(found - after) / np.linalg.norm(after) < 0.06
    for rows in (1, 4, 9):
        np.testing.assert_array_equal(native.logits(sub, source, target, vocabulary, rows), found)


def test_int4_is_packed_as_it_is_simulated():
    torch.manual_seed(2)
    for outputs, inputs in ((5, 3), (48, 72), (16, 256)):
        weight = torch.randn(outputs, inputs) * torch.rand(outputs, 1)
        weight[0] = 0.0
        weight[-1, :32] = 1e-4  # of a group with far smaller weights than the others of its output
        scales, factors, whole = _quantized_int4(weight.numpy())
        steps = (scales[:, None] * factors).repeat(32, axis=1)
        np.testing.assert_allclose(round_int4(weight).numpy(), (steps * whole)[:, :inputs], rtol=1e-5, atol=1e-12)
        assert np.abs(whole * factors.repeat(32, axis=1)).max() <= 120
    weight = torch.randn(4, 64, requires_grad=True)
    round_int4(weight).square().sum().backward()
    assert torch.equal(weight.grad, 2 * round_int4(weight).detach())


@pytest.mark.parametrize("name", [name for name in FAST if name != "plain"])
def test_fast_kernels_agree_with_the_plain_ones(toy, name):
    """Integers are exact; floats are added up in another order."""
    for kind in ("plain", "gelu", "odd sizes", "dense"):
        ours = random_translator(toy.tokenizer, **KINDS[kind])
        data = packed(ours.model)
        source, target = toy.as_read(toy.tokenizer.encode("le petit oiseau.")), [Tokenizer.BOS, 9, 5, 17, 4, 30, 8]
        sub = ours.menu["3-2"].subnetwork
        plain, fast = (
            NativeModel(data, one).logits(sub, source, target, ours.model.vocabulary, 3) for one in ("plain", name)
        )
        assert np.linalg.norm(plain - fast) / np.linalg.norm(plain) < 0.02


@pytest.mark.parametrize("name", FAST)
def test_several_positions_in_a_pass_give_the_bits_of_one_at_a_time(toy, name):
    ours = random_translator(toy.tokenizer, width=64, ffn=200)
    native = NativeModel(packed(ours.model), name)
    source = toy.as_read(toy.tokenizer.encode("un grand chien voit le petit oiseau."))
    target = [Tokenizer.BOS, *np.random.default_rng(1).integers(4, ours.model.vocabulary, 30).tolist()]
    for entry in ours.menu:
        one = native.logits(entry.subnetwork, source, target, ours.model.vocabulary, 1)
        for at_once in (2, 3, 4, 5, 7, 13, 31):
            assert np.array_equal(one, native.logits(entry.subnetwork, source, target, ours.model.vocabulary, at_once))


@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_does_not_depend_on_its_batch(toy, beam):
    native = on_engine(random_translator(toy.tokenizer), "native", 1)
    texts = [source for source, _ in toy_pairs(30, seed=5)]
    options = {"beam": beam, "nbest": beam, "scores": True}
    for depth in native.menu.names:
        alone, together = (native.hypotheses(texts, depth=depth, batch_size=size, **options) for size in (1, 30))
        assert alone == together


@pytest.mark.parametrize("name", [FAST[0], "plain"])
@pytest.mark.parametrize("beam", [1, 3])
def test_threads_that_share_a_call_find_the_same(toy, beam, name):
    """One sentence, few and many: products are shared by outputs and rows, attention by heads, then whole sentences."""
    ours = random_translator(toy.tokenizer, width=192, heads=3, ffn=400)
    native = NativeModel(packed(ours.model), name)
    sub, rng = ours.menu["3-2"].subnetwork, np.random.default_rng(3)
    for count, length in ((1, 40), (1, 3), (3, 20), (11, 12)):
        sources = [[*rng.integers(4, ours.model.vocabulary, length + i).tolist(), Tokenizer.EOS] for i in range(count)]
        depths = [rng.integers(1, 4, len(source)).tolist() for source in sources]
        batch, options = SearchBatch(sources, [20] * count), SearchOptions(beam=beam, nbest=beam, scores=True)
        found = []
        for threads in (1, 2, 3):
            native.set_threads(threads)
            found.append([native.search(sub, batch, options, one) for one in (None, depths)])
        assert found[0] == found[1] == found[2]
    with pytest.raises(UserError, match="threads"):
        native.set_threads(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_goes_on_without_the_threads(toy):
    ours = random_translator(toy.tokenizer, width=192, heads=3, ffn=400)
    native = NativeModel(packed(ours.model))
    native.set_threads(2)
    sub, batch = ours.menu["3-2"].subnetwork, SearchBatch([[*range(4, 40), Tokenizer.EOS]], [20])
    expected = native.search(sub, batch, SearchOptions(scores=True))
    child = os.fork()
    if child == 0:
        same = native.search(sub, batch, SearchOptions(scores=True)) == expected
        del native
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_a_trained_model_finds_the_same_with_scores(toy, beam):
    native = on_engine(toy, "native", 2)
    texts = [*TEXTS[:4], *(source for source, _ in toy_pairs(40, seed=8))]
    for depth in toy.menu.names:
        expected, found = (one.hypotheses(texts, depth=depth, beam=beam, nbest=beam) for one in (toy, native))
        same = [one[0].tokens == other[0].tokens for one, other in zip(expected, found, strict=True)]
        assert sum(same) >= 0.9 * len(texts), depth
        for one, other in zip(expected, found, strict=True):
            assert len(one) == len(other)
            assert [h.score for h in other] == sorted((h.score for h in other), reverse=True)
            assert math.isclose(one[0].score, other[0].score, abs_tol=0.2)  # what differs is as good


def test_beam_search_is_that_of_torch_on_the_same_numbers(toy):
    """The search of `infer/` over the core's own logits: whole lists are the same."""
    ours = random_translator(toy.tokenizer)
    native = NativeModel(packed(ours.model))
    texts = ["le chat dort.", "un grand chien voit le petit oiseau.", "zut !"]
    for entry in ours.menu:
        for text, options in product(
            texts,
            (
                SearchOptions(beam=3, nbest=3, length_penalty=0.6),
                SearchOptions(beam=4, nbest=2, length_penalty=0.0, min_length=3),
                SearchOptions(beam=1, length_penalty=1.0),
            ),
        ):
            source = toy.as_read(toy.tokenizer.encode(text))
            steps = StepsOfCore(native, entry.subnetwork, source, ours.model.vocabulary)
            (expected,) = run_search(steps, [9], options)
            (found,) = native.search(entry.subnetwork, SearchBatch([source], [9]), options)
            assert [(one.tokens, one.ended) for one in found] == [(one.tokens, one.ended) for one in expected]
            assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-3)


class StepsOfCore:
    """`Steps` of one sentence whose logits the core computes, from the beginning at each step."""

    device = torch.device("cpu")

    def __init__(self, native: NativeModel, sub: SubNetwork, source: list[int], vocabulary: int) -> None:
        self.native, self.sub, self.source, self.vocabulary = native, sub, source, vocabulary
        self.prefixes: list[list[int]] = [[]]
        self.ran: list[int] = []

    def step(self, tokens_r: torch.Tensor) -> torch.Tensor:
        rows = list(zip(self.prefixes, tokens_r.tolist(), strict=True))
        self.prefixes = [[*prefix, token] for prefix, token in rows]
        logits = [self.native.logits(self.sub, self.source, p, self.vocabulary, 1)[-1] for p in self.prefixes]
        self.ran = [len(self.sub.decoder)] * len(rows)
        return never(torch.from_numpy(np.stack(logits)))

    def keep_rows(self, rows: torch.Tensor) -> None:
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    def keep_sentences(self, sentences: torch.Tensor) -> None:
        pass


def test_the_score_of_greedy_search_is_that_of_its_logits(toy):
    native = NativeModel(packed(toy.model))
    sub, source = toy.menu["2-2"].subnetwork, toy.as_read(toy.tokenizer.encode("le chat dort."))
    (found,) = native.search(sub, SearchBatch([source], [20]), SearchOptions(length_penalty=0.0))[0]
    wanted = [*found.tokens, Tokenizer.EOS]
    logits = native.logits(sub, source, [Tokenizer.BOS, *found.tokens], toy.model.vocabulary, 1).astype(np.float64)
    logits[:, : Tokenizer.EOS] = -np.inf
    scores = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    assert found.score == pytest.approx(scores[range(len(wanted)), wanted].sum(), abs=1e-4)


def test_limits_and_long_lines_are_the_same(toy):
    native = on_engine(toy, "native", 2)
    for options in ({"max_length": 2}, {"max_length": 1}, {"max_source": 3, "cut_long": True}):
        expected, found = (one.hypotheses(TEXTS, **options) for one in (toy, native))
        assert [[h.ended for h in each] for each in found] == [[h.ended for h in each] for each in expected]
        assert [[len(h.tokens) for h in each] for each in found] == [[len(h.tokens) for h in each] for each in expected]
    with pytest.raises(UserError, match="the limit is"):
        native.translate(["le chat " * 100])


def test_every_word_at_its_own_depth_runs_on_the_words_that_are_left(toy):
    """By the sub-network in which each token runs as many layers: with all at the same depth it is that depth."""
    model = random_translator(toy.tokenizer).model
    native = NativeModel(packed(model))
    sub, prefix = SubNetwork.words(3, 2), SubNetwork.prefix(2, 2)
    sources = [toy.as_read(toy.tokenizer.encode(text)) for text in ("le chat dort.", "un grand chien.")]
    batch, options = SearchBatch(sources, [12, 12]), SearchOptions()
    same = native.search(sub, batch, options, [[2] * len(source) for source in sources])
    assert same == native.search(prefix, batch, options)
    depths = [[1 + i % 3 for i in range(len(source))] for source in sources]
    found = native.search(sub, batch, options, depths)
    assert found != same
    states = model.encode(torch.tensor([sources[0]]), sub, depths=torch.tensor([depths[0]]))
    with torch.inference_mode():
        memory = model.memory(states[-1])
        first = model.output(model.features(model.decode(torch.tensor([[Tokenizer.BOS]]), memory, sub)[-1]))[0, 0]
    assert int(first[Tokenizer.EOS + 1 :].argmax()) + Tokenizer.EOS + 1 == found[0][0].tokens[0]


@pytest.mark.parametrize(
    ("changes", "sub", "reason"),
    [
        ({"residual": "dlcl"}, SubNetwork.words(3, 2), "with dlcl"),
        ({"halting": True}, SubNetwork.prefix(3, 2), "halt by a unit"),
    ],
)
def test_what_it_cannot_run_is_refused_and_auto_takes_another(toy, changes, sub, reason):
    model = Transformer(ModelConfig(**SIZES | changes), toy.tokenizer.vocabulary_size).eval()
    translator = Translator(LoadedModel(model, toy.tokenizer, DepthMenu.of([sub])), TorchEngine(model))
    with pytest.raises(UserError, match=reason):
        on_engine(translator, "native", 1).translate(["le chat."])
    assert on_engine(translator, "auto", 1).engine.name != "native"


def test_auto_is_native_where_that_runs(toy):
    assert on_engine(toy, "auto").engine.name == "native"
    assert on_engine(toy, "auto", quantize="int8").engine.name == "native"
    assert on_engine(toy, "auto", quantize="float32").engine.name == "ctranslate2"
    with pytest.raises(UserError, match="computes in int8, not float16"):
        on_engine(toy, "native", quantize="float16")


def test_a_copy_of_a_model_folder_needs_nothing_else(toy_run, tmp_path):
    shutil.copytree(toy_run / "model", tmp_path / "model")
    loaded = anydepth.load(tmp_path / "model", engine="native")
    assert loaded.translate(["le chat dort.", "un chien voit le chat."]) == ["the cat sleeps.", "a dog sees the cat."]


@pytest.mark.parametrize(
    ("missing", "engine"), [(["native._core"], "ctranslate2 int8"), (["native._core", ""], "torch")]
)
@pytest.mark.slow
def test_where_it_was_not_built_auto_takes_another_and_doctor_says_so(toy_run, missing, engine):
    """As after an installation without a compiler, and with CTranslate2 or without it."""
    script = f"""
import sys
sys.modules["anydepth.engines._core"] = None
if {"" in missing}:
    sys.modules["ctranslate2"] = None
import anydepth
from anydepth.artifact.model import LoadedModel
from anydepth.export.doctor import Findings, _engines
loaded = anydepth.load({str(toy_run)!r}, engine="auto")
print(loaded.engine.name, loaded.translate(["le chat dort."])[0])
found = Findings()
_engines(found)
print(found.facts["engines and extras"]["native"], [line for line in found.advice if "compiler" in line])
try:
    anydepth.load({str(toy_run)!r}, engine="native")
except anydepth.UserError as error:
    print(error)
"""
    done = python(script)
    first, second, third = done.stdout.splitlines()
    assert first == f"{engine} the cat sleeps."
    assert "missing" in second
    assert "needs a C++ compiler" in second
    assert "was not built" in third

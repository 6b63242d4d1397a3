import itertools

import pytest
import torch

from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import SearchOptions, length_penalty
from anydepth.engines.search import SMALL, largest
from anydepth.engines.torch import search
from anydepth.model import Transformer

EOS, BOS = Tokenizer.EOS, Tokenizer.BOS
SOURCES = [[5, 6, 7, 8, 9, EOS], [10, EOS], [11, 12, 13, EOS], [14, 15, EOS], [6, 7, EOS]]


def make_model(vocabulary: int = 30, seed: int = 3) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(
        width=16, heads=2, ffn=32, encoder_layers=2, decoder_layers=2, max_length=40, share_embeddings="none"
    )
    model = Transformer(config, vocabulary).eval()
    with torch.no_grad():
        model.output.weight *= 3  # sharper choices: an untrained model is nearly undecided
        model.output.weight[EOS] *= 4  # and ends now and then
    return model


@torch.no_grad()
def compute_score(
    model: Transformer, sub: SubNetwork, source: list[int], tokens: tuple[int, ...], ended: bool
) -> float:
    """The log-probability of an output by one uncached pass, over the tokens that search may generate."""
    target = [*tokens, EOS] if ended else [*tokens]
    logits = model(torch.tensor([source]), torch.tensor([[BOS, *target[:-1]]]), sub)[0]
    logits[:, :EOS] = float("-inf")
    return float(logits.log_softmax(-1)[range(len(target)), target].sum())


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("sub", [e.subnetwork for e in DepthMenu.every_prefix(2, 2)], ids=lambda s: s.name)
def test_a_score_equals_the_scorers(beam, sub):
    model = make_model()
    limits = [12] * len(SOURCES)
    found = search(model, sub, SOURCES, limits, SearchOptions(beam=beam, nbest=beam, length_penalty=0.6))
    ends = 0
    for source, candidates in zip(SOURCES, found, strict=True):
        assert len(candidates) == beam
        assert [c.score for c in candidates] == sorted((c.score for c in candidates), reverse=True)
        assert len({c.tokens for c in candidates}) == beam
        for one in candidates:
            ended = len(one.tokens) < 12
            ends += ended
            length = len(one.tokens) + ended
            expected = compute_score(model, sub, source, one.tokens, ended) / length_penalty(length, 0.6)
            assert one.score == pytest.approx(expected, abs=1e-4)
    assert ends > 0 or len(sub.decoder) == 1  # otherwise only cut-off outputs were tested


@pytest.mark.parametrize("beam", [1, 3])
def test_output_does_not_depend_on_the_rest_of_the_batch(beam):
    model = make_model()
    limits = [2 * len(source) + 5 for source in SOURCES]
    options = SearchOptions(beam=beam, nbest=beam)
    together = search(model, model.full, SOURCES, limits, options)
    assert len({len(found[0].tokens) for found in together}) > 1  # some leave the batch before others
    for source, limit, found in zip(SOURCES, limits, together, strict=True):
        alone = search(model, model.full, [source], [limit], options)[0]
        assert [c.tokens for c in alone] == [c.tokens for c in found]
        assert [c.score for c in alone] == pytest.approx([c.score for c in found], abs=1e-4)


def test_a_wide_beam_finds_the_best_of_all_outputs():
    """Against brute force: a vocabulary of 3 words, outputs of at most 3 words."""
    model = make_model(vocabulary=7, seed=2)
    source, words = [5, 6, EOS], (4, 5, 6)
    outputs = [o for n in range(4) for o in itertools.product(words, repeat=n)]
    scores = {o: compute_score(model, model.full, source, o, True) / length_penalty(len(o) + 1, 0.6) for o in outputs}
    best = max(scores, key=lambda o: scores[o])
    with torch.no_grad():
        found = search(model, model.full, [source], [4], SearchOptions(beam=27, nbest=27, min_length=0))[0]
    ended = [c for c in found if len(c.tokens) < 4]
    assert ended[0].tokens == best
    assert ended[0].score == pytest.approx(scores[best], abs=1e-4)


def test_beam_is_at_least_as_good_as_greedy():
    model = make_model()
    limits = [15] * len(SOURCES)
    one = search(model, model.full, SOURCES, limits, SearchOptions(beam=1, length_penalty=0.0))
    four = search(model, model.full, SOURCES, limits, SearchOptions(beam=8, length_penalty=0.0))
    better = [b[0].score - a[0].score for a, b in zip(one, four, strict=True)]
    assert min(better) > -1e-4  # true of these; a beam may in general lose what greedy search found
    assert max(better) > 0


@pytest.mark.parametrize("beam", [1, 4])
def test_limits_hold_and_nothing_special_is_generated(beam):
    model = make_model()
    limits = [1, 2, 3, 4, 5]
    found = search(model, model.full, SOURCES, limits, SearchOptions(beam=beam, nbest=beam))
    for limit, candidates in zip(limits, found, strict=True):
        for one in candidates:
            assert len(one.tokens) <= limit
            assert all(token > EOS for token in one.tokens)


@pytest.mark.parametrize("beam", [1, 4])
def test_what_has_ended_is_what_eos_came_for(beam):
    """A score counts EOS or does not: only one of the two agrees with the scorer."""
    model = make_model()
    limits = [6, 7, 8, 9, 10]
    options = SearchOptions(beam=beam, nbest=beam, length_penalty=0.0)
    kinds = set()
    for source, limit, candidates in zip(
        SOURCES, limits, search(model, model.full, SOURCES, limits, options), strict=True
    ):
        for one in candidates:
            kinds.add(one.ended)
            assert one.ended == (len(one.tokens) < limit)
            assert one.score == pytest.approx(compute_score(model, model.full, source, one.tokens, one.ended), abs=1e-4)
            assert one.score != pytest.approx(
                compute_score(model, model.full, source, one.tokens, not one.ended), abs=1e-3
            )
    assert kinds == {True, False}


@pytest.mark.parametrize("beam", [1, 2])
def test_minimum_length(beam):
    model = make_model()
    options = SearchOptions(beam=beam, min_length=8)
    found = search(model, model.full, SOURCES, [8] * 5, options)
    assert [len(c[0].tokens) for c in found] == [8] * 5


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_no_output_is_empty_even_if_the_model_would_rather_end(beam):
    model = make_model()
    with torch.no_grad():
        model.decoder.norm.bias += 1
        model.output.weight[EOS] += 1  # in favour of EOS, whatever the state
    willing = search(model, model.full, SOURCES, [8] * 5, SearchOptions(beam=beam, min_length=0))
    assert [candidates[0].tokens for candidates in willing] == [()] * 5
    found = search(model, model.full, SOURCES, [8] * 5, SearchOptions(beam=beam))
    for source, candidates in zip(SOURCES, found, strict=True):
        best = candidates[0]
        assert best.ended
        assert len(best.tokens) >= 1
        expected = compute_score(model, model.full, source, best.tokens, True)
        assert best.score * length_penalty(len(best.tokens) + 1, 0.6) == pytest.approx(expected, abs=1e-4)


def test_gnmt_penalty_by_hand():
    assert length_penalty(7, 0.6) == pytest.approx(2**0.6)
    assert length_penalty(20, 0.0) == 1.0


@pytest.mark.parametrize("vocabulary", [64 * 40, 32 * 77, 16 * 99, 1003])
def test_largest_is_topk(vocabulary):
    x = torch.randn(2 * SMALL // vocabulary, vocabulary, generator=torch.Generator().manual_seed(1))
    x[:, :3] = float("-inf")
    values, indices = largest(x, 8)
    expected = x.topk(8, dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)

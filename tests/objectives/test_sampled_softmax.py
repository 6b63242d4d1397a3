import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from anydepth.config import Recipe
from anydepth.objectives import sampled_softmax as module
from anydepth.objectives.cross_entropy import cross_entropy
from anydepth.objectives.sampled_softmax import sample_vocabulary, sampled_cross_entropy
from anydepth.training.build import make_recipe_objective

CPU = torch.device("cpu")


def made(exits=2, rows=150, vocabulary=40):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(exits, rows, 8, generator=generator, requires_grad=True)
    matrix = torch.randn(vocabulary, 8, generator=generator, requires_grad=True)
    target = torch.randint(0, vocabulary, (rows,), generator=generator)
    return features, matrix, target, torch.rand(exits, rows, generator=generator)


def test_a_sample_has_the_first_and_some_of_the_others():
    sample = sample_vocabulary(40, 12, 1, 7, CPU)
    ids = sample.ids_k.tolist()
    assert ids[:6] == [0, 1, 2, 3, 4, 5]
    assert len(set(ids)) == 12
    assert min(ids[6:]) >= 6
    torch.testing.assert_close(sample.log_count_k, torch.tensor([0.0] * 6 + [math.log(34 / 6)] * 6))
    assert all(sample.index_v[one] == (ids.index(one) if one in ids else 12) for one in range(40))
    assert sample_vocabulary(40, 12, 1, 7, CPU).ids_k.tolist() == ids
    assert sample_vocabulary(40, 12, 1, 8, CPU).ids_k.tolist() != ids


@pytest.mark.parametrize("chunk_elements", [64, 2**22])
def test_equals_autograd_over_the_same_subwords(monkeypatch, chunk_elements):
    """References in the sample and out of it, in one chunk and in many."""
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk_elements)
    features, matrix, target, weight = made()
    sample = sample_vocabulary(40, 12, 1, 7, CPU)
    found = sampled_cross_entropy(features, matrix, target, weight, sample)
    ours = torch.autograd.grad(3 * found.total, [features, matrix])

    logits = features @ matrix.T
    counts = torch.zeros(40).scatter(0, sample.ids_k, sample.log_count_k.exp())
    counts_rv = counts.expand(len(target), -1).scatter(1, target[:, None], 1.0)
    nll = (logits.exp() * counts_rv).sum(dim=-1).log() - logits.gather(2, target[None, :, None].expand(2, -1, 1))[
        ..., 0
    ]
    theirs = torch.autograd.grad(3 * (weight * nll).sum(), [features, matrix])
    torch.testing.assert_close(found.nll_er, nll)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_all_subwords_are_the_softmax_itself():
    features, matrix, target, weight = made()
    sampled = sampled_cross_entropy(features, matrix, target, weight, sample_vocabulary(40, 40, 1, 7, CPU))
    exact = cross_entropy(features, matrix, target, weight, 0.0)
    torch.testing.assert_close(sampled.nll_er, exact.nll_er)
    for mine, other in zip(*(torch.autograd.grad(x.total, [features, matrix]) for x in (sampled, exact)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_the_sum_is_right_in_expectation():
    """Over many steps the mean of the sums below the softmax is that of the whole vocabulary."""
    features, matrix, target, weight = made(exits=1, rows=20)
    with torch.no_grad():
        logits = features[0] @ matrix.T
        of_target = logits.gather(1, target[:, None])[:, 0]
        sums = [
            (
                sampled_cross_entropy(features, matrix, target, weight, sample_vocabulary(40, 20, 1, step, CPU)).nll_er[
                    0
                ]
                + of_target
            ).exp()
            for step in range(2000)
        ]
    np.testing.assert_allclose(torch.stack(sums).mean(dim=0), logits.exp().sum(dim=-1), rtol=0.05)


def test_a_recipe_turns_it_on():
    data = {"source_language": "fr", "target_language": "en", "train": {"tsv": "x.tsv"}}
    recipe = Recipe.model_validate({"data": data, "train": {"sampled_softmax": 60, "label_smoothing": 0}})
    assert make_recipe_objective(recipe).sampled_softmax == 60


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"train": {"sampled_softmax": 100}}, "train.label_smoothing=0"),
        ({"train": {"sampled_softmax": 100, "label_smoothing": 0}, "teacher": {"model": "self"}}, "without teacher"),
    ],
)
def test_it_is_for_references_alone(changed, said):
    data = {"source_language": "fr", "target_language": "en", "train": {"tsv": "x.tsv"}}
    with pytest.raises(ValidationError, match=said):
        Recipe.model_validate({"data": data, **changed})

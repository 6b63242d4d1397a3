import pytest
import torch
import torch.nn.functional as F

from anydepth.objectives import cross_entropy as module
from anydepth.objectives.cross_entropy import cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk_elements", [64 * 23, 2**22])
def test_equals_torch_with_gradients_in_one_chunk_and_in_many(monkeypatch, smoothing, chunk_elements):
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk_elements)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(150, 16, generator=generator, requires_grad=True)
    matrix = torch.randn(23, 16, generator=generator, requires_grad=True)
    target = torch.randint(0, 23, (150,), generator=generator)
    weight = torch.rand(150, generator=generator)

    total, nll = cross_entropy(features, matrix, target, weight, smoothing)
    ours = torch.autograd.grad(3 * total, [features, matrix])
    rows = F.cross_entropy(features @ matrix.T, target, reduction="none", label_smoothing=smoothing)
    theirs = torch.autograd.grad(3 * (weight * rows).sum(), [features, matrix])

    torch.testing.assert_close(total, (weight * rows).sum())
    torch.testing.assert_close(nll, F.cross_entropy(features @ matrix.T, target, reduction="none"))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_works_without_gradient():
    with torch.no_grad():
        total, nll = cross_entropy(torch.ones(2, 3), torch.ones(5, 3), torch.tensor([0, 1]), torch.ones(2), 0.0)
    torch.testing.assert_close(total, 2 * torch.tensor(5.0).log())
    torch.testing.assert_close(nll, torch.tensor(5.0).log().expand(2))

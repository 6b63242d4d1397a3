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
    matrix = torch.nn.Parameter(torch.ones(5, 3))
    with torch.no_grad():
        total, nll = cross_entropy(torch.ones(2, 3), matrix, torch.tensor([0, 1]), torch.ones(2), 0.0)
    assert not total.requires_grad
    torch.testing.assert_close(total, 2 * torch.tensor(5.0).log())
    torch.testing.assert_close(nll, torch.tensor(5.0).log().expand(2))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_loses_no_more_than_plain_autograd(kind):
    """The weights of a large batch are small numbers: they must not go through the half precision products."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(2000, 32, generator=generator, requires_grad=True)
    matrix = (torch.randn(500, 32, generator=generator) * 0.2).requires_grad_()
    target = torch.randint(0, 100, (2000,), generator=generator)  # many words never occur: tiny gradients
    weight = torch.full((2000,), 1 / 2000 / 36)
    scale = 2.0**16

    def gradient(loss):
        return torch.autograd.grad(loss * scale, [features, matrix])

    exact = gradient((F.cross_entropy(features @ matrix.T, target, reduction="none") * weight).sum())
    with torch.autocast("cpu", dtype=kind):
        ours = gradient(cross_entropy(features, matrix, target, weight, 0.0)[0])
        rows = F.cross_entropy(F.linear(features, matrix), target, reduction="none")
        theirs = gradient((rows * weight).sum())
    for mine, plain, true in zip(ours, theirs, exact, strict=True):
        error = float((mine - true).norm() / true.norm())
        assert error < 1.5 * float((plain - true).norm() / true.norm())
        unseen = float((mine[100:500] - true[100:500]).norm() / true[100:500].norm())
        assert unseen < 0.02

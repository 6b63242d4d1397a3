import pytest
import torch
import torch.nn.functional as F

from anydepth.objectives import cross_entropy as module
from anydepth.objectives.cross_entropy import SoftTargets, cross_entropy


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("temperature", [None, 1.0, 2.0])
@pytest.mark.parametrize(("exits", "chunk_elements"), [(1, 64 * 23), (1, 2**22), (3, 64 * 23)])
def test_equals_torch_with_gradients(monkeypatch, generator, smoothing, temperature, exits, chunk_elements):
    """In one chunk and in many; without a teacher and with one, of another width, that some tokens do without."""
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk_elements)
    features = torch.randn(exits, 150, 16, generator=generator, requires_grad=True)
    matrix = torch.randn(23, 16, generator=generator, requires_grad=True)
    target = torch.randint(0, 23, (150,), generator=generator)
    weight, of_soft = torch.rand(2, exits, 150, generator=generator)
    of_soft[:, ::7] = 0
    weight[:, ::5] = 0  # some learn from the teacher alone, and each 35th from nobody
    taught = torch.randn(150, 8, generator=generator), torch.randn(23, 8, generator=generator)
    soft = None if temperature is None else SoftTargets(*taught, of_soft, temperature)

    found = cross_entropy(features, matrix, target, weight, smoothing, soft)
    ours = torch.autograd.grad(3 * found.total, [features, matrix])
    logits = (features @ matrix.T).flatten(0, 1)
    hard = F.cross_entropy(logits, target.repeat(exits), reduction="none", label_smoothing=smoothing).view(exits, -1)
    expected = (weight * hard).sum()
    if temperature is not None:
        q = (taught[0] @ taught[1].T / temperature).softmax(-1).repeat(exits, 1)
        softly = temperature**2 * F.cross_entropy(logits / temperature, q, reduction="none").view(exits, -1)
        expected = expected + (of_soft * softly).sum()
        torch.testing.assert_close(found.soft_er, softly)
    theirs = torch.autograd.grad(3 * expected, [features, matrix])

    torch.testing.assert_close(found.total, expected)
    torch.testing.assert_close(found.hard_er, hard)
    nll = F.cross_entropy(logits, target.repeat(exits), reduction="none").view(exits, -1)
    torch.testing.assert_close(found.nll_er, nll)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=2e-5)


def test_where_nothing_counts_the_gradient_is_zero(generator):
    features = torch.randn(1, 5, 4, generator=generator, requires_grad=True)
    matrix = torch.randn(7, 4, generator=generator, requires_grad=True)
    nothing = torch.zeros(1, 5)
    soft = SoftTargets(features.detach()[0], matrix.detach(), nothing)
    total = cross_entropy(features, matrix, torch.arange(5), nothing, 0.1, soft).total
    assert all(float(g.abs().sum()) == 0 for g in torch.autograd.grad(total, [features, matrix]))


def test_works_without_gradient():
    matrix = torch.nn.Parameter(torch.ones(5, 3))
    with torch.no_grad():
        found = cross_entropy(torch.ones(1, 2, 3), matrix, torch.tensor([0, 1]), torch.ones(1, 2), 0.0)
    assert not found.total.requires_grad
    torch.testing.assert_close(found.total, 2 * torch.tensor(5.0).log())
    torch.testing.assert_close(found.nll_er, torch.tensor(5.0).log().expand(1, 2))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_loses_no_more_than_plain_autograd(kind, generator):
    """The weights of a large batch are small numbers: they must not go through the half precision products."""
    features = torch.randn(2000, 32, generator=generator, requires_grad=True)
    matrix = (torch.randn(500, 32, generator=generator) * 0.2).requires_grad_()
    target = torch.randint(0, 100, (2000,), generator=generator)  # many words never occur: tiny gradients
    weight = torch.full((2000,), 1 / 2000 / 36)
    scale = 2.0**16

    def gradient(loss):
        return torch.autograd.grad(loss * scale, [features, matrix])

    exact = gradient((F.cross_entropy(features @ matrix.T, target, reduction="none") * weight).sum())
    with torch.autocast("cpu", dtype=kind):
        ours = gradient(cross_entropy(features[None], matrix, target, weight[None], 0.0).total)
        rows = F.cross_entropy(F.linear(features, matrix), target, reduction="none")
        theirs = gradient((rows * weight).sum())
    for mine, plain, true in zip(ours, theirs, exact, strict=True):
        error = float((mine - true).norm() / true.norm())
        assert error < 1.5 * float((plain - true).norm() / true.norm())
        unseen = float((mine[100:500] - true[100:500]).norm() / true[100:500].norm())
        assert unseen < 0.02

"""Cross-entropy over a large vocabulary without ever holding all the logits.

Shapes: r rows (target tokens, or tokens x exits), d width, v vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ELEMENTS = 2**22  # logits held at a time: 16 MiB of float32, large enough for full-speed products


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The gradient is computed in the forward pass, chunk by chunk: as many products as plain autograd needs, no
    recomputation, and one chunk of logits in memory."""

    @staticmethod
    def forward(
        ctx: Any,
        features_rd: Tensor,
        matrix_vd: Tensor,
        target_r: Tensor,
        weight_r: Tensor,
        smoothing: float,
        wants_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        rows, vocabulary = len(features_rd), len(matrix_vd)
        largest = weight_r.max()
        mean_d = matrix_vd.float().mean(dim=0)
        grad_features = torch.empty_like(features_rd) if wants_gradient else None
        grad_matrix = torch.zeros_like(matrix_vd) if wants_gradient else None
        nll_r = torch.empty(rows, dtype=torch.float32, device=features_rd.device)
        total = torch.zeros((), dtype=torch.float32, device=features_rd.device)
        chunk = max(32, CHUNK_ELEMENTS // vocabulary)
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            weight_c1, target_c1 = weight_r[part, None], target_r[part, None]
            logits_cv = F.linear(features_rd[part], matrix_vd).float()
            of_target_c1 = logits_cv.gather(1, target_c1)
            log_p_cv = F.log_softmax(logits_cv, dim=-1)
            nll_c1 = -log_p_cv.gather(1, target_c1)
            nll_r[part] = nll_c1[:, 0]
            # the mean over the vocabulary of -log p, without another pass over it
            smooth_c1 = of_target_c1 + nll_c1 - (features_rd[part].float() * mean_d).sum(dim=1, keepdim=True)
            total += (weight_c1 * ((1 - smoothing) * nll_c1 + smoothing * smooth_c1)).sum()
            if grad_features is None or grad_matrix is None:
                continue
            # d loss / d logits = weight * (p - q), q = one-hot smoothed over the vocabulary. The weights, about one
            # over the tokens of a batch, stay out of the products: in float16 they would leave little of them. What
            # smoothing takes from every word alike is a constant of the products, subtracted after them.
            grad_cv = log_p_cv.exp_()
            grad_cv.scatter_add_(1, target_c1, torch.full_like(nll_c1, smoothing - 1))
            grad_features[part] = (grad_cv @ matrix_vd - smoothing * mean_d) * weight_c1
            grad_matrix += grad_cv.T @ (features_rd[part] * (weight_c1 / largest))
        if grad_matrix is not None:
            grad_matrix *= largest
            grad_matrix -= smoothing / vocabulary * (features_rd.float() * weight_r[:, None]).sum(dim=0)
        ctx.save_for_backward(grad_features, grad_matrix)
        ctx.mark_non_differentiable(nll_r)
        return total, nll_r

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        grad_features, grad_matrix = ctx.saved_tensors
        return grads[0] * grad_features, grads[0] * grad_matrix, None, None, None, None


def cross_entropy(
    features_rd: Tensor, matrix_vd: Tensor, target_r: Tensor, weight_r: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sum over rows of weight x label-smoothed cross-entropy, and each row's plain negative log-likelihood."""
    total, nll_r = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features_rd, matrix_vd, target_r, weight_r, smoothing, torch.is_grad_enabled()
    )
    return total, nll_r

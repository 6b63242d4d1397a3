"""Cross-entropy over a large vocabulary without holding all the logits: with references, and with a teacher.

Shapes: e exits, r target tokens, c those of one chunk, d width, v vocabulary.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ELEMENTS = 2**22  # logits held at a time: 16 MiB of float32, large enough for full-speed products


class SoftTargets(NamedTuple):
    """A teacher's distribution for each target token, as features and output matrix, and the weight of each."""

    features_rd: Tensor
    matrix_vd: Tensor
    weight_er: Tensor
    temperature: float = 1.0


class HardTargets(NamedTuple):
    """The reference of each target token, what it counts at each exit, and the label smoothing."""

    target_r: Tensor
    weight_er: Tensor
    smoothing: float


class CrossEntropy(NamedTuple):
    """`total` has a gradient; the others are for the logs, one value for each exit and token."""

    total: Tensor
    nll_er: Tensor
    hard_er: Tensor  # with label smoothing
    soft_er: Tensor  # with the teacher instead of the references; 0 without one


class _Chunked(torch.autograd.Function):
    """The gradient is computed in the forward pass, chunk by chunk: as many products as plain autograd, no
    recomputation, and one chunk of logits in memory. A chunk has all exits of some tokens, so the teacher's
    distribution of a token is computed once."""

    @staticmethod
    def forward(
        ctx: Any,
        features_erd: Tensor,
        matrix_vd: Tensor,
        hard: HardTargets,
        soft: SoftTargets | None,
        wants_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        target_r, weight_er, smoothing = hard
        (exits, rows, _), vocabulary = features_erd.shape, len(matrix_vd)
        mean_d = matrix_vd.float().mean(dim=0)
        values_3er = torch.zeros(3, exits, rows, dtype=torch.float32, device=features_erd.device)
        grad_features = torch.empty_like(features_erd) if wants_gradient else None
        grad_matrix = torch.zeros_like(matrix_vd) if wants_gradient else None
        # The weights, about one over the tokens of a batch, stay out of the products, which would underflow in float16.
        # Only the split of a token's weight between reference and teacher is inside.
        both_er = weight_er if soft is None else weight_er + soft.weight_er
        tiny = torch.finfo(torch.float32).tiny
        largest = both_er.max().clamp(min=tiny)
        share_er = None if soft is None else weight_er / both_er.clamp(min=tiny)
        chunk = max(1, max(32, CHUNK_ELEMENTS // vocabulary) // exits)
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            features_ecd, target_ec1 = features_erd[:, part], target_r[part, None].expand(exits, -1, -1)
            logits_ecv = F.linear(features_ecd, matrix_vd).float()
            of_target_ec1 = logits_ecv.gather(2, target_ec1)
            log_p_ecv = F.log_softmax(logits_ecv, dim=-1)
            nll_ec1 = -log_p_ecv.gather(2, target_ec1)
            # the mean over the vocabulary of -log p, without another pass over it
            smooth_ec1 = of_target_ec1 + nll_ec1 - (features_ecd.float() * mean_d).sum(dim=-1, keepdim=True)
            values_3er[0, :, part] = nll_ec1[..., 0]
            values_3er[1, :, part] = ((1 - smoothing) * nll_ec1 + smoothing * smooth_ec1)[..., 0]
            taught = None if soft is None else _soft_loss(soft, part, logits_ecv, log_p_ecv)
            if taught is not None:
                values_3er[2, :, part] = taught.loss_ec
            if grad_features is None or grad_matrix is None:
                continue
            share_ec1 = 1.0 if share_er is None else share_er[:, part, None]
            # d loss / d logits = weight * (p - q), q = one-hot smoothed over the vocabulary. What smoothing subtracts
            # from every word is a constant of the products, subtracted after them.
            grad_ecv = log_p_ecv.exp_()
            if taught is not None:
                grad_ecv = taught.blend(grad_ecv, share_ec1)
            grad_ecv.scatter_add_(2, target_ec1, torch.full_like(nll_ec1, smoothing - 1) * share_ec1)
            grad_features[:, part] = (grad_ecv @ matrix_vd - smoothing * mean_d * share_ec1) * both_er[:, part, None]
            scaled_ecd = features_ecd * (both_er[:, part, None] / largest)
            grad_matrix += grad_ecv.flatten(0, 1).T @ scaled_ecd.flatten(0, 1)
        if grad_matrix is not None:
            grad_matrix *= largest
            grad_matrix -= smoothing / vocabulary * (features_erd.float() * weight_er[..., None]).sum(dim=(0, 1))
        ctx.save_for_backward(grad_features, grad_matrix)
        ctx.mark_non_differentiable(values_3er)
        total = (weight_er * values_3er[1]).sum()
        return total if soft is None else total + (soft.weight_er * values_3er[2]).sum(), values_3er

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_features, grad_matrix = ctx.saved_tensors
        return grads[0] * grad_features, grads[0] * grad_matrix, None, None, None


class _SoftLoss(NamedTuple):
    """A chunk's cross-entropy with the teacher, and the parts of its gradient."""

    loss_ec: Tensor
    q_cv: Tensor
    hot_p_ecv: Tensor | None  # the student's, at a temperature other than 1
    temperature: float

    def blend(self, p_ecv: Tensor, share_ec1: Tensor | float) -> Tensor:
        """share x p + (1 - share) x the teacher's d loss / d logits; in place."""
        if self.hot_p_ecv is None:
            return p_ecv.sub_(self.q_cv * (1 - share_ec1))
        taught_ecv = self.hot_p_ecv.sub_(self.q_cv).mul_((1 - share_ec1) * self.temperature)
        return p_ecv.mul_(share_ec1).add_(taught_ecv)


def _soft_loss(soft: SoftTargets, part: slice, logits_ecv: Tensor, log_p_ecv: Tensor) -> _SoftLoss:
    """Cross-entropy with the teacher's distribution (Wu et al. 2020, Eq. 2), both at the temperature.

    Times its square, so that the gradient keeps its size at any temperature (Hinton, Vinyals and Dean 2015).
    """
    temperature = soft.temperature
    taught_cv = F.linear(soft.features_rd[part], soft.matrix_vd).float()
    if temperature == 1.0:
        q_cv = taught_cv.softmax(dim=-1)
        return _SoftLoss(-(q_cv * log_p_ecv).sum(dim=-1), q_cv, None, temperature)
    q_cv = (taught_cv / temperature).softmax(dim=-1)
    log_p_ecv = F.log_softmax(logits_ecv / temperature, dim=-1)
    return _SoftLoss(-(q_cv * log_p_ecv).sum(dim=-1) * temperature**2, q_cv, log_p_ecv.exp(), temperature)


def cross_entropy(
    features_erd: Tensor,
    matrix_vd: Tensor,
    target_r: Tensor,
    weight_er: Tensor,
    smoothing: float,
    soft: SoftTargets | None = None,
) -> CrossEntropy:
    """Sum over exits and tokens of weight x label-smoothed cross-entropy, plus that with the teacher's distribution."""
    total, values_3er = _Chunked.apply(  # type: ignore[no-untyped-call]
        features_erd, matrix_vd, HardTargets(target_r, weight_er, smoothing), soft, torch.is_grad_enabled()
    )
    return CrossEntropy(total, *values_3er)

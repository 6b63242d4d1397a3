"""Cross-entropy over a sample of the vocabulary (Jean et al. 2015, "On Using Very Large Target Vocabulary"), to train
faster where the output layer is most of the work.

An update's softmax is over the first subwords of the vocabulary, which are the most frequent, over others that are
sampled, each counted as often as one in so many was sampled, and over each token's own reference. The sum below the
softmax is right in expectation. The sample depends on (seed, step) alone: processes and resumed runs have the same.

Shapes: e exits, r target tokens, c those of one chunk, d width, v vocabulary, k sample.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anydepth.objectives.cross_entropy import CHUNK_ELEMENTS
from anydepth.rng import keyed_uniform


class VocabularySample(NamedTuple):
    """Subwords, the log of what each counts, and for each of the vocabulary its index in the sample, or k."""

    ids_k: Tensor
    log_count_k: Tensor
    index_v: Tensor


def sample_vocabulary(vocabulary: int, size: int, seed: int, step: int, device: torch.device) -> VocabularySample:
    """Half of it are the first subwords; the others are sampled from the rest without replacement."""
    first = size // 2
    order = np.argsort(keyed_uniform(seed, step, np.arange(first, vocabulary)), kind="stable")
    ids = np.concatenate([np.arange(first), first + np.sort(order[: size - first])])
    log_count = np.zeros(size, dtype=np.float32)
    log_count[first:] = np.log((vocabulary - first) / (size - first))
    index = np.full(vocabulary, size)
    index[ids] = np.arange(size)
    ids_k, log_count_k, index_v = (torch.from_numpy(one).to(device) for one in (ids, log_count, index))
    return VocabularySample(ids_k, log_count_k, index_v)


class _Sampled(torch.autograd.Function):
    """As in cross_entropy.py the gradient is computed in the forward pass, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        features_erd: Tensor,
        matrix_vd: Tensor,
        target_r: Tensor,
        weight_er: Tensor,
        sample: VocabularySample,
    ) -> tuple[Tensor, Tensor]:
        (exits, rows, _), size = features_erd.shape, len(sample.ids_k)
        sampled_kd, index_r = matrix_vd[sample.ids_k], sample.index_v[target_r]
        nll_er = torch.zeros(exits, rows, dtype=torch.float32, device=features_erd.device)
        grad_features, grad_matrix = torch.empty_like(features_erd), torch.zeros_like(matrix_vd)
        grad_sampled, largest = torch.zeros_like(sampled_kd), weight_er.max().clamp(min=torch.finfo(torch.float32).tiny)
        chunk = max(1, max(32, CHUNK_ELEMENTS // size) // exits)
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            features_ecd, own_cd = features_erd[:, part], matrix_vd[target_r[part]]
            logits_eck = torch.empty(*features_ecd.shape[:2], size + 1, dtype=torch.float32, device=nll_er.device)
            products_eck = features_ecd @ sampled_kd.T
            product_dtype = products_eck.dtype
            logits_eck[..., :size].copy_(products_eck).add_(sample.log_count_k)
            # A reference that is in the sample too counts once; the last column is for those that are not.
            logits_eck[..., size] = -torch.inf
            own_ec1 = (features_ecd * own_cd).sum(dim=-1, keepdim=True).float()
            index_ec1 = index_r[part, None].expand(exits, -1, -1)
            logits_eck.scatter_(2, index_ec1, own_ec1)
            p_eck = torch.softmax(logits_eck, dim=-1)
            own_ec1 = p_eck.gather(2, index_ec1)
            nll_er[:, part] = -own_ec1[..., 0].clamp(min=torch.finfo(torch.float32).tiny).log()
            # d loss / d logits = weight * (p - 1), of the reference apart, whose vector is its own
            own_ec1 = own_ec1 - 1
            p_eck.scatter_(2, index_ec1, 0.0)
            p_eck = p_eck[..., :size].to(product_dtype)  # once for both products
            weight_ec1 = weight_er[:, part, None]
            grad_features[:, part] = (p_eck @ sampled_kd + own_ec1 * own_cd) * weight_ec1
            scaled_ecd = features_ecd * (weight_ec1 / largest)
            grad_sampled += p_eck.flatten(0, 1).T @ scaled_ecd.flatten(0, 1)
            grad_matrix.index_add_(0, target_r[part], (own_ec1 * scaled_ecd).sum(dim=0))
        grad_matrix.index_add_(0, sample.ids_k, grad_sampled)
        ctx.save_for_backward(grad_features, grad_matrix.mul_(largest))
        ctx.mark_non_differentiable(nll_er)
        return (weight_er * nll_er).sum(), nll_er

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_features, grad_matrix = ctx.saved_tensors
        return grads[0] * grad_features, grads[0] * grad_matrix, None, None, None


class SampledCrossEntropy(NamedTuple):
    """`total` has a gradient; the other has a value for each exit and token."""

    total: Tensor
    nll_er: Tensor


def sampled_cross_entropy(
    features_erd: Tensor, matrix_vd: Tensor, target_r: Tensor, weight_er: Tensor, sample: VocabularySample
) -> SampledCrossEntropy:
    """Sum over exits and tokens of weight x cross-entropy, with the softmax over the sample."""
    found = _Sampled.apply(features_erd, matrix_vd, target_r, weight_er, sample)  # type: ignore[no-untyped-call]
    return SampledCrossEntropy(*found)

"""Gates on layers: sampling, means and losses (Li et al. 2020, Section 2).

A gate is a two-class Gumbel-Softmax, which is a sigmoid with logistic noise. `logits_l` are its parameters, 0 for a
probability of 1/2. Shapes: l layers, n language pairs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

QUANTILES = 4096  # of the noise, for the mean of a gate
MARGIN = 1e-12  # keeps the noise finite
CERTAIN = 1e-6  # the least distance of a prior from 0 and from 1


def logistic_noise(uniform: Tensor) -> Tensor:
    """The difference of two Gumbel variables, from uniform numbers in double precision."""
    uniform = uniform.clamp(MARGIN, 1 - MARGIN)
    return uniform.log() - (-uniform).log1p()


def sample(logits: Tensor, noise: Tensor, tau: float, *, hard: bool = False) -> Tensor:
    """Gates in (0, 1) (Eq. 5); if `hard`, 0 or 1 with the gradient of the soft ones."""
    soft = torch.sigmoid((logits + noise) / tau)
    return (soft > 0.5).to(soft.dtype) + soft - soft.detach() if hard else soft


def mean_gate(logits: Tensor, tau: float, *, hard: bool = False) -> Tensor:
    """The mean of the samples over evenly spaced quantiles of the noise, without random numbers.

    For hard samples it is the probability of 1; for soft ones it is nearer to 1/2.
    """
    if hard:
        return torch.sigmoid(logits.double())
    uniform = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
    return sample(logits.double()[..., None], logistic_noise(uniform), tau).mean(-1)


def beta_prior(a: float, b: float) -> float:
    """The mean of a Beta distribution."""
    return min(max(a / (a + b), CERTAIN), 1 - CERTAIN)


def aggregated_prior(logits_nl: Tensor) -> Tensor:
    """The mean posterior of all language pairs, without gradient."""
    return torch.sigmoid(logits_nl).mean(0).detach().clamp(CERTAIN, 1 - CERTAIN)


def divergence(logits: Tensor, prior: Tensor | float) -> Tensor:
    """KL divergence between the Bernoulli posterior and prior of each gate."""
    p, q = torch.as_tensor(prior, dtype=logits.dtype, device=logits.device), torch.sigmoid(logits)
    used = q * (F.logsigmoid(logits) - p.log())
    return used + (1 - q) * (F.logsigmoid(-logits) - (1 - p).log())


def off_target(samples_nl: Tensor, layers: int) -> Tensor:
    """The distance of the number of layers used, averaged over language pairs, from the target K (Eq. 8)."""
    return (samples_nl.mean(0).sum() - layers).abs()


def chosen_layers(logits_l: Tensor, layers: int | None) -> tuple[int, ...]:
    """The K most probable layers (ties: the lowest); without K those more probable than not, at least one."""
    order = torch.sort(logits_l, descending=True, stable=True).indices.tolist()
    count = int((logits_l > 0).sum()) if layers is None else layers
    return tuple(sorted(order[: max(1, count)]))


def ramp(step: int, start: int, steps: int) -> float:
    """Linear from 0 to 1, beginning at update `start`."""
    return min(1.0, max(0.0, (step - start) / steps))


def annealed(step: int, first: float, last: float, steps: int) -> float:
    """From `first` to `last`, exponentially."""
    return float(first * (last / first) ** ramp(step, 0, steps))

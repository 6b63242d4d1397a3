"""What an encoder alone says: which sub-words are hidden, or what a text is about.

Shapes: b batch, s length, d width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.config import ModelConfig


class Transform(nn.Module):
    """What BERT has between its last layer and the output matrix, which is that of the embeddings."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(F.gelu(self.dense(x)))
        return found


def pooled(x_bsd: Tensor, padding_bs: Tensor | None) -> Tensor:
    """ReLU of the largest and of the mean of each feature over a text (Liu et al. 2021, Eq. 6), and a 1: [b, 2d + 1].

    The 1 meets the bias, which so is a column of the output matrix like any other.
    """
    if padding_bs is None:
        largest_bd, mean_bd = x_bsd.amax(1), x_bsd.mean(1)
    else:
        padding_bs1 = padding_bs[:, :, None]
        largest_bd = x_bsd.masked_fill(padding_bs1, float("-inf")).amax(1)
        mean_bd = x_bsd.masked_fill(padding_bs1, 0.0).sum(1) / (~padding_bs1).sum(1)
    return F.pad(torch.relu(torch.cat([largest_bd, mean_bd], dim=1)), (0, 1), value=1.0)

"""A network without hidden units, folded into a row of figures for each sub-word: choosing takes next to no time.

Shapes: v vocabulary, d width, k depths, f figures.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from anydepth.selectors.network import DepthPredictor

Floats = NDArray[np.float32]


class WordScores:
    """What the network gives, computed as the mean of its sub-words' rows plus a share for each figure."""

    @torch.no_grad()
    def __init__(self, network: DepthPredictor) -> None:
        width = network.embedding.weight.shape[1]
        read_kr = network.read_out.weight * network.scale_k[:, None]
        table_vk = network.embedding.weight @ read_kr[:, :width].T * network.root_width
        constant_k = network.offset_k + network.read_out.bias * network.scale_k
        self.figures_fk: Floats | None = None
        if network.config.features:
            shares_fk = read_kr[:, width:].T
            self.figures_fk = (network.figures_scale_f[:, None] * shares_fk).cpu().numpy()
            constant_k = constant_k + network.figures_shift_f @ shares_fk
        self.table_vk: Floats = table_vk.cpu().numpy()
        self.constant_k: Floats = constant_k.cpu().numpy()

    def __call__(self, source: Sequence[int], figures: Sequence[float]) -> Floats:
        """[k]."""
        rows_sk = self.table_vk[source if isinstance(source, list) else list(source)]
        scores_k: Floats = np.add.reduce(rows_sk, axis=0) / len(rows_sk) + self.constant_k
        return scores_k if self.figures_fk is None else scores_k + np.asarray(figures, np.float32) @ self.figures_fk

"""LayerDrop: each batch runs a random sub-network, so any can be cut out of the finished model.

Fan, Grave and Joulin 2020, "Reducing Transformer Depth on Demand with Structured Dropout". With several batches per
update (`train.accumulate`) each samples its own layers.
"""

import numpy as np
import torch

from anydepth.config import LayerDropConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.depth.assignment import Layers, make_menu, spread
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import ForwardOutputs, forward_all
from anydepth.rng import DECODER, ENCODER, keyed_uniform


class LayerDrop(TranslationObjective):
    config: LayerDropConfig
    takes_encoder_alone = True

    def menu(self) -> DepthMenu:
        """Layers spread evenly, at every depth."""
        n, m = self.model_config.encoder_layers, self.model_config.decoder_layers
        encoder = {depth: spread(n, depth) for depth in range(1, n + 1)}
        decoder = {depth: spread(m, depth) for depth in range(min(m, 1), m + 1)}
        return make_menu(encoder, decoder)

    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        sub = self.sample(batch, step)
        return forward_all(model, batch, [sub.encoder], [sub.decoder], torch.ones(1, 1), self.needs_attention)

    def sample(self, batch: Batch, step: int) -> SubNetwork:
        """The layers that this batch runs: one sample per batch, not per sentence, so that dropping layers saves time.

        Processes that share a batch sample the same.
        """
        config, model = self.config, self.model_config
        return SubNetwork(
            self._kept(batch, step, ENCODER, model.encoder_layers, config.encoder_p),
            self._kept(batch, step, DECODER, model.decoder_layers, config.decoder_p),
        )

    def _kept(self, batch: Batch, step: int, side: int, layers: int, p: float) -> Layers:
        if not layers:  # encoder-only
            return ()
        uniform = keyed_uniform(self.seed, step, *batch.place, side, np.arange(layers))
        kept = np.flatnonzero(uniform >= p)
        # At least one layer stays.
        return tuple(int(layer) for layer in kept) if len(kept) else (int(uniform.argmax()),)

"""LayerDrop: each batch runs a random sub-network, so that any may be cut out of the finished model.

Fan, Grave and Joulin 2020, "Reducing Transformer Depth on Demand with Structured Dropout". With several batches per
update (`train.accumulate`) every one draws its own layers.
"""

import numpy as np
import torch

from anydepth.config import LayerDropConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.depth.assignment import Layers, menu_of, spread
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import Passes, run_all
from anydepth.rng import DECODER, ENCODER, keyed_uniform


class LayerDrop(TranslationObjective):
    config: LayerDropConfig
    takes_encoder_alone = True

    def menu(self) -> DepthMenu:
        """Layers spread evenly, at every depth."""
        n, m = self.model_config.encoder_layers, self.model_config.decoder_layers
        encoder = {depth: spread(n, depth) for depth in range(1, n + 1)}
        decoder = {depth: spread(m, depth) for depth in range(min(m, 1), m + 1)}
        return menu_of(encoder, decoder)

    def run(self, model: Transformer, batch: Batch, step: int) -> Passes:
        sub = self.draw(batch, step)
        return run_all(model, batch, [sub.encoder], [sub.decoder], torch.ones(1, 1), self.watches)

    def draw(self, batch: Batch, step: int) -> SubNetwork:
        """The layers that this batch runs: a draw for the batch, not for each sentence, so that leaving out saves time.

        Processes that share a batch draw alike.
        """
        config, model = self.config, self.model_config
        return SubNetwork(
            self._kept(batch, step, ENCODER, model.encoder_layers, config.encoder_p),
            self._kept(batch, step, DECODER, model.decoder_layers, config.decoder_p),
        )

    def _kept(self, batch: Batch, step: int, side: int, layers: int, p: float) -> Layers:
        if not layers:  # an encoder alone
            return ()
        uniform = keyed_uniform(self.seed, step, *batch.place, side, np.arange(layers))
        kept = np.flatnonzero(uniform >= p)
        # A stack without any layer would not be a depth that anyone asks for: the last one to go stays.
        return tuple(int(layer) for layer in kept) if len(kept) else (int(uniform.argmax()),)

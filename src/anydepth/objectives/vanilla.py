"""The plain translation loss of the deepest exit."""

import torch

from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import Passes, run_all


class Vanilla(TranslationObjective):
    takes_encoder_alone = True

    def run(self, model: Transformer, batch: Batch, step: int) -> Passes:
        return run_all(model, batch, [model.full.encoder], [model.full.decoder], torch.ones(1, 1), self.watches)

    def menu(self) -> DepthMenu:
        return DepthMenu.of([SubNetwork.prefix(self.model_config.encoder_layers, self.model_config.decoder_layers)])

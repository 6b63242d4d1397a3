"""The plain translation loss of the deepest exit."""

import torch

from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import ForwardOutputs, forward_all


class Vanilla(TranslationObjective):
    takes_encoder_alone = True

    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        full = model.full
        return forward_all(model, batch, [full.encoder], [full.decoder], torch.ones(1, 1), self.needs_attention)

    def menu(self) -> DepthMenu:
        return DepthMenu.of([SubNetwork.prefix(self.model_config.encoder_layers, self.model_config.decoder_layers)])

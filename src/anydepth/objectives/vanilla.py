"""The plain translation loss of the deepest exit."""

from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer
from anydepth.objectives.base import Loss, TranslationObjective
from anydepth.objectives.losses import translation_loss
from anydepth.text import Batch


class Vanilla(TranslationObjective):
    def forward(self, model: Transformer, batch: Batch, step: int) -> Loss:
        return translation_loss(model, batch, model.full, self.label_smoothing)

    def menu(self) -> DepthMenu:
        return DepthMenu.of([SubNetwork.prefix(self.model_config.encoder_layers, self.model_config.decoder_layers)])

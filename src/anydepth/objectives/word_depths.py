"""Every word runs as many layers as is known beforehand (Liu, Meng, Zhou, Chen and Xu 2021)."""

from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import Passes, run_by_word


class ByWord(TranslationObjective):
    """The plain loss of what the model gives at these depths, which come with each batch."""

    takes_encoder_alone = True

    def run(self, model: Transformer, batch: Batch, step: int) -> Passes:
        return run_by_word(model, batch, self.watches)

    def menu(self) -> DepthMenu:
        return DepthMenu.of([SubNetwork.words(self.model_config.encoder_layers, self.model_config.decoder_layers)])

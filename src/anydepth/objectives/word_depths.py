"""Word depths: each word runs a number of layers known beforehand (Liu, Meng, Zhou, Chen and Xu 2021)."""

from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import ForwardOutputs, forward_by_word


class ByWord(TranslationObjective):
    """The plain loss of the model at these depths, which come with each batch."""

    takes_encoder_alone = True

    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        return forward_by_word(model, batch, self.needs_attention)

    def menu(self) -> DepthMenu:
        return DepthMenu.of([SubNetwork.words(self.model_config.encoder_layers, self.model_config.decoder_layers)])

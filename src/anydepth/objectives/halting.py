"""Halting: a unit after the first layer predicts the depth of each token (Elbayad, Gu, Grave and Auli 2020).

Shapes: e exits, b batch, s length, n encoder layers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from anydepth.config import HaltingConfig, ModelConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import ForwardOutputs, forward_all


class Halting(TranslationObjective):
    """All exits learn to classify; the unit learns, for each token, the first exit that classifies its text correctly.

    All tokens of a text have the same label; their states tell them apart. Most texts are right at the first exit, so
    the most probable depth is 1 almost everywhere: depths are chosen by `confidence` instead.
    """

    config: HaltingConfig
    takes_encoder_alone = True
    only_classifies = True

    @staticmethod
    def adapt_model(config: HaltingConfig, model: ModelConfig) -> ModelConfig:
        return model.model_copy(update={"halting": True, "halting_confidence": config.confidence})

    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        layers = self.model_config.encoder_layers
        encoders = [tuple(range(depth)) for depth in range(1, layers + 1)]
        return forward_all(model, batch, encoders, [()], torch.full((layers, 1), 1 / layers), self.needs_attention)

    def auxiliary_losses(self, model: Transformer, batch: Batch, outputs: ForwardOutputs) -> dict[str, Tensor]:
        assert model.halting is not None
        first_bsd = outputs.encoders[0].states[0]
        wanted_b = first_right_exit(model.output(outputs.features_erd.detach()), batch.wanted)
        logits_bsn = model.halting(first_bsd)
        wanted_bs = wanted_b[:, None].expand(logits_bsn.shape[:2])
        if batch.source_padding is not None:
            logits_bsn, wanted_bs = logits_bsn[~batch.source_padding], wanted_bs[~batch.source_padding]
        return {"unit": self.config.unit * F.cross_entropy(logits_bsn.flatten(0, -2), wanted_bs.flatten())}

    def menu(self) -> DepthMenu:
        """Every exit, and each word at its own depth."""
        layers = self.model_config.encoder_layers
        exits = [SubNetwork.prefix(depth, 0) for depth in range(1, layers + 1)]
        return DepthMenu.of([*exits, SubNetwork.words(layers, 0)])


def first_right_exit(logits_ebc: Tensor, label_b: Tensor) -> Tensor:
    """The index of the first exit with the right class, or of the last if there is none, [b]."""
    right_eb = logits_ebc.argmax(-1) == label_b
    right_eb[-1] = True
    return right_eb.int().argmax(0)

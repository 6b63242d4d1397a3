"""Translators whose weights are random numbers: what they say makes no sense, and has to be the same everywhere."""

import torch

from anydepth.artifact.model import LoadedModel
from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.torch import TorchEngine
from anydepth.infer.translator import Translator
from anydepth.model import Transformer

TEXTS = ["le chat dort.", "", "un grand chien voit le petit oiseau et mange ici.", "le chat.", "zut ! Ça, 42 € ?"]
SIZES = {"width": 32, "heads": 4, "ffn": 48, "encoder_layers": 3, "decoder_layers": 2, "max_length": 40, "dropout": 0.0}
SUBS = (
    SubNetwork.prefix(3, 2),
    SubNetwork.prefix(1, 1),
    SubNetwork((0, 2), (1,)),
    SubNetwork((0, 1, 2), (0, 1), (1.0, 0.5, 0.25), (0.7, 1.2)),
)


def random_translator(tokenizer: Tokenizer, **changes: object) -> Translator:
    """Every parameter has some value of its own: a bias or a norm that is left out would be seen."""
    torch.manual_seed(3)
    model = Transformer(ModelConfig(**SIZES | changes), tokenizer.vocabulary_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    names = ["3-2", "1-1", "2-1", "3-2-soft"]
    menu = DepthMenu.of(SUBS)
    assert menu.names == names
    return Translator(LoadedModel(model, tokenizer, menu, ("fr", "en")), TorchEngine(model))

"""Small untrained models in folders, and a test set for them."""

from pathlib import Path

import torch

from anydepth.artifact import saving
from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.data.tokenizer import TokenizerOptions
from anydepth.depth import DepthMenu
from anydepth.infer.translator import Translator
from anydepth.model import Transformer

SOURCES = [f"number {i} and number {i + 1} make a sum" for i in range(6)]
REFERENCES = [line.upper() for line in SOURCES]


def save_model(folder: Path, layers: int, menu: DepthMenu | None = None) -> Translator:
    """By default good at every prefix."""
    torch.manual_seed(layers)
    config = ModelConfig(width=16, heads=2, ffn=32, encoder_layers=layers, decoder_layers=layers, max_length=64)
    tokenizer = Tokenizer.train(iter(SOURCES * 20), TokenizerOptions(280, sample=1000), seed=1)
    model = Transformer(config, tokenizer.vocabulary_size)
    tensors = {name: value.detach() for name, value in model.named_parameters()}
    menu = menu or DepthMenu.every_prefix(layers, layers)
    saving.save(folder, saving.ModelContent(config, tensors, tokenizer, menu, ("en", "EN")), {})
    return Translator.load(folder, engine="torch", device="cpu")

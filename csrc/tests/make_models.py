"""Writes small random models in the native engine's format, each with its sizes: make_models.py FOLDER [--tiny]"""

import sys
from pathlib import Path

import torch

from anydepth.config import ModelConfig
from anydepth.engines.native_format import packed
from anydepth.model import Transformer

KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "dense": {"residual": "dlcl", "activation": "gelu"},
    "after": {"norm": "post", "activation": "gelu-tanh", "positions": "learned"},
    "recurrent": {"encoder_shared": "all", "decoder_shared": "all", "residual": "rezero", "norm": "none"},
}
SIZES = {"width": 40, "heads": 4, "ffn": 72, "encoder_layers": 2, "decoder_layers": 3, "max_length": 32}
TINY = {"width": 8, "heads": 2, "ffn": 8, "encoder_layers": 2, "decoder_layers": 2, "max_length": 4}


def main() -> None:
    folder, tiny = Path(sys.argv[1]), "--tiny" in sys.argv
    folder.mkdir(parents=True, exist_ok=True)
    for name, changes in KINDS.items():
        torch.manual_seed(1)
        model = Transformer(ModelConfig(**(TINY if tiny else SIZES) | changes), 7 if tiny else 61).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        config = model.config
        (folder / name).write_bytes(packed(model))
        if not tiny:
            sizes = f"{config.encoder_layers} {config.decoder_layers} {model.vocabulary}\n"
            (folder / f"{name}.sizes").write_text(sizes)


if __name__ == "__main__":
    main()

"""Writes small random model files, each with its sizes: make_models.py FOLDER [--tiny]"""

import io
import sys
from pathlib import Path

import numpy as np
import sentencepiece
import torch

from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu
from anydepth.engines.native_format import packed
from anydepth.engines.shortlist import Shortlist
from anydepth.model import Transformer

KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "dense": {"residual": "dlcl", "activation": "gelu"},
    "after": {"norm": "post", "activation": "gelu-tanh", "positions": "learned", "share_embeddings": "none"},
    "recurrent": {"encoder_shared": "all", "decoder_shared": "all", "residual": "rezero", "norm": "none"},
    "int4": {},
    "classifier": {"decoder_layers": 0, "norm": "post", "activation": "gelu", "positions": "learned", "halting": True},
}
SIZES = {"width": 40, "heads": 4, "ffn": 72, "encoder_layers": 2, "decoder_layers": 3, "max_length": 32}
TINY = {"width": 8, "heads": 2, "ffn": 8, "encoder_layers": 2, "decoder_layers": 2, "max_length": 8}
VOCABULARY, CLASSES = 30, 3  # of the one that classifies
TEXT = ["a b c", "the cat sleeps", "the dog sees a small bird", "big birds and black cats", "we read the old book"] * 20


def main() -> None:
    folder, tiny = Path(sys.argv[1]), "--tiny" in sys.argv
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, changes) in enumerate(KINDS.items()):
        torch.manual_seed(1)
        model_config = ModelConfig(**(TINY if tiny else SIZES) | changes)
        model = Transformer(model_config, VOCABULARY, 0 if model_config.decoder_layers else CLASSES).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        config = model.config
        menu = DepthMenu.every_prefix(config.encoder_layers, config.decoder_layers)
        shortlist = Shortlist(
            np.arange(4, 9, dtype=np.int32),
            np.arange(0, 2 * VOCABULARY + 1, 2, dtype=np.int32),
            np.arange(2 * VOCABULARY, dtype=np.int32) * 7 % VOCABULARY,
        )
        tokenizer = train_tokenizer("bpe" if number % 2 else "unigram")
        pairs = [("fr", "en", None), ("fr", "de", 5)][: 1 + number % 2]
        lists = None if number == 1 or model.classes else shortlist
        tags = [] if model.classes else pairs
        data = packed(model, {"depths": menu.to_json()}, tokenizer, lists, None, tags, int4=name == "int4")
        (folder / name).write_bytes(data)
        if not tiny:
            (folder / f"{name}.sizes").write_text(f"{config.encoder_layers} {config.decoder_layers} {VOCABULARY}\n")


def train_tokenizer(kind: str) -> bytes:
    """Without a map for normalization, which would be most of the file."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, model_type=kind, vocab_size=VOCABULARY, pad_id=0, unk_id=1,
        bos_id=2, eos_id=3, normalization_rule_name="identity", minloglevel=2, num_threads=1,
    )  # fmt: skip
    return model.getvalue()


if __name__ == "__main__":
    main()

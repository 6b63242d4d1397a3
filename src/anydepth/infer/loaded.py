"""What everything that runs a model has: the model, its tokenizer, its depths, and the depths of its words."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch

from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.model import Transformer
from anydepth.word_depths.table import TokenDepths


class LoadedModel:
    """`token_depths` are there where a table says how deep each word goes."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        menu: DepthMenu,
        folder: Path | None = None,
        token_depths: TokenDepths | None = None,
    ) -> None:
        self.model, self.tokenizer, self.menu = model, tokenizer, menu
        self.folder, self.token_depths = folder, token_depths

    @property
    def longest_source(self) -> int:
        """In sub-words, leaving room for what begins and ends a text."""
        return self.model.config.max_length - 1 - len(self.tokenizer.opening)

    def as_read(self, ids: Sequence[int]) -> list[int]:
        """The sub-words of a text as the encoder reads them."""
        return [*self.tokenizer.opening, *ids, Tokenizer.EOS]

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of weights, tokenizer and word depths: two models with the same give the same output at the same
        layers."""
        digest = hashlib.sha256(self.tokenizer.to_bytes())
        config = self.model.config
        if (config.encoder_shared, config.decoder_shared) != ("none", "none"):
            digest.update(repr((config.encoder_pattern, config.decoder_pattern)).encode())
        if config.halting:
            digest.update(repr(config.halting_confidence).encode())
        for name, value in self.model.named_parameters():
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        if self.token_depths is not None:
            digest.update(self.token_depths.to_bytes())
        return digest.hexdigest()

    def parameters(self, depth: str | None = None) -> int:
        """How many parameters a depth uses, each counted once."""
        return sum(p.numel() for p in self.model.parameters_of(self.menu[depth].subnetwork))

    def bytes(self, depth: str | None = None) -> int:
        """How much memory those take."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters_of(self.menu[depth].subnetwork))

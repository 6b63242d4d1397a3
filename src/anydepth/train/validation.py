"""Validation: what the trainer asks of it; for translation, likelihood and BLEU with the decoder that users run."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from anydepth.depth import DepthMenu
from anydepth.evaluate.metrics import score
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.objectives.cross_entropy import cross_entropy
from anydepth.objectives.passes import real_positions
from anydepth.text import Batch, Tokenizer
from anydepth.text.corpus import Pair


@dataclass(frozen=True)
class Validation:
    score: float  # decides which model is best, and when to stop
    values: dict[str, Any]  # for the log
    text: str  # for people


class Validator(Protocol):
    def run(self, model: Any) -> Validation: ...


@dataclass
class TranslationValidator:
    """The first of `depths` decides."""

    pairs: list[Pair]
    batches: list[Batch]
    tokenizer: Tokenizer
    menu: DepthMenu
    depths: list[str]

    def __post_init__(self) -> None:
        if not self.depths:
            shallowest = next(iter(self.menu)).name
            self.depths = list(dict.fromkeys([self.menu.deepest.name, shallowest]))
        self.depths = [self.menu[name].name for name in self.depths]

    @torch.no_grad()
    def run(self, model: Transformer) -> Validation:
        was_training = model.training
        model.eval()
        translator = Translator(model, self.tokenizer, self.menu)
        sources = [source for source, _ in self.pairs]
        references = [target for _, target in self.pairs]
        result: dict[str, dict[str, float]] = {"bleu": {}, "nll": {}}
        for depth in self.depths:
            outputs = translator.translate(sources, depth=depth, batch_size=64)
            result["bleu"][depth] = round(score(outputs, references).bleu, 2)
            result["nll"][depth] = round(self._nll(model, depth), 4)
        model.train(was_training)
        scores = "  ".join(f"{depth} {value:.1f}" for depth, value in result["bleu"].items())
        return Validation(result["bleu"][self.depths[0]], result, f"BLEU  {scores}")

    def _nll(self, model: Transformer, depth: str) -> float:
        """The mean over target tokens, in nats."""
        sub, total, tokens = self.menu[depth].subnetwork, 0.0, 0
        for batch in self.batches:
            memory = model.memory(model.encode(batch.source, sub, batch.source_padding)[-1])
            state = model.decode(batch.target_in, memory, sub, batch.source_padding)[-1]
            real_r = real_positions(batch.target_out)
            target_r = batch.target_out.flatten()[real_r]
            features_rd = model.features(state.flatten(0, 1)[real_r])
            every = torch.ones(1, len(real_r), device=features_rd.device)
            total += float(cross_entropy(features_rd[None], model.output.weight, target_r, every, 0.0).total)
            tokens += len(real_r)
        return total / tokens

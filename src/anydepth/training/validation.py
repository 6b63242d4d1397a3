"""Validation: BLEU and likelihood for translation, perplexity for masked language modelling, accuracy for
classification."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Protocol

import torch

from anydepth.artifact.folder import LanguagePair
from anydepth.artifact.model import LoadedModel
from anydepth.data import Batch, Tokenizer
from anydepth.data.corpus import Pair
from anydepth.depth import DepthMenu
from anydepth.engines.torch import TorchEngine
from anydepth.evaluate.metrics import score
from anydepth.evaluate.perplexity import mean_accuracy, mean_nll, to_perplexity
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.word_depths.table import TokenDepths

ByDepth = dict[str, float]  # a value for each depth
DIGITS = {"bleu": 2, "perplexity": 3, "nll": 4, "accuracy": 2}


@dataclass(frozen=True)
class Validation:
    score: float  # higher is better; not finite if the model has diverged
    values: dict[str, Any]  # for the log
    text: str  # for people


class Validator(Protocol):
    def run(self, model: Any) -> Validation: ...


@dataclass(frozen=True)
class ValidationSet:
    """Held-out sentences of a language pair, or texts with their labels, also as batches."""

    pair: str
    pairs: list[Pair]
    batches: list[Batch]
    tag: str | None = None
    target_tag: str | None = None


@dataclass
class TranslationValidator:
    """The first of `depths` decides; with several language pairs, its mean over them. `menu` gives the current menu."""

    sets: list[ValidationSet]
    tokenizer: Tokenizer
    menu: Callable[[], DepthMenu]
    depths: list[str]
    token_depths: TokenDepths | None = None
    decides: ClassVar[str] = "bleu"
    title: ClassVar[str] = "BLEU"
    sign: ClassVar[int] = 1  # -1: lower is better

    def __post_init__(self) -> None:
        menu = self.menu().of_pair(self.sets[0].pair)
        if not self.depths:
            ends = [menu.default.name, menu.deepest.name, menu.names[0]]
            self.depths = list(dict.fromkeys([*ends, *(menu.names if len(menu) == 2 else ())]))
        self.depths = [menu[name].name for name in self.depths]

    @torch.no_grad()
    def run(self, model: Transformer) -> Validation:
        was_training = model.training
        model.eval()
        menu = self.menu()
        found = {one.pair: self._measure(model, one, menu.of_pair(one.pair)) for one in self.sets}
        model.train(was_training)
        if len(found) == 1:
            (one,) = found.values()
            values: dict[str, Any] = dict(one)
            decisive, suffix = one[self.decides], ""
        else:
            by_pair = {name: {pair: one[name] for pair, one in found.items()} for name in next(iter(found.values()))}
            means = {name: _mean(of.values(), DIGITS[name]) for name, of in by_pair.items()}
            values = {name: {**of, "mean": means[name]} for name, of in by_pair.items()}
            each = {pair: one[self.depths[0]] for pair, one in by_pair[self.decides].items()}
            decisive, suffix = means[self.decides], f"  ({self.depths[0]}: {_format(each)})"
        finite = all(math.isfinite(nll) for one in found.values() for nll in one["nll"].values())
        best = self.sign * decisive[self.depths[0]] if finite else math.nan
        return Validation(best, values, f"{self.title}  {_format(decisive)}{suffix}")

    def _measure(self, model: Transformer, held_out: ValidationSet, menu: DepthMenu) -> dict[str, ByDepth]:
        """BLEU and likelihood of one language pair at each depth."""
        pair = LanguagePair("source", "target", held_out.tag, held_out.target_tag)
        loaded = LoadedModel(
            model, self.tokenizer, menu, pairs=(pair,), tag=held_out.tag, token_depths=self.token_depths
        )
        translator = Translator(loaded, TorchEngine(model))
        sources = [source for source, _ in held_out.pairs]
        references = [target for _, target in held_out.pairs]
        result: dict[str, ByDepth] = {"bleu": {}, "nll": {}}
        for depth in self.depths:
            outputs = translator.translate(sources, depth=depth, batch_size=64)
            result["bleu"][depth] = round(score(outputs, references).bleu, DIGITS["bleu"])
            result["nll"][depth] = round(mean_nll(model, menu[depth].subnetwork, held_out.batches), DIGITS["nll"])
        return result


class MaskedValidator(TranslationValidator):
    """The same for masked language modelling: by the perplexity of masked held-out batches."""

    decides, title, sign = "perplexity", "perplexity", -1

    def _measure(self, model: Transformer, held_out: ValidationSet, menu: DepthMenu) -> dict[str, ByDepth]:
        nll = {depth: mean_nll(model, menu[depth].subnetwork, held_out.batches) for depth in self.depths}
        perplexity = {depth: round(to_perplexity(value), DIGITS["perplexity"]) for depth, value in nll.items()}
        return {"perplexity": perplexity, "nll": {depth: round(value, DIGITS["nll"]) for depth, value in nll.items()}}


class ClassValidator(TranslationValidator):
    """The same for classification: by accuracy, in percent."""

    decides, title = "accuracy", "accuracy"

    def _measure(self, model: Transformer, held_out: ValidationSet, menu: DepthMenu) -> dict[str, ByDepth]:
        result: dict[str, ByDepth] = {"accuracy": {}, "nll": {}}
        for depth in self.depths:
            sub = menu[depth].subnetwork
            result["accuracy"][depth] = round(100 * mean_accuracy(model, sub, held_out.batches), DIGITS["accuracy"])
            result["nll"][depth] = round(mean_nll(model, sub, held_out.batches), DIGITS["nll"])
        return result


def _mean(of_pairs: Collection[ByDepth], digits: int) -> ByDepth:
    return {depth: round(fmean(one[depth] for one in of_pairs), digits) for depth in next(iter(of_pairs))}


def _format(values: ByDepth) -> str:
    return "  ".join(f"{name} {value:.1f}" for name, value in values.items())

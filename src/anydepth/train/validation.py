"""Validation: what the trainer asks of it; for translation, likelihood and BLEU with the decoder that users run; for
masked language modelling, perplexity; for classification, accuracy."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Protocol

import torch

from anydepth.data import Batch, Tokenizer
from anydepth.data.corpus import Pair
from anydepth.depth import DepthMenu
from anydepth.evaluate.metrics import score
from anydepth.evaluate.perplexity import accuracy_of, mean_nll, perplexity_of
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.word_depths.token_depths import TokenDepths

Figures = dict[str, float]
DIGITS = {"bleu": 2, "perplexity": 3, "nll": 4, "accuracy": 2}


@dataclass(frozen=True)
class Validation:
    score: float  # decides which model is best, and when to stop; not finite if the model has diverged
    values: dict[str, Any]  # for the log
    text: str  # for people


class Validator(Protocol):
    def run(self, model: Any) -> Validation: ...


@dataclass(frozen=True)
class ValidationSet:
    """Sentences of a language pair that are not trained on, and the same as batches, with the tag if there is one.

    Or texts with their labels."""

    pair: str
    pairs: list[Pair]
    batches: list[Batch]
    tag: str | None = None


@dataclass
class TranslationValidator:
    """The first of `depths` decides; with several language pairs, its mean over them. `menu` says what they are now."""

    sets: list[ValidationSet]
    tokenizer: Tokenizer
    menu: Callable[[], DepthMenu]
    depths: list[str]
    token_depths: TokenDepths | None = None
    decides: ClassVar[str] = "bleu"
    title: ClassVar[str] = "BLEU"
    sign: ClassVar[int] = 1  # -1: less is better

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
        found = {one.pair: self._figures(model, one, menu.of_pair(one.pair)) for one in self.sets}
        model.train(was_training)
        if len(found) == 1:
            (one,) = found.values()
            values: dict[str, Any] = dict(one)
            decisive, said = one[self.decides], ""
        else:
            by_pair = {name: {pair: one[name] for pair, one in found.items()} for name in next(iter(found.values()))}
            means = {name: _mean(of.values(), DIGITS[name]) for name, of in by_pair.items()}
            values = {name: {**of, "mean": means[name]} for name, of in by_pair.items()}
            each = {pair: one[self.depths[0]] for pair, one in by_pair[self.decides].items()}
            decisive, said = means[self.decides], f"  ({self.depths[0]}: {_in_words(each)})"
        finite = all(math.isfinite(nll) for one in found.values() for nll in one["nll"].values())
        best = self.sign * decisive[self.depths[0]] if finite else math.nan
        return Validation(best, values, f"{self.title}  {_in_words(decisive)}{said}")

    def _figures(self, model: Transformer, held_out: ValidationSet, menu: DepthMenu) -> dict[str, Figures]:
        """BLEU and likelihood of one language pair at each depth."""
        translator = Translator(model, self.tokenizer, menu, tag=held_out.tag, token_depths=self.token_depths)
        sources = [source for source, _ in held_out.pairs]
        references = [target for _, target in held_out.pairs]
        result: dict[str, Figures] = {"bleu": {}, "nll": {}}
        for depth in self.depths:
            outputs = translator.translate(sources, depth=depth, batch_size=64)
            result["bleu"][depth] = round(score(outputs, references).bleu, DIGITS["bleu"])
            result["nll"][depth] = round(mean_nll(model, menu[depth].subnetwork, held_out.batches), DIGITS["nll"])
        return result


class MaskedValidator(TranslationValidator):
    """The same for an encoder alone, whose held-out batches are masked: by their perplexity."""

    decides, title, sign = "perplexity", "perplexity", -1

    def _figures(self, model: Transformer, held_out: ValidationSet, menu: DepthMenu) -> dict[str, Figures]:
        nll = {depth: mean_nll(model, menu[depth].subnetwork, held_out.batches) for depth in self.depths}
        perplexity = {depth: round(perplexity_of(value), DIGITS["perplexity"]) for depth, value in nll.items()}
        return {"perplexity": perplexity, "nll": {depth: round(value, DIGITS["nll"]) for depth, value in nll.items()}}


class ClassValidator(TranslationValidator):
    """The same for texts with labels: by the share that is found right, in percent."""

    decides, title = "accuracy", "accuracy"

    def _figures(self, model: Transformer, held_out: ValidationSet, menu: DepthMenu) -> dict[str, Figures]:
        result: dict[str, Figures] = {"accuracy": {}, "nll": {}}
        for depth in self.depths:
            sub = menu[depth].subnetwork
            result["accuracy"][depth] = round(100 * accuracy_of(model, sub, held_out.batches), DIGITS["accuracy"])
            result["nll"][depth] = round(mean_nll(model, sub, held_out.batches), DIGITS["nll"])
        return result


def _mean(of_pairs: Collection[Figures], digits: int) -> Figures:
    return {depth: round(fmean(one[depth] for one in of_pairs), digits) for depth in next(iter(of_pairs))}


def _in_words(figures: Figures) -> str:
    return "  ".join(f"{name} {value:.1f}" for name, value in figures.items())

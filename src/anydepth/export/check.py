"""Whether what was exported translates as its source does."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.evaluate.metrics import score
from anydepth.export.sample import Sample
from anydepth.infer.options import HypothesesKeywords
from anydepth.infer.translator import Hypothesis, Translator
from anydepth.model import Transformer

TIE = 1e-3  # logits closer than this are a tie, which rounding decides


@dataclass(frozen=True)
class Difference:
    """A sentence that came out otherwise. `gap` is how far apart the source model's logits are where they part."""

    source: str
    expected: str
    found: str
    gap: float

    @property
    def is_tie(self) -> bool:
        return self.gap < TIE


@dataclass(frozen=True)
class Check:
    """Greedy translations of a sample at a depth, token for token; BLEU of both where there are references."""

    depth: str
    sample: Sample
    differences: list[Difference]
    bleu: tuple[float, float] | None  # of the source model, and of what was exported
    agreement: float  # BLEU of what was exported against the translations of the source model

    @property
    def same(self) -> int:
        return len(self.sample.sources) - len(self.differences)

    @property
    def wrong(self) -> list[Difference]:
        return [one for one in self.differences if not one.is_tie]


def check(source: Translator, exported: Translator, depth: str, exported_depth: str, sample: Sample) -> Check:
    """Both translate the sample greedily, the source model with PyTorch in float32."""
    texts = sample.sources
    options: HypothesesKeywords = {"cut_long": True, "scores": False}
    expected = [best for best, *_ in source.hypotheses(texts, depth=depth, **options)]
    found = [best for best, *_ in exported.hypotheses(texts, depth=exported_depth, **options)]
    differences = list(_differences(source, source.menu[depth].subnetwork, texts, expected, found))
    outputs, own = [one.text for one in found], [one.text for one in expected]
    references = sample.references
    bleu = None if references is None else (score(own, references).bleu, score(outputs, references).bleu)
    return Check(depth, sample, differences, bleu, score(outputs, own).bleu)


def _differences(
    source: Translator, sub: SubNetwork, texts: list[str], expected: list[Hypothesis], found: list[Hypothesis]
) -> Iterator[Difference]:
    for text, ours, theirs in zip(texts, expected, found, strict=True):
        if (ours.tokens, ours.ended) != (theirs.tokens, theirs.ended):
            ids = source.as_read(source.tokenizer.encode(text)[: source.longest_source])
            yield Difference(text, ours.text, theirs.text, _gap(source.model, sub, ids, ours, theirs))


def _gap(model: Transformer, sub: SubNetwork, source: list[int], one: Hypothesis, other: Hypothesis) -> float:
    """Between the logits of the two tokens at the first place where they differ."""
    first, second = ([*each.tokens, Tokenizer.EOS] for each in (one, other))
    place = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    with torch.inference_mode():
        begun = torch.tensor([[Tokenizer.BOS, *first[:place]]])
        logits_v = model(torch.tensor([source]), begun, sub)[0, -1]
    return float((logits_v[first[place]] - logits_v[second[place]]).abs())

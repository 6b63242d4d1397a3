"""A choice per sentence against the clock: what choosing takes, and what it saves, one sentence at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Console

from anydepth.data import Tokenizer
from anydepth.evaluate.bar import bar
from anydepth.infer.translator import Translator
from anydepth.selectors import Selector
from anydepth.selectors.calibration import typical_seconds

WARM_UP_SENTENCES = 4
PASSES = 3


@dataclass(frozen=True)
class Timing:
    """Mean seconds per sentence at batch 1: each at its chosen depth, all at the deepest, all at the shallowest, and
    of choosing alone.
    """

    sentences: int
    auto: float
    deepest: float
    shallowest: float
    choosing: float

    @property
    def ratio(self) -> float:
        """Of the time that the deepest takes."""
        return self.auto / self.deepest

    @property
    def overhead(self) -> float:
        """Of choosing, over translating at the shallowest depth."""
        return self.choosing / self.shallowest


def seconds_to_choose(selector: Selector, sources: Sequence[Sequence[int]]) -> float:
    """Per sentence, each alone. The sources are token ids that end in EOS."""
    for source in sources[:WARM_UP_SENTENCES]:
        selector.choose([source])
    passes = [[_seconds(lambda: selector.choose([source])) for source in sources] for _ in range(PASSES)]  # noqa: B023
    return fmean(typical_seconds(passes))


def time_choices(
    translator: Translator, selector: Selector, texts: Sequence[str], shallowest: str, *, beam: int, console: Console
) -> Timing:
    """Sentence by sentence in turn, so that a slow minute of the machine falls on all ways alike."""
    ways: dict[str, Selector | str | None] = {"auto": selector, "deepest": None, "shallowest": shallowest}
    for text in texts[:WARM_UP_SENTENCES]:
        for depth in ways.values():
            translator.translate([text], depth=depth, beam=beam)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with bar(console, "against the clock, one by one", len(texts)) as advance:
        for text in texts:
            for name, depth in ways.items():
                seconds[name].append(_seconds(lambda: translator.translate([text], depth=depth, beam=beam)))  # noqa: B023
            advance(1)
    means = {name: fmean(times) for name, times in seconds.items()}
    return Timing(len(texts), choosing=seconds_to_choose(selector, token_ids(translator, texts)), **means)


def token_ids(translator: Translator, texts: Sequence[str]) -> list[list[int]]:
    """As the encoder reads them."""
    return [[*ids, Tokenizer.EOS] for ids in translator.tokenizer.encode_many(texts)]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began

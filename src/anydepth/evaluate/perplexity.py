"""How well an encoder alone predicts hidden sub-words, at each of its depths."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from anydepth.artifact.model import LoadedModel
from anydepth.data import masked_batches
from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.likelihood import mean_nll
from anydepth.infer.text_model import TooLongError

LARGEST_EXPONENT = 700


@dataclass(frozen=True)
class DepthPerplexity:
    depth: str
    parameters: int
    nll: float  # per hidden sub-word, in nats

    @property
    def perplexity(self) -> float:
        return perplexity_of(self.nll)


def perplexity_of(nll: float) -> float:
    """Infinite where a float has no room for it, as in a model that has diverged."""
    return math.exp(nll) if nll < LARGEST_EXPONENT else math.inf


def perplexity_every_depth(
    loaded: LoadedModel,
    texts: Sequence[str],
    depths: Sequence[str] | None = None,
    *,
    masked: float = 0.15,
    seed: int = 1,
    cut_long: bool = False,
    console: Console,
) -> tuple[int, list[DepthPerplexity]]:
    """How many sub-words were hidden, the same ones for every depth, and what each depth made of them."""
    model, menu = loaded.model, loaded.menu
    if model.config.decoder_layers:
        raise UserError("this model translates: perplexity is of encoders alone; measure it with `anydepth sweep`")
    names = menu.names if depths is None else [menu[name].name for name in depths]
    batches = list(masked_batches(loaded.tokenizer, _rows(loaded, texts, cut_long), masked, seed))
    batches = [batch.to(model.output.weight.device) for batch in batches]
    found = []
    with bar(console, "depths", len(names)) as advance:
        for name in names:
            nll = mean_nll(model, menu[name].subnetwork, batches)
            found.append(DepthPerplexity(name, loaded.parameters(name), nll))
            advance(1)
    return sum(batch.target_tokens for batch in batches), found


def _rows(loaded: LoadedModel, texts: Sequence[str], cut_long: bool) -> list[list[int]]:
    limit, rows = loaded.longest_source, []
    for number, ids in enumerate(loaded.tokenizer.encode_many(texts), 1):
        if len(ids) > limit and not cut_long:
            raise TooLongError(number, len(ids), limit)
        rows.append(ids[:limit])
    rows = [row for row in rows if row]
    if not rows:
        raise UserError("there is no text to measure with: every line is empty")
    return rows

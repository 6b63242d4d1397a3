"""From translations at every depth to a trained selector: one network, the best of several, one tuned further."""

import copy
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from anydepth.data import Tokenizer
from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.every_depth import EveryDepth
from anydepth.infer.translator import Translator
from anydepth.selectors.config import DEFAULTS, Kind, SelectorConfig
from anydepth.selectors.cost import LengthCost
from anydepth.selectors.labelled import Labelled, LabelledStream, standardise
from anydepth.selectors.learnt import LearntSelector, deepest_of
from anydepth.selectors.network import DepthPredictor
from anydepth.selectors.reading import Reader
from anydepth.selectors.training import Lesson, train_selector

# Only what chooses in a few hundredths of the time of the shallowest depth: where quality rises steeply with time, a
# network that foresees a little more costs more than it brings (docs/lab-notes.md).
OF_WORDS = {
    "rate": (3e-4, 1e-3, 3e-3),
    "dropout": (0.1, 0.3, 0.5),
    "weight_decay": (0.01, 0.1),
}
SPACES: dict[Kind, dict[str, tuple[Any, ...]]] = {
    "labels": {
        "layers": (1, 2),
        "heads": (2, 4),
        "alpha": (0.0, 0.5, 1.0),
        "beta": (0.5, 1.0, 2.0),
        "mix": (0.25, 0.5, 0.75),
    },
    "values": OF_WORDS,
    "likelihood": OF_WORDS,
}
POINTS_PER_NAT = 40.0  # per sub-word: differences between depths are then as large as those in chrF
FINE_TUNING_RATE = 0.1  # of the rate that it was trained with


def fit_selector(
    translator: Translator,
    table: EveryDepth,
    relative_costs: Sequence[LengthCost],
    config: SelectorConfig,
    run: Path,
    valid: EveryDepth,
    console: Console,
) -> tuple[LearntSelector, float]:
    """Train a selector in the folder `run`, or go on where that stopped; return it and its validation loss.

    That loss is the yardstick's (selectors/objective.py): it compares selectors of one kind on one validation set.
    """
    _check_depths(translator, table, valid, relative_costs)
    data, held_out = _labelled(translator, table, config.kind), _labelled(translator, valid, config.kind)
    torch.manual_seed(config.seed)
    read = Reader(translator.model, translator.tokenizer, config.reads == "encoder")
    network = DepthPredictor(config, translator.model, len(table.depths))
    standardise(network, data, torch.tensor([read.figures(source) for source in data.sources]))
    lesson = Lesson(translator.fingerprint, network.to(read.device), read, data, held_out)
    loss = train_selector(lesson, config, run, console)
    return LearntSelector(network, read, table.depths, relative_costs, float(data.lengths_n.mean())), loss


def fine_tune(
    translator: Translator,
    selector: LearntSelector,
    table: EveryDepth,
    run: Path,
    valid: EveryDepth,
    console: Console,
    epochs: int = 3,
) -> tuple[LearntSelector, float]:
    """Train a selector further, for a few epochs and more gently, on a table nearer to its use, such as a dev set's."""
    _check_depths(translator, table, valid, selector.relative_cost_k)
    if table.depths != selector.depths:
        raise UserError("the table has other depths than the selector: translate with the model that it is for")
    config, network = selector.config, copy.deepcopy(selector.network)
    data, held_out = _labelled(translator, table, config.kind), _labelled(translator, valid, config.kind)
    batches = LabelledStream(data, config.kind, selector.read, config.batch_tokens, config.seed).batches_in(0)
    steps = max(1, epochs * batches // config.accumulate)
    config = config.model_copy(update={"rate": config.rate * FINE_TUNING_RATE, "steps": steps})
    lesson = Lesson(translator.fingerprint, network, selector.read, data, held_out)
    loss = train_selector(lesson, config, run, console)
    threshold, costs = selector.threshold, selector.relative_cost_k
    return LearntSelector(network, selector.read, table.depths, costs, selector.mean_length, threshold), loss


def search_selector(
    translator: Translator,
    train: EveryDepth,
    valid: EveryDepth,
    relative_costs: Sequence[LengthCost],
    kind: Kind,
    folder: Path,
    console: Console,
    seed: int = 1,
    trials: int = 3,
    base: SelectorConfig | None = None,
) -> tuple[SelectorConfig, LearntSelector]:
    """The best of several configurations on the validation set. Trials that are finished are not trained again."""
    base = (base or DEFAULTS[kind]).model_copy(update={"kind": kind, "seed": seed})
    tried: list[tuple[float, SelectorConfig, LearntSelector]] = []
    with bar(console, f"selectors tried ({kind})", trials) as advance:
        for number, config in enumerate(candidates(base, translator.model.config.width, trials), start=1):
            run = folder / "search" / f"{kind}-{number}"
            selector, loss = fit_selector(translator, train, relative_costs, config, run, valid, Console(quiet=True))
            tried.append((loss, config, selector))
            advance(1)
    loss, config, selector = min(tried, key=lambda trial: trial[0])
    chosen = ", ".join(f"{key} {getattr(config, key)}" for key in SPACES[kind])
    console.print(f"best of {len(tried)}: {chosen} (validation loss {loss:.4f})", highlight=False, soft_wrap=True)
    return config, selector


def candidates(base: SelectorConfig, width: int, trials: int) -> list[SelectorConfig]:
    """`base` and others of the search space, drawn by its seed; more trials begin with the same ones."""
    space = SPACES[base.kind]
    combinations = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    random.Random(base.seed).shuffle(combinations)
    base = _fitting(base, width)
    others = [_fitting(base.model_copy(update=changes), width) for changes in combinations]
    return list(dict.fromkeys([base, *others]))[:trials]


def _fitting(config: SelectorConfig, width: int) -> SelectorConfig:
    """No larger than makes sense beside a model of that width, with heads that divide it."""
    heads = next(heads for heads in range(config.heads, 0, -1) if width % heads == 0)
    return config.model_copy(update={"heads": heads, "ffn": min(config.ffn, 4 * width)})


def _check_depths(
    translator: Translator, table: EveryDepth, valid: EveryDepth, relative_costs: Sequence[LengthCost]
) -> None:
    if table.depths != valid.depths or set(table.depths) - set(translator.menu.names):
        raise UserError("the tables of every depth are not of this model: translate with it again")
    if len(relative_costs) != len(table.depths):
        raise UserError(f"there are {len(table.depths)} depths but {len(relative_costs)} costs: give one for each")


def _labelled(translator: Translator, table: EveryDepth, kind: Kind) -> Labelled:
    """The sentences as the model reads them. Empty ones need no depth; what is too long is cut, as `cut_long` does."""
    rows = translator.tokenizer.encode_many(table.sources)
    kept = [row for row, ids in enumerate(rows) if ids]
    if not kept:
        raise UserError("there are no sentences to learn from: give a source and a reference file with text")
    sources = [[*rows[row][: translator.longest_source], Tokenizer.EOS] for row in kept]
    quality_nk = table.chrf_nk[kept]
    if kind == "likelihood":
        if table.likelihood_nk is None:
            raise UserError("the table has no likelihood of the references: translate with `anydepth select` again")
        lengths_n1 = np.array([[len(source)] for source in sources], dtype=np.float32)
        quality_nk = POINTS_PER_NAT * table.likelihood_nk[kept] / lengths_n1
    return Labelled(sources, np.ascontiguousarray(quality_nk), deepest_of(table.depths))

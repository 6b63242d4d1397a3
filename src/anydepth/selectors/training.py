"""Trains selectors, with the one trainer: a network, the best of several, a network tuned further."""

import copy
import hashlib
import json
import logging
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anydepth.config import TrainConfig
from anydepth.errors import UserError
from anydepth.evaluate.every_depth import EveryDepth
from anydepth.files import only_process, write_atomically
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar
from anydepth.selectors.calibration import LengthCost
from anydepth.selectors.data import SelectorData, SelectorStream, best_depths, standardise
from anydepth.selectors.learned import LearnedSelector, split_level
from anydepth.selectors.network import PAPER, DepthPredictor, SelectorConfig, SelectorKind, SelectorReader
from anydepth.selectors.objective import SelectionObjective, comparison_objective, make_objective
from anydepth.training.checkpoint import average_checkpoints
from anydepth.training.trainer import Trainer, TrainingData
from anydepth.training.validation import Validation

log = logging.getLogger(__name__)

VALIDATIONS = 20
RECORD = "selector.json"
WHAT_A_RUN_WRITES = ("checkpoints", "tensorboard", "log.jsonl")
# Only networks that choose in a few hundredths of the time of the shallowest depth: where quality rises steeply with
# time, a network that predicts a little better costs more than it gains (docs/lab-notes.md).
OF_WORDS = {
    "learning_rate": (3e-4, 1e-3, 3e-3),
    "dropout": (0.1, 0.3, 0.5),
    "weight_decay": (0.01, 0.1),
}
SPACES: dict[SelectorKind, dict[str, tuple[Any, ...]]] = {
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
PAPER_SPACE = {**SPACES["labels"], "layers": (2, 4, 8), "heads": (2, 4, 8)}  # its Table 2
FINE_TUNING_RATE = 0.1  # of the rate that it was trained with


def fit_selector(
    translator: Translator,
    table: EveryDepth,
    relative_costs: Sequence[LengthCost],
    config: SelectorConfig,
    run: Path,
    valid: EveryDepth,
) -> tuple[LearnedSelector, float]:
    """Train a selector in the folder `run`, or go on where that stopped; return it and its validation loss.

    The loss is that of `comparison_objective`: it compares selectors of one kind on one validation set.
    """
    _check_depths(translator, table, valid, relative_costs)
    data, held_out = (SelectorData.from_table(translator, one, config.kind) for one in (table, valid))
    torch.manual_seed(config.seed)
    read = SelectorReader(translator.model, translator.tokenizer, config.reads == "encoder")
    network = DepthPredictor(config, translator.model, len(table.depths))
    standardise(network, data, torch.tensor([read.features(source) for source in data.sources]))
    task = SelectorTask(translator.fingerprint, network.to(read.device), read, data, held_out)
    loss = train_selector(task, config, run)
    return LearnedSelector(network, read, table.depths, relative_costs, float(data.lengths_n.mean())), loss


def fine_tune(
    translator: Translator,
    selector: LearnedSelector,
    table: EveryDepth,
    run: Path,
    valid: EveryDepth,
    epochs: int = 3,
) -> tuple[LearnedSelector, float]:
    """Train a selector further, for a few epochs and more gently, on a table nearer to its use, such as a dev set's."""
    _check_depths(translator, table, valid, selector.relative_cost_k)
    if table.depths != selector.depths:
        raise UserError("the table has other depths than the selector: translate with the model that it is for")
    config, network = selector.config, copy.deepcopy(selector.network)
    data, held_out = (SelectorData.from_table(translator, one, config.kind) for one in (table, valid))
    batches = SelectorStream(data, config.kind, selector.read, config.batch_tokens, config.seed).batches_in(0)
    steps = max(1, epochs * batches // config.accumulate)
    config = config.model_copy(update={"learning_rate": config.learning_rate * FINE_TUNING_RATE, "steps": steps})
    task = SelectorTask(translator.fingerprint, network, selector.read, data, held_out)
    loss = train_selector(task, config, run)
    threshold, costs = selector.threshold, selector.relative_cost_k
    return LearnedSelector(network, selector.read, table.depths, costs, selector.mean_length, threshold), loss


def search_selector(
    translator: Translator,
    train: EveryDepth,
    valid: EveryDepth,
    relative_costs: Sequence[LengthCost],
    base: SelectorConfig,
    folder: Path,
    trials: int = 3,
) -> tuple[SelectorConfig, LearnedSelector]:
    """The best of several configurations, `base` and others, on the validation set.

    Trials that are finished are not trained again.
    """
    tried: list[tuple[float, SelectorConfig, LearnedSelector]] = []
    with progress_bar(f"selectors tried ({base.kind})", trials) as advance, quiet_training():
        for number, config in enumerate(candidates(base, translator.model.config.width, trials), start=1):
            run = folder / "search" / f"{base.kind}-{number}"
            selector, loss = fit_selector(translator, train, relative_costs, config, run, valid)
            tried.append((loss, config, selector))
            advance(1)
    loss, config, selector = min(tried, key=lambda trial: trial[0])
    chosen = ", ".join(f"{key} {getattr(config, key)}" for key in _search_space(base))
    log.info(f"best of {len(tried)}: {chosen} (validation loss {loss:.4f})")
    return config, selector


@contextmanager
def quiet_training() -> Iterator[None]:
    """Without the trainer's messages: one bar for many networks says more."""
    trainer = logging.getLogger("anydepth.training")
    level = trainer.level
    trainer.setLevel(logging.WARNING)
    try:
        yield
    finally:
        trainer.setLevel(level)


def candidates(base: SelectorConfig, width: int, trials: int) -> list[SelectorConfig]:
    """`base` and others of the search space, sampled by its seed; more trials begin with the same ones."""
    space = _search_space(base)
    combinations = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    random.Random(base.seed).shuffle(combinations)
    base = _fit_width(base, width)
    others = [_fit_width(base.model_copy(update=changes), width) for changes in combinations]
    return list(dict.fromkeys([base, *others]))[:trials]


def _search_space(base: SelectorConfig) -> dict[str, tuple[Any, ...]]:
    return PAPER_SPACE if _is_of_paper_size(base) else SPACES[base.kind]


def _is_of_paper_size(config: SelectorConfig) -> bool:
    return config.kind == "labels" and config.ffn == PAPER.ffn


def _fit_width(config: SelectorConfig, width: int) -> SelectorConfig:
    """With heads that divide the width; no larger than makes sense beside a model of that width, but the paper's."""
    heads = next(heads for heads in range(config.heads, 0, -1) if width % heads == 0)
    ffn = config.ffn if _is_of_paper_size(config) else min(config.ffn, 4 * width)
    return config.model_copy(update={"heads": heads, "ffn": ffn})


def _check_depths(
    translator: Translator, table: EveryDepth, valid: EveryDepth, relative_costs: Sequence[LengthCost]
) -> None:
    if table.depths != valid.depths or set(table.depths) - set(translator.menu.names):
        raise UserError("the tables of every depth are not of this model: translate with it again")
    if len(relative_costs) != len(table.depths):
        raise UserError(f"there are {len(table.depths)} depths but {len(relative_costs)} costs: give one for each")


@dataclass(frozen=True)
class SelectorTask:
    """A network and the data to train it on. `model` is the fingerprint of the translation model, which stays fixed."""

    model: str
    network: DepthPredictor
    read: SelectorReader
    train: SelectorData
    valid: SelectorData


def train_selector(task: SelectorTask, config: SelectorConfig, run: Path) -> float:
    """Leave the network with its finished weights, and return its validation loss."""
    network, device = task.network, task.read.device
    stream, valid_stream = (
        SelectorStream(data, config.kind, task.read, config.batch_tokens, config.seed)
        for data in (task.train, task.valid)
    )
    validator = SelectionValidator(
        valid_stream, comparison_objective(config, task.train).to(device), task.train.deepest
    )
    objective = make_objective(config, task.train).to(device)
    unit = "sentences" if config.kind == "labels" else "subwords"
    identity = _identity(task, config)
    with only_process(run, "training a selector"):
        _start_over_if_changed(run, identity)
        data = TrainingData(stream, validator, hashlib.sha256(identity.encode()).hexdigest(), unit)
        trainer = Trainer(network, objective, data, _train_config(config), run)
        finished = average_checkpoints(run, trainer.fit())
    network.load_state_dict(finished, strict=False)  # its constants are not trained
    network.eval()
    if config.kind != "labels":
        validator.shrink(network)
    return -validator.run(network).score


def _train_config(config: SelectorConfig) -> TrainConfig:
    every = max(1, config.steps // VALIDATIONS)
    return TrainConfig(
        steps=config.steps,
        batch_tokens=config.batch_tokens,
        accumulate=config.accumulate,
        learning_rate=config.learning_rate,
        warmup=config.steps // VALIDATIONS,
        schedule="linear",
        optimizer=config.optimizer,
        weight_decay=config.weight_decay,
        precision="float32",
        seed=config.seed,
        log_every=every,
        valid_every=every,
        checkpoint_every=every,
        patience=config.patience,
        average=1,
    )


def _identity(task: SelectorTask, config: SelectorConfig) -> str:
    """A run is resumed if this is the same."""
    start = hashlib.sha256()
    for value in task.network.state_dict().values():
        start.update(value.detach().cpu().numpy().tobytes())
    parts = {
        "config": config.model_dump(),
        "model": task.model,
        "start": start.hexdigest(),
        "train": task.train.fingerprint,
        "valid": task.valid.fingerprint,
    }
    return json.dumps(parts, indent=1) + "\n"


def _start_over_if_changed(run: Path, identity: str) -> None:
    """Training takes minutes: a run that was begun with other settings is deleted rather than refused."""
    record = run / RECORD
    there = [run / name for name in WHAT_A_RUN_WRITES if (run / name).exists()]
    if there and not record.exists():
        raise UserError(f"{run} is the run of something else: give another folder")
    if record.exists() and record.read_text("utf-8", "replace") == identity:
        return
    for path in there:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    write_atomically(record, identity)


@dataclass
class SelectionValidator:
    """`objective` is the loss to validate by, which need not be the one to train by."""

    stream: SelectorStream
    objective: SelectionObjective
    deepest: int

    def run(self, network: DepthPredictor) -> Validation:
        output_nk, quality_nk, weight_n = self._outputs(network)
        loss = self.objective.compute_loss(output_nk, quality_nk, weight_n)
        values: dict[str, Any] = {"loss": float(loss.total), **{name: float(v) for name, v in loss.parts.items()}}
        if network.config.kind == "labels":
            found, text = _found(output_nk, quality_nk)
        else:
            found, text = _explained(output_nk, split_level(quality_nk, self.deepest), weight_n, self.deepest)
        return Validation(-values["loss"], values | found, f"loss {values['loss']:.4f}  {text}")

    @torch.no_grad()
    def shrink(self, network: DepthPredictor) -> None:
        """Shrink the predicted differences towards their means, by a factor estimated on unseen sentences.

        The largest of several uncertain predictions is usually too large, and the largest decides. The factor is the
        slope of the truth over the prediction, less its standard error, from 0 to 1: a network that predicts nothing
        ends up with the means, which is one depth for all.
        """
        output_nk, quality_nk, weight_n = self._outputs(network)
        others = torch.arange(len(network.offset_k), device=output_nk.device) != self.deepest
        predicted_nk = (output_nk - network.offset_k)[:, others]
        truth_nk = (split_level(quality_nk, self.deepest) - network.offset_k)[:, others]
        spread = (weight_n * (predicted_nk**2).sum(1)).sum().clamp(min=1e-9)
        slope = (weight_n * (predicted_nk * truth_nk).sum(1)).sum() / spread
        # The depths of a sentence err together, so that only sentences count as independent.
        error_n = weight_n * (predicted_nk * (truth_nk - slope * predicted_nk)).sum(1)
        network.scale_k[others] *= (slope - (error_n**2).sum().sqrt() / spread).clamp(0, 1)

    @torch.no_grad()
    def _outputs(self, network: DepthPredictor) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs of the network, the quality and the weight of all sentences."""
        was_training, device = network.training, network.offset_k.device
        network.eval()
        batches = [(network(batch.inputs), batch.quality_bk, batch.weight_b) for batch in self.stream.all()]
        network.train(was_training)
        output_nk, quality_nk, weight_n = (torch.cat(parts).to(device) for parts in zip(*batches, strict=True))
        return output_nk, quality_nk, weight_n


def _found(output_nk: Tensor, quality_nk: Tensor) -> tuple[dict[str, float], str]:
    """How often the likeliest depth is a best one, beside the depth that is a best one most often."""
    labels_nk = best_depths(quality_nk)
    found = float(labels_nk.gather(1, output_nk.argmax(1, keepdim=True)).mean())
    constant = float(labels_nk.mean(0).max())
    values = {"found": found, "found_by_one_depth": constant}
    return values, f"finds a best depth of {found:.1%} of the sentences; one depth for all, of {constant:.1%}"


def _explained(output_nk: Tensor, split_nk: Tensor, weight_n: Tensor, deepest: int) -> tuple[dict[str, float], str]:
    """R squared: the share of the variance between sentences that is predicted; 0 if nothing has been learned."""
    weight_n1 = (weight_n / weight_n.sum())[:, None]
    error_k = (weight_n1 * (split_nk - output_nk) ** 2).sum(0)
    variance_k = (weight_n1 * (split_nk - (weight_n1 * split_nk).sum(0)) ** 2).sum(0)
    others = torch.arange(len(error_k), device=error_k.device) != deepest
    values = {
        "r2_difference": _r2(error_k[others], variance_k[others]),
        "r2_level": _r2(error_k[~others], variance_k[~others]),
    }
    text = f"explains {values['r2_difference']:.1%} of the differences between depths"
    return values, f"{text}, {values['r2_level']:.1%} of how good the deepest is"


def _r2(error_k: Tensor, variance_k: Tensor) -> float:
    return 1 - float(error_k.sum()) / max(1e-9, float(variance_k.sum()))

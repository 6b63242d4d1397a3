"""Training and validating a selector of depths, with the one trainer."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from anydepth.config import TrainConfig
from anydepth.errors import UserError
from anydepth.files import only_process, write_atomically
from anydepth.selectors.config import SelectorConfig
from anydepth.selectors.labelled import Labelled, LabelledStream, best_depths, split_level
from anydepth.selectors.network import DepthPredictor
from anydepth.selectors.objective import SelectionObjective, selection_objective, yardstick
from anydepth.selectors.reading import Reader
from anydepth.train.checkpoint import average_checkpoints
from anydepth.train.trainer import Trainer, TrainingData
from anydepth.train.validation import Validation

VALIDATIONS = 20
RECORD = "selector.json"
WHAT_A_RUN_WRITES = ("checkpoints", "tensorboard", "log.jsonl")


@dataclass(frozen=True)
class Lesson:
    """Who is trained, on what. `model` is the fingerprint of the translation model, which is not trained."""

    model: str
    network: DepthPredictor
    read: Reader
    train: Labelled
    valid: Labelled


def train_selector(lesson: Lesson, config: SelectorConfig, run: Path, console: Console) -> float:
    """Leave the network with its finished weights, and return its validation loss."""
    network, device = lesson.network, lesson.read.device
    stream, valid_stream = (
        LabelledStream(data, config.kind, lesson.read, config.batch_tokens, config.seed)
        for data in (lesson.train, lesson.valid)
    )
    validator = SelectionValidator(valid_stream, yardstick(config, lesson.train).to(device), lesson.train.deepest)
    objective = selection_objective(config, lesson.train).to(device)
    unit = "sentences" if config.kind == "labels" else "sub-words"
    identity = _identity(lesson, config)
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
        rate=config.rate,
        warmup=config.steps // VALIDATIONS,
        schedule="linear",
        optimiser=config.optimiser,
        weight_decay=config.weight_decay,
        precision="float32",
        seed=config.seed,
        log_every=every,
        valid_every=every,
        checkpoint_every=every,
        patience=config.patience,
        average=1,
    )


def _identity(lesson: Lesson, config: SelectorConfig) -> str:
    """What a run must have in common with this one to be gone on with."""
    start = hashlib.sha256()
    for value in lesson.network.state_dict().values():
        start.update(value.detach().cpu().numpy().tobytes())
    parts = {
        "config": config.model_dump(),
        "model": lesson.model,
        "start": start.hexdigest(),
        "train": lesson.train.fingerprint,
        "valid": lesson.valid.fingerprint,
    }
    return json.dumps(parts, indent=1) + "\n"


def _start_over_if_changed(run: Path, identity: str) -> None:
    """Training takes minutes: what was begun otherwise is thrown away rather than refused."""
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

    stream: LabelledStream
    objective: SelectionObjective
    deepest: int

    def run(self, network: DepthPredictor) -> Validation:
        output_nk, quality_nk, weight_n = self._outputs(network)
        loss = self.objective.loss_of(output_nk, quality_nk, weight_n)
        values: dict[str, Any] = {"loss": float(loss.total), **{name: float(v) for name, v in loss.parts.items()}}
        if network.config.kind == "labels":
            found, text = _found(output_nk, quality_nk)
        else:
            found, text = _explained(output_nk, split_level(quality_nk, self.deepest), weight_n, self.deepest)
        return Validation(-values["loss"], values | found, f"loss {values['loss']:.4f}  {text}")

    @torch.no_grad()
    def shrink(self, network: DepthPredictor) -> None:
        """Draw what it says of differences towards their means, as far as unseen sentences ask for it.

        The largest of several uncertain figures is most often one that is too large, and the choice goes by the
        largest. The factor is the slope of the truth over what was foreseen, less its standard error, from 0 to 1: a
        network that foresees nothing ends up with the means, which is one depth for all.
        """
        output_nk, quality_nk, weight_n = self._outputs(network)
        others = torch.arange(len(network.offset_k), device=output_nk.device) != self.deepest
        foreseen_nk = (output_nk - network.offset_k)[:, others]
        truth_nk = (split_level(quality_nk, self.deepest) - network.offset_k)[:, others]
        spread = (weight_n * (foreseen_nk**2).sum(1)).sum().clamp(min=1e-9)
        slope = (weight_n * (foreseen_nk * truth_nk).sum(1)).sum() / spread
        # The depths of a sentence err together, so that only sentences count as independent.
        error_n = weight_n * (foreseen_nk * (truth_nk - slope * foreseen_nk)).sum(1)
        network.scale_k[others] *= (slope - (error_n**2).sum().sqrt() / spread).clamp(0, 1)

    @torch.no_grad()
    def _outputs(self, network: DepthPredictor) -> tuple[Tensor, Tensor, Tensor]:
        """What the network gives, chrF and weights, of all the sentences."""
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
    """R squared: the share of the variance between sentences that is foreseen; 0 if nothing has been learnt."""
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

"""The one training loop. The objective says what is trained, and how.

Exact resume rests on two things: all state is in the checkpoint (weights, moments, position in the data), and every
random number of a step is derived from (seed, step), so there is no generator state to lose.
"""

import logging
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from anydepth.config import TrainConfig
from anydepth.data.batching import BatchShare
from anydepth.errors import UserError
from anydepth.objectives.base import Loss, Objective
from anydepth.training import checkpoint as ckpt
from anydepth.training.distributed import SINGLE, World, local_part, shard_like
from anydepth.training.logging import GradientNorms, Meter, RunLog, TrainProgress, divergence_error, layer_norms
from anydepth.training.optim import Precision, learning_rate_at, make_optimizers, optimizer_tensors, restore_optimizers
from anydepth.training.plateau import is_on_plateau
from anydepth.training.validation import Validation, Validator

RANK_SEED = 2**40  # between the seeds of two processes: each has its own dropout
log = logging.getLogger(__name__)


class TrainingBatch(Protocol):
    @property
    def terms(self) -> int:
        """The number of terms that the loss is the mean over."""

    @property
    def source_terms(self) -> int:
        """The number of terms that a loss of the source is the mean over."""

    def to(self, device: torch.device) -> Any: ...


class Stream(Protocol):
    """Batches by their position (epoch, index), which is all the state there is.

    `together` batches form a round, such as one for each language: an update takes whole rounds.
    """

    together: int

    def batches_in(self, epoch: int) -> int: ...

    def at(self, epoch: int, index: int, share: BatchShare) -> TrainingBatch: ...


@dataclass(frozen=True)
class TrainingData:
    """Batches to train on, and how to validate."""

    stream: Stream
    validator: Validator
    fingerprint: str  # a run is resumed with the same data only
    unit: str = "tokens"  # the terms of the loss
    entropy: float | None = None  # of what is predicted: a loss near it is the unigram plateau


class Update(nn.Module):
    """The loss of a batch as a module of all that is trained, as DDP and FSDP need it."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any, step: int, shares: tuple[float, float]) -> tuple[Tensor, Loss]:
        loss = self.objective(self.model, batch, step)
        return loss.weighted(*shares), loss


class Trainer:
    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        data: TrainingData,
        config: TrainConfig,
        run: Path,
        world: World = SINGLE,
    ) -> None:
        self.model, self.objective, self.data = model, objective, data
        self.config, self.run, self.world = config, run, world
        self.update = world.wrap(Update(model, objective), model, set(objective.parameters()))
        self.device = next(model.parameters()).device
        self.precision = Precision(config, self.device)
        self.named: dict[str, nn.Parameter] = dict(model.named_parameters())
        self.named |= {f"objective.{name}": p for name, p in objective.named_parameters()}
        groups = [replace(one, names=tuple(f"objective.{name}" for name in one.names)) for one in objective.groups()]
        self.optimizers = make_optimizers(self.named, groups, config)
        self.gradients = GradientNorms()
        self.state = ckpt.TrainState(data=data.fingerprint)
        self._warned = False

    def fit(self) -> list[int]:
        """Train to the last step or until patience ends; return the steps whose checkpoints are averaged."""
        self._resume()
        state, config = self.state, self.config
        self.log = RunLog(self.run, state.step) if self.world.is_main else None
        self._meter = Meter(config.steps, self.world)
        self.model.train()
        with TrainProgress(config.steps, state.step, visible=self.world.is_main) as self.progress:
            while state.step < config.steps and not state.stopped:
                self._update()
                last = state.step == config.steps
                if state.step % config.valid_every == 0 or last:
                    self._validate()
                if state.step % config.checkpoint_every == 0 or last or state.stopped:
                    self._save()
        self._close_log()
        return self.world.broadcast(self._steps_to_average())  # type: ignore[no-any-return]

    def _update(self) -> None:
        """One update of the weights."""
        step, scaler = self.state.step + 1, self.precision.scaler
        batches = [self._next_batch() for _ in range(self.config.accumulate * self.data.stream.together)]
        seed_generator(self.config.seed * 1_000_003 + step + self.world.rank * RANK_SEED, self.device)
        self._backward(batches, step)
        due = [one for one in self.optimizers if one.is_due(step)]
        for one in due:
            scaler.unscale_(one.optimizer)
        logs = step % self.config.log_every == 0 or step == self.config.steps
        norms_by_layer = layer_norms(self.model) if logs or not self.gradients.norms else {}
        self.gradients.record(step, norms_by_layer)
        norms = [one.norm() for one in due]
        if self._checks_each_step:
            for norm in norms:
                self._check_finite(norm, step)
        learning_rate = learning_rate_at(step, self.config)
        for one, norm in zip(due, norms, strict=True):
            one.set_learning_rate(learning_rate)
            one.clip(self.config.clip, norm)
            scaler.step(one.optimizer)
        scaler.update()
        for one in self.optimizers:
            one.optimizer.zero_grad(set_to_none=True)
        self.state.step = step
        self.progress.step(step)
        if logs:
            self._log(learning_rate, float(torch.stack(norms).norm()), norms_by_layer)

    def _next_batch(self) -> TrainingBatch:
        state, stream = self.state, self.data.stream
        while state.batch >= stream.batches_in(state.epoch):  # with small corpus weights an epoch may be empty
            state.epoch, state.batch = state.epoch + 1, 0
        batch = stream.at(state.epoch, state.batch, self.world.share)
        state.batch += 1
        return batch

    def _backward(self, batches: list[TrainingBatch], step: int) -> None:
        """The gradient of all batches and processes together, each weighted by its terms, as one large batch."""
        own = [sum(batch.terms for batch in batches), sum(batch.source_terms for batch in batches)]
        terms, source_terms = self.world.all_reduce(own)
        for batch in batches:
            shares = batch.terms / terms, batch.source_terms / source_terms
            with self.world.gradient_sync(self.update, last=batch is batches[-1]):
                with self.precision.context():
                    weighted, loss = self.update(batch.to(self.device), step, shares)
                # gradients are averaged over the processes
                self.precision.scaler.scale(weighted * self.world.size).backward()
            self._meter.add(loss, batch.terms, *shares)
        self.world.all_reduce_gradients(list(self.objective.parameters()))

    @property
    def _checks_each_step(self) -> bool:
        """Free on a CPU. A GPU would have to wait, and is checked at log records and checkpoints only."""
        return self.device.type == "cpu" and not self.precision.scaler.is_enabled()

    def _check_finite(self, value: Tensor | float, step: int, norms: dict[str, float] | None = None) -> None:
        """Stop before anything broken is saved. `norms` are those of this step, if its gradients are gone."""
        if math.isfinite(float(value)):
            return
        layer = self.gradients.largest(norms or layer_norms(self.model))
        self._write("diverged", step, layer=None if layer is None else layer[0])
        self._close_log()
        when = f"{'at' if self._checks_each_step else 'by'} step {step:,}"
        raise divergence_error(when, layer, self.objective.remedy)

    def _log(self, learning_rate: float, norm: float, norms: dict[str, float]) -> None:
        state = self.state
        values = self._meter.read(state.step)
        self._check_finite(values["loss"], state.step, norms)
        values |= self.objective.report()
        self._write("train", state.step, epoch=state.epoch, rate=learning_rate, grad_norm=norm, **values, layers=norms)
        self._warn_of_plateau(values.get("nll"))
        text = f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} {self.data.unit}/s"
        left = self._meter.seconds_left()
        self.progress.note(state.step, text if left is None else f"{text}  {left / 60:.1f} min left")

    def _warn_of_plateau(self, nll: float | None) -> None:
        """Once, after the warm-up and the first quarter of the updates: every run passes the plateau on its way."""
        step, entropy = self.state.step, self.data.entropy
        if self._warned or nll is None or entropy is None or step < max(self.config.warmup, self.config.steps // 4):
            return
        if is_on_plateau(nll, entropy, step):
            self._warned = True
            self._write("plateau", step, nll=nll, entropy=entropy)
            log.warning(
                "warning: at step %s the loss, %.2f nats, is no better than guessing by subword frequency, %.2f",
                *(f"{step:,}", nll, entropy),
            )

    def _validate(self) -> None:
        state, began = self.state, time.perf_counter()
        found: Validation | None = None
        if self.world.is_main or self.world.sharded:  # a sharded model runs on all processes
            with self.world.gather_parameters(self.update):
                found = self.data.validator.run(self.model)
        result: Validation = self.world.broadcast(found)
        self._check_finite(result.score, state.step)
        self._meter.pause(time.perf_counter() - began)
        if state.best is None or result.score > state.best:
            state.best, state.best_step, state.worse = result.score, state.step, 0
        else:
            state.worse += 1
        state.stopped = self.config.patience is not None and state.worse >= self.config.patience
        self._write("valid", state.step, **result.values)
        log.info("step %s  validation %s", f"{state.step:,}", result.text)
        if state.stopped:
            best = f"{state.best_step:,}"
            log.info("no improvement in %d validations: stopping; best at step %s", state.worse, best)

    def _write(self, kind: str, step: int, **values: Any) -> None:
        if self.log is not None:
            self.log.write(kind, step, **values)

    def _close_log(self) -> None:
        if self.log is not None:
            self.log.close()

    def _save(self) -> None:
        sums = torch.stack([local_part(parameter.detach()).sum() for parameter in self.named.values()]).tolist()
        for value in self.world.all_reduce(sums) if self.world.sharded else sums:
            self._check_finite(value, self.state.step)
        self.world.check_in_sync(self.named.values())
        self.state.scaler = self.precision.scaler.state_dict()
        objective = self.objective.state_dict()
        tensors = {
            "model": self.world.gather_tensors(model_tensors(self.model)),
            "optimizer": self.world.gather_tensors(optimizer_tensors(self.optimizers)),
            **({"objective": objective} if objective else {}),
        }
        if self.world.is_main:
            ckpt.save_checkpoint(self.run, ckpt.Checkpoint(self.state, tensors))
            ckpt.remove_checkpoints(self.run, self._steps_to_keep())

    def _resume(self) -> None:
        """Load the last intact checkpoint, if there is one."""
        for step in ckpt.remove_torn(self.run) if self.world.is_main else []:
            log.info("checkpoint of step %s is damaged: skipped", f"{step:,}")
        step = self.world.broadcast(max(ckpt.saved_steps(self.run), default=0))
        state = ckpt.read_state(self.run, step)
        if state is None:
            if step:
                raise UserError(f"this machine cannot find step {step:,} in {self.run}: is that a disk all share?")
            return
        if state.data != self.state.data:
            raise UserError(
                f"{self.run / 'data'} is not what this run was trained on so far: restore it, or give "
                "another folder with out=…"
            )
        if state.step > self.config.steps:
            raise UserError(f"this run is already at step {state.step:,}: train.steps cannot be {self.config.steps:,}")
        saved = ckpt.load_tensors(self.run, state.step, "model")
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(shard_like(saved[name], parameter))
        if self.objective.state_dict():
            self.objective.load_state_dict(ckpt.load_tensors(self.run, state.step, "objective"))
        restore_optimizers(self.optimizers, ckpt.load_tensors(self.run, state.step, "optimizer"))
        if state.scaler:
            self.precision.scaler.load_state_dict(state.scaler)
        self.state = state
        log.info("resuming from step %s", f"{state.step:,}")

    def _window(self, end: int) -> list[int]:
        """The checkpoints to average up to `end`; not the last one of an earlier, shorter run."""
        every = self.config.checkpoint_every
        steps = [step for step in ckpt.saved_steps(self.run) if step == end or (step < end and step % every == 0)]
        return steps[-self.config.average :]

    @property
    def _last_to_average(self) -> int:
        """The last step; with early stopping the first checkpoint at or after the best validation."""
        if self.config.patience is None:
            return self.state.step
        after_best = (step for step in ckpt.saved_steps(self.run) if step >= self.state.best_step)
        return min(after_best, default=self.state.step)

    def _steps_to_average(self) -> list[int]:
        """The checkpoints up to that one, but none of the warm-up, which is far from where the run ends."""
        window = self._window(self._last_to_average)
        warm = [step for step in window if step > self.config.warmup or step == window[-1]]
        if len(warm) < len(window) and self.world.is_main:
            log.info(
                "averaging %d of the last %d checkpoints: the others are of the warm-up (train.warmup=%d)",
                len(warm),
                len(window),
                self.config.warmup,
            )
        return warm

    def _steps_to_keep(self) -> set[int]:
        last_two = ckpt.saved_steps(self.run)[-2:]
        return {*self._window(self.state.step), *self._window(self._last_to_average), *last_two}


def seed_generator(seed: int, device: torch.device) -> None:
    """torch.manual_seed for the CPU and this device alone: for each kind of device that is not in use, that formats a
    stack trace, which takes as long as a small layer."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name, a shared matrix once (safetensors refuses two names for one storage)."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}

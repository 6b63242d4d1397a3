"""The one training loop. What is trained, and how, is the objective's business.

Exact resume rests on two things: all state is in the checkpoint (weights, moments, position in the data), and every
random number of a step is derived from (seed, step), so there is no generator state to lose.
"""

import math
import time
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from torch import nn
from torch.nn.utils import clip_grad_norm_, get_total_norm

from anydepth.config import TrainConfig
from anydepth.errors import UserError
from anydepth.model.stack import Stack
from anydepth.objectives.base import Loss, Objective
from anydepth.train import checkpoint as ckpt
from anydepth.train.logs import RunLog, TrainProgress
from anydepth.train.optim import learning_rate, make_optimiser, optimiser_tensors, restore_optimiser, set_rate
from anydepth.train.precision import Precision
from anydepth.train.validation import Validator


class TrainingBatch(Protocol):
    @property
    def terms(self) -> int:
        """What its loss is the mean over."""

    def to(self, device: torch.device) -> Any: ...


class Stream(Protocol):
    """Batches by their position (epoch, index), which is all the state there is."""

    def batches_in(self, epoch: int) -> int: ...

    def at(self, epoch: int, index: int) -> TrainingBatch: ...


class Trainer:
    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        stream: Stream,
        validator: Validator,
        config: TrainConfig,
        run: Path,
        data: str,
        console: Console,
        unit: str = "tokens",
    ) -> None:
        self.unit = unit  # what the terms of the loss are
        self.model, self.objective, self.stream, self.validator = model, objective, stream, validator
        self.config, self.run, self.console = config, run, console
        self.device = next(model.parameters()).device
        self.precision = Precision(config, self.device)
        self.named: dict[str, nn.Parameter] = dict(model.named_parameters())
        self.named |= {f"objective.{name}": p for name, p in objective.named_parameters()}
        self.optimiser = make_optimiser(self.named, config)
        self.state = ckpt.TrainState(data=data)

    def fit(self) -> list[int]:
        """Train until the last step or until patience ends; return the steps whose checkpoints make the model."""
        self._resume()
        self.log = RunLog(self.run, self.state.step)
        self._meter = _Meter(self.config.steps)
        self.model.train()
        with TrainProgress(self.console, self.config.steps, self.state.step) as self.progress:
            while self.state.step < self.config.steps and not self.state.stopped:
                self._update()
                self._after_update()
        self.log.close()
        return self._steps_to_average()

    def _update(self) -> None:
        step = self.state.step + 1
        batches = [self._next_batch() for _ in range(self.config.accumulate)]
        terms = sum(batch.terms for batch in batches)
        torch.manual_seed(self.config.seed * 1_000_003 + step)
        for batch in batches:
            with self.precision.context():
                loss = self.objective(self.model, batch.to(self.device), step)
            share = loss.terms / terms  # accumulated batches count by their terms, as one large batch would
            self.precision.scaler.scale(loss.total * share).backward()
            self._meter.add(loss, share)
        rate = learning_rate(step, self.config)
        set_rate(self.optimiser, rate)
        self.precision.scaler.unscale_(self.optimiser)
        logs = step % self.config.log_every == 0
        norms = self._layer_norms() if logs else {}
        norm = clip_grad_norm_(self.named.values(), self.config.clip)
        if self.device.type == "cpu" and not self.precision.scaler.is_enabled():
            _check_finite(norm, step)  # free here; a GPU would have to wait, and is checked at every checkpoint
        self.precision.scaler.step(self.optimiser)
        self.precision.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        self.state.step = step
        self.progress.step(step)
        if logs:
            self._log(rate, float(norm), norms)

    def _next_batch(self) -> TrainingBatch:
        state = self.state
        if state.batch >= self.stream.batches_in(state.epoch):
            state.epoch, state.batch = state.epoch + 1, 0
        batch = self.stream.at(state.epoch, state.batch)
        state.batch += 1
        return batch

    def _after_update(self) -> None:
        state, config = self.state, self.config
        last = state.step == config.steps
        if state.step % config.valid_every == 0 or last:
            self._validate()
        if state.step % config.checkpoint_every == 0 or last or state.stopped:
            self._save()

    def _log(self, rate: float, norm: float, norms: dict[str, float]) -> None:
        state = self.state
        values = self._meter.read(state.step)
        self.log.write("train", state.step, epoch=state.epoch, rate=rate, grad_norm=norm, **values, layers=norms)
        text = f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} {self.unit}/s"
        left = self._meter.seconds_left(state.step)
        self.progress.note(state.step, text if left is None else f"{text}  {left / 60:.1f} min left")

    def _layer_norms(self) -> dict[str, float]:
        """Gradient norm of every layer before clipping: which part of a deep stack still learns."""
        stacks = [(name, module) for name, module in self.model.named_modules() if isinstance(module, Stack)]
        layers = {f"{name}.{i}": layer for name, stack in stacks for i, layer in enumerate(stack.distinct, 1)}
        gradients = {name: [p.grad for p in layer.parameters() if p.grad is not None] for name, layer in layers.items()}
        return {name: float(get_total_norm(grads)) if grads else 0.0 for name, grads in gradients.items()}

    def _validate(self) -> None:
        state = self.state
        began = time.perf_counter()
        result = self.validator.run(self.model)
        self._meter.pause(time.perf_counter() - began)
        if state.best is None or result.score > state.best:
            state.best, state.best_step, state.worse = result.score, state.step, 0
        else:
            state.worse += 1
        state.stopped = self.config.patience is not None and state.worse >= self.config.patience
        self.log.write("valid", state.step, **result.values)
        self.progress.say(f"step {state.step:,}  validation {result.text}")
        if state.stopped:
            self.progress.say(
                f"nothing better in {state.worse} validations: stopping; best at step {state.best_step:,}"
            )

    def _save(self) -> None:
        for parameter in self.named.values():
            _check_finite(parameter.detach().sum(), self.state.step)
        self.state.scaler = self.precision.scaler.state_dict()
        objective = self.objective.state_dict()
        tensors = {
            "model": model_tensors(self.model),
            "optimiser": optimiser_tensors(self.optimiser, self.named),
            **({"objective": objective} if objective else {}),
        }
        ckpt.save_checkpoint(self.run, ckpt.Checkpoint(self.state, tensors))
        ckpt.remove_checkpoints(self.run, self._steps_to_keep())

    def _resume(self) -> None:
        for step in ckpt.remove_torn(self.run):
            self.console.print(f"checkpoint of step {step:,} is damaged: skipped", highlight=False)
        state = ckpt.read_state(self.run, max(ckpt.saved_steps(self.run), default=0))
        if state is None:
            return
        if state.data != self.state.data:
            raise UserError(
                f"{self.run / 'data'} is not what this run was trained on so far: restore it, or give another --out"
            )
        if state.step > self.config.steps:
            raise UserError(f"this run is already at step {state.step:,}: train.steps cannot be {self.config.steps:,}")
        self.model.load_state_dict(ckpt.load_tensors(self.run, state.step, "model"), strict=False)
        if self.objective.state_dict():
            self.objective.load_state_dict(ckpt.load_tensors(self.run, state.step, "objective"))
        restore_optimiser(self.optimiser, self.named, ckpt.load_tensors(self.run, state.step, "optimiser"))
        if state.scaler:
            self.precision.scaler.load_state_dict(state.scaler)
        self.state = state
        self.console.print(f"going on from step {state.step:,}", highlight=False)

    def _window(self, end: int) -> list[int]:
        """The checkpoints to average up to `end`; not the last one of an earlier, shorter run."""
        every = self.config.checkpoint_every
        steps = [step for step in ckpt.saved_steps(self.run) if step == end or (step < end and step % every == 0)]
        return steps[-self.config.average :]

    def _best_end(self) -> int:
        """The checkpoint at or after the best validation: a best step need not be a checkpointed one."""
        return min((s for s in ckpt.saved_steps(self.run) if s >= self.state.best_step), default=self.state.step)

    def _steps_to_average(self) -> list[int]:
        """The last checkpoints, or with early stopping those up to the best."""
        return self._window(self._best_end() if self.config.patience is not None else self.state.step)

    def _steps_to_keep(self) -> set[int]:
        last_two = ckpt.saved_steps(self.run)[-2:]
        return {*self._window(self.state.step), *self._steps_to_average(), *last_two}


def model_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights by name, a shared matrix once (safetensors refuses two names for one storage)."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _check_finite(value: torch.Tensor, step: int) -> None:
    if not math.isfinite(float(value)):
        raise UserError(
            f"training diverged at step {step:,}: a number is no longer finite; the checkpoints before it are whole; "
            "start a new run with a lower train.rate or a longer train.warmup"
        )


class _Meter:
    """Loss and speed between two log lines. Values stay on the device until they are read."""

    def __init__(self, total_steps: int) -> None:
        self._total_steps = total_steps
        self._first_step: int | None = None
        self._began = time.perf_counter()
        self._paused = 0.0
        self._reset()

    def _reset(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, float] = {}  # of each part: some, such as a teacher's, are not there at every update
        self._terms = 0
        self._since, self._paused_since = time.perf_counter(), 0.0

    def add(self, loss: Loss, share: float) -> None:
        for name, value in {"loss": loss.total.detach(), **loss.parts}.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach() * share
            self._counts[name] = self._counts.get(name, 0.0) + share
        self._terms += loss.terms

    def pause(self, seconds: float) -> None:
        self._paused += seconds
        self._paused_since += seconds

    def read(self, step: int) -> dict[str, float]:
        _check_finite(self._sums["loss"], step)
        values = {name: float(value) / self._counts[name] for name, value in self._sums.items()}
        values["tokens_per_second"] = self._terms / (time.perf_counter() - self._since - self._paused_since)
        if self._first_step is None:
            self._first_step, self._began, self._paused = step, time.perf_counter(), 0.0
        self._reset()
        return values

    def seconds_left(self, step: int) -> float | None:
        done = step - (self._first_step or 0)
        elapsed = time.perf_counter() - self._began - self._paused
        return None if done <= 0 else elapsed / done * (self._total_steps - step)

"""The one training loop. What is trained, and how, is the objective's business.

Exact resume rests on two things: all state is in the checkpoint (weights, moments, position in the data), and every
random number of a step is derived from (seed, step), so there is no generator state to lose.
"""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from torch import nn

from anydepth.config import TrainConfig
from anydepth.data.batches import Share
from anydepth.errors import UserError
from anydepth.objectives.base import Loss, Objective, ParameterGroup
from anydepth.train import checkpoint as ckpt
from anydepth.train.distributed import ALONE, Processes, divided_as, full
from anydepth.train.divergence import Gradients, divergence, layer_norms
from anydepth.train.logging import RunLog, TrainProgress
from anydepth.train.meter import Meter
from anydepth.train.optim import Optimised, learning_rate, make_optimisers, optimiser_tensors, restore_optimisers
from anydepth.train.precision import Precision
from anydepth.train.validation import Validation, Validator

OTHER_DROPOUT = 2**40  # between the random numbers of two processes: each drops out in rows of its own


class TrainingBatch(Protocol):
    @property
    def terms(self) -> int:
        """What its loss is the mean over."""

    @property
    def source_terms(self) -> int:
        """What a loss of its source is the mean over."""

    def to(self, device: torch.device) -> Any: ...


class Stream(Protocol):
    """Batches by their position (epoch, index), which is all the state there is.

    `together` of them make a round, such as one for each language: an update takes whole rounds.
    """

    together: int

    def batches_in(self, epoch: int) -> int: ...

    def at(self, epoch: int, index: int, share: Share) -> TrainingBatch: ...


class Update(nn.Module):
    """The loss of a batch as a module of all that is trained: what DDP and FSDP ask for."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any, step: int, shares: tuple[float, float]) -> tuple[torch.Tensor, Loss]:
        loss = self.objective(self.model, batch, step)
        return loss.weighted(*shares), loss


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
        processes: Processes = ALONE,
    ) -> None:
        self.unit = unit  # what the terms of the loss are
        self.model, self.objective, self.stream, self.validator = model, objective, stream, validator
        self.config, self.run, self.console, self.processes = config, run, console, processes
        self.update = processes.wrapped(Update(model, objective), model, set(objective.parameters()))
        self.device = next(model.parameters()).device
        self.precision = Precision(config, self.device)
        self.named: dict[str, nn.Parameter] = dict(model.named_parameters())
        self.named |= {f"objective.{name}": p for name, p in objective.named_parameters()}
        groups = [_as_named_here(group) for group in objective.groups()]
        self.optimisers = make_optimisers(self.named, groups, config)
        self.gradients = Gradients()
        self.state = ckpt.TrainState(data=data)

    def fit(self) -> list[int]:
        """Train until the last step or until patience ends; return the steps whose checkpoints make the model."""
        self._resume()
        self.log = RunLog(self.run, self.state.step) if self.processes.is_first else None
        self._meter = Meter(self.config.steps, self.processes)
        self.model.train()
        with TrainProgress(self.console, self.config.steps, self.state.step) as self.progress:
            while self.state.step < self.config.steps and not self.state.stopped:
                self._update()
                self._after_update()
        self._close_log()
        return self.processes.told(self._steps_to_average())  # type: ignore[no-any-return]

    def _update(self) -> None:
        step = self.state.step + 1
        batches = [self._next_batch() for _ in range(self.config.accumulate * self.stream.together)]
        torch.manual_seed(self.config.seed * 1_000_003 + step + self.processes.rank * OTHER_DROPOUT)
        self._backward(batches, step)
        rate = learning_rate(step, self.config)
        logs = step % self.config.log_every == 0 or step == self.config.steps
        due = [one for one in self.optimisers if one.is_due(step)]
        for one in due:
            self.precision.scaler.unscale_(one.optimiser)
        norms = layer_norms(self.model) if logs or not self.gradients.norms else {}
        self.gradients.note(step, norms)
        norm = self._descend(due, rate, step)
        self.precision.scaler.update()
        for one in self.optimisers:
            one.optimiser.zero_grad(set_to_none=True)
        self.state.step = step
        self.progress.step(step)
        if logs:
            self._log(rate, float(norm), norms)

    def _backward(self, batches: list[TrainingBatch], step: int) -> None:
        """The gradient of all batches and processes together: each counts by its terms, as one large batch would."""
        of_all = [sum(batch.terms for batch in batches), sum(batch.source_terms for batch in batches)]
        terms, source_terms = self.processes.sum(of_all)
        for batch in batches:
            shares = batch.terms / terms, batch.source_terms / source_terms
            with self.processes.adding_up(self.update, last=batch is batches[-1]):
                with self.precision.context():
                    weighted, loss = self.update(batch.to(self.device), step, shares)
                # what comes of it is the mean over the processes
                self.precision.scaler.scale(weighted * self.processes.count).backward()
            self._meter.add(loss, batch.terms, *shares)
        self.processes.add_up(list(self.objective.parameters()))

    def _descend(self, due: list[Optimised], rate: float, step: int) -> torch.Tensor:
        """Each on its own gradient, clipped for itself; return the norm of all of it."""
        norms = [one.norm() for one in due]
        if self._sees_each_step:
            for norm in norms:
                self._check_finite(norm, step)
        for one, norm in zip(due, norms, strict=True):
            one.set_rate(rate)
            one.clip(self.config.clip, norm)
            self.precision.scaler.step(one.optimiser)
        total: torch.Tensor = torch.stack(norms).norm()
        return total

    @property
    def _sees_each_step(self) -> bool:
        """To look is free on a CPU; a GPU would have to wait, and is asked at every log line and checkpoint."""
        return self.device.type == "cpu" and not self.precision.scaler.is_enabled()

    def _check_finite(self, value: torch.Tensor | float, step: int, norms: dict[str, float] | None = None) -> None:
        """Stop before anything broken is saved. `norms` are those of this step, if its gradients are gone."""
        if math.isfinite(float(value)):
            return
        blamed = self.gradients.largest(norms or layer_norms(self.model))
        self._write("diverged", step, layer=None if blamed is None else blamed[0])
        self._close_log()
        when = f"{'at' if self._sees_each_step else 'by'} step {step:,}"
        raise divergence(when, blamed, self.objective.remedy)

    def _next_batch(self) -> TrainingBatch:
        state = self.state
        while state.batch >= self.stream.batches_in(state.epoch):  # of corpora with small weights one may be empty
            state.epoch, state.batch = state.epoch + 1, 0
        batch = self.stream.at(state.epoch, state.batch, self.processes.share)
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
        self._check_finite(values["loss"], state.step, norms)
        values |= self.objective.report()
        self._write("train", state.step, epoch=state.epoch, rate=rate, grad_norm=norm, **values, layers=norms)
        text = f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} {self.unit}/s"
        left = self._meter.seconds_left(state.step)
        self.progress.note(state.step, text if left is None else f"{text}  {left / 60:.1f} min left")

    def _validate(self) -> None:
        state = self.state
        began = time.perf_counter()
        result = self._validation()
        self._check_finite(result.score, state.step)
        self._meter.pause(time.perf_counter() - began)
        if state.best is None or result.score > state.best:
            state.best, state.best_step, state.worse = result.score, state.step, 0
        else:
            state.worse += 1
        state.stopped = self.config.patience is not None and state.worse >= self.config.patience
        self._write("valid", state.step, **result.values)
        self.progress.say(f"step {state.step:,}  validation {result.text}")
        if state.stopped:
            self.progress.say(
                f"nothing better in {state.worse} validations: stopping; best at step {state.best_step:,}"
            )

    def _validation(self) -> Validation:
        """By the first process, for all; unless it takes all to run the model."""
        found = None
        if self.processes.is_first or self.processes.sharded:
            with self.processes.whole(self.update):
                found = self.validator.run(self.model)
        return self.processes.told(found)  # type: ignore[no-any-return]

    def _write(self, kind: str, step: int, **values: Any) -> None:
        if self.log is not None:
            self.log.write(kind, step, **values)

    def _close_log(self) -> None:
        if self.log is not None:
            self.log.close()

    def _save(self) -> None:
        for parameter in self.named.values():
            self._check_finite(full(parameter.detach().sum()), self.state.step)
        self.processes.check_alike(self.named.values())
        self.state.scaler = self.precision.scaler.state_dict()
        objective = self.objective.state_dict()
        tensors = {
            "model": self._gathered(model_tensors(self.model)),
            "optimiser": self._gathered(optimiser_tensors(self.optimisers)),
            **({"objective": objective} if objective else {}),
        }
        if self.processes.is_first:
            ckpt.save_checkpoint(self.run, ckpt.Checkpoint(self.state, tensors))
            ckpt.remove_checkpoints(self.run, self._steps_to_keep())

    def _gathered(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One at a time: where they are divided, all of them together may not fit."""
        found = {name: self.processes.gathered(value) for name, value in tensors.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _resume(self) -> None:
        for step in ckpt.remove_torn(self.run) if self.processes.is_first else []:
            self.console.print(f"checkpoint of step {step:,} is damaged: skipped", highlight=False)
        step = self.processes.told(max(ckpt.saved_steps(self.run), default=0))
        state = ckpt.read_state(self.run, step)
        if state is None:
            if step:
                raise UserError(f"this machine does not see step {step:,} in {self.run}: is that a disk all share?")
            return
        if state.data != self.state.data:
            raise UserError(
                f"{self.run / 'data'} is not what this run was trained on so far: restore it, or give another --out"
            )
        if state.step > self.config.steps:
            raise UserError(f"this run is already at step {state.step:,}: train.steps cannot be {self.config.steps:,}")
        saved = ckpt.load_tensors(self.run, state.step, "model")
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(divided_as(saved[name], parameter))
        if self.objective.state_dict():
            self.objective.load_state_dict(ckpt.load_tensors(self.run, state.step, "objective"))
        restore_optimisers(self.optimisers, ckpt.load_tensors(self.run, state.step, "optimiser"))
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


def _as_named_here(group: ParameterGroup) -> ParameterGroup:
    return replace(group, names=tuple(f"objective.{name}" for name in group.names))


def model_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights by name, a shared matrix once (safetensors refuses two names for one storage)."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}

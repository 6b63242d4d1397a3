"""Flexible depth by multi-task learning: each supported depth is a task with one fixed sub-network.

Wang, Xiao and Zhu 2021, "Training Flexible Depth Model by Multi-Task Learning for Neural Machine Translation",
Algorithm 1; sampling fewer tasks per update is their Table 5.
"""

from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anydepth.config import FlexibleConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu
from anydepth.depth.assignment import Layers, assign, make_menu, prime_warning
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.objectives.base import TranslationObjective
from anydepth.objectives.outputs import ForwardOutputs, forward_all
from anydepth.rng import DECODER, ENCODER, keyed_uniform


class Flexible(TranslationObjective):
    config: FlexibleConfig

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        names = self.menu().names
        for task in self.config.task_weights:
            if task not in names:
                raise UserError(f"objective.task_weights: there is no task {task}; there are: {', '.join(names)}")

    def menu(self) -> DepthMenu:
        return make_menu(self._depths(ENCODER), self._depths(DECODER))

    def warnings(self, steps: int) -> list[str]:
        return [*self._primes(), *self._idle_keys(), *self._unused_layers()]

    def _unused_layers(self) -> list[str]:
        sizes = ("encoder", self.model_config.encoder_layers), ("decoder", self.model_config.decoder_layers)
        found = []
        for side, (name, total) in enumerate(sizes):
            unused = set(range(total)) - {layer for layers in self._depths(side).values() for layer in layers}
            if unused:
                numbers = ", ".join(str(layer + 1) for layer in sorted(unused))
                found.append(f"no task uses {name} layer {numbers}, so nothing trains it: add {total} to {name}_depths")
        return found

    def _idle_keys(self) -> list[str]:
        sizes = {"encoder_tasks": len(self._depths(ENCODER)), "decoder_tasks": len(self._depths(DECODER))}
        return [
            f"objective.{key} has no effect: there {'is' if size == 1 else 'are'} {size} to choose from"
            for key, size in sizes.items()
            if (getattr(self.config, key) or 0) > size or (size == 1 and getattr(self.config, key))
        ]

    def _primes(self) -> list[str]:
        sizes = {"encoder": self.model_config.encoder_layers, "decoder": self.model_config.decoder_layers}
        flexible = {side: layers for side, layers in sizes.items() if self.config.sides in ("both", side)}
        warnings = {side: prime_warning(layers) for side, layers in flexible.items()}
        return [f"{side} layers: {warning}" for side, warning in warnings.items() if warning]

    def _depths(self, side: int) -> dict[int, Layers]:
        """The layers of each depth of one stack; all layers, if the stack is not flexible."""
        config = self.model_config
        total = (config.encoder_layers, config.decoder_layers)[side]
        if self.config.sides == ("decoder", "encoder")[side]:
            return {total: tuple(range(total))}
        depths = (self.config.encoder_depths, self.config.decoder_depths)[side]
        try:
            chosen = assign(self.config.strategy, total, depths).chosen
        except UserError as error:
            raise UserError(f"objective.{('encoder', 'decoder')[side]}_depths: {error}") from error
        return {d: tuple(sorted(layers)) for d, layers in chosen.items()}

    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        """Every sampled encoder depth with every sampled decoder depth."""
        encoders, decoders = self._sample(ENCODER, step), self._sample(DECODER, step)
        weights_nm = self._weights([len(one) for one in encoders], [len(one) for one in decoders])
        return forward_all(model, batch, encoders, decoders, weights_nm, self.needs_attention)

    def _weights(self, encoders: list[int], decoders: list[int]) -> Tensor:
        """What each task counts, [n, m]: in the mean over updates its share of all tasks' weights."""
        each = 1 / (len(encoders) * len(decoders))
        if not self.config.task_weights:
            return torch.full((len(encoders), len(decoders)), each)
        given = self.config.task_weights
        mean = fmean(given.get(task, 1.0) for task in self.menu().names)
        return torch.tensor([[each * given.get(f"{n}-{m}", 1.0) / mean for m in decoders] for n in encoders])

    def _sample(self, side: int, step: int) -> list[Layers]:
        """The layers of the depths that this update trains on one side, shallow to deep; the same in every process."""
        depths = list(self._depths(side).values())
        wanted = (self.config.encoder_tasks, self.config.decoder_tasks)[side]
        if wanted is None or wanted >= len(depths):
            return depths
        order = keyed_uniform(self.seed, step, side, np.arange(len(depths))).argsort()
        return [depths[index] for index in sorted(order[:wanted])]

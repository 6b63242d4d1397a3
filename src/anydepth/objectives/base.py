"""What the trainer knows of a way of training, and what all ways of training the Transformer share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anydepth.config import ModelConfig
from anydepth.data import Batch
from anydepth.depth import DepthMenu
from anydepth.model import Transformer
from anydepth.objectives.cross_entropy import cross_entropy
from anydepth.objectives.distillation import Teaching
from anydepth.objectives.outputs import Passes
from anydepth.objectives.unused import keep_in_graph, unused_parameters


@dataclass
class Loss:
    """The mean loss over the terms of a batch (target tokens, or sentences), and its named parts for the logs
    (detached). `of_source`, which is not in `total`, is a mean over the source's tokens, and counts by these;
    `source_parts` is what of the parts is so, too. `counted` is the share of the terms that a part is the mean over,
    where those are not all."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    of_source: Tensor | None = None
    source_parts: dict[str, Tensor] = field(default_factory=dict)
    counted: dict[str, Tensor] = field(default_factory=dict)

    def weighted(self, share: float, source_share: float) -> Tensor:
        """What it adds to the loss of an update, of whose terms and source tokens this batch has a share."""
        return self.total * share + (0.0 if self.of_source is None else self.of_source * source_share)

    def weighted_parts(self, share: float, source_share: float) -> dict[str, tuple[Tensor, Tensor | float]]:
        """The same of each part, with what it counts: their sums over an update give the mean of the whole update."""
        found: dict[str, tuple[Tensor, Tensor | float]] = {}
        for name, value in self.parts.items():
            of_source, counts = self.source_parts.get(name, 0.0), share * self.counted.get(name, 1.0)
            found[name] = (value - of_source) * counts + of_source * source_share, counts
        return found


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters of an objective, by name, that have an optimiser of their own (Adam without weight decay)."""

    names: tuple[str, ...]
    rate: float  # at its peak; the shape of the schedule is that of `train.rate`
    every: int  # updates of all else to one of these, which sees the gradient of the last of them


class Objective(nn.Module, ABC):
    """Maps a model and a batch to a loss. What kind of model and of batch, its subclasses say."""

    remedy: ClassVar[str] = "train with a lower learning rate"  # what to do when it diverges

    @abstractmethod
    def forward(self, model: Any, batch: Any, step: int) -> Loss:
        """The loss of one batch."""

    def groups(self) -> list[ParameterGroup]:
        """Those of its parameters that are trained in another way than the model's."""
        return []

    def report(self) -> dict[str, Any]:
        """What it has to say in the log, beside the parts of the loss."""
        return {}


@dataclass(frozen=True)
class Finished:
    """What is left of training: a model with its depths, smaller models cut out of it, by name, and what to know."""

    config: ModelConfig
    tensors: dict[str, Tensor]
    menu: DepthMenu
    cut_out: dict[str, "Finished"] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class TranslationObjective(Objective):
    """A way of training the Transformer: it says what a step runs and what that counts. A teacher may add to the loss.

    It owns whatever exists only in training. Its own parameters, if any, are trained and checkpointed too.
    A random choice is keyed by (seed, step) and, where it needs more, by the sentence or by the place of the batch in
    the data, never by a generator's state: a resumed run and a run split over several processes draw the same.
    """

    remedy = (
        "start a new run with a lower train.rate or a longer train.warmup, or, if it is deep, with "
        "model.init=depth-scaled or objective.name=latent"
    )
    # a model without a decoder, for masked language modelling or classification
    takes_encoder_alone: ClassVar[bool] = False
    only_classifies: ClassVar[bool] = False

    def __init__(
        self, config: Any, model: ModelConfig, label_smoothing: float, seed: int, pairs: tuple[str, ...] = ("",)
    ) -> None:
        super().__init__()
        self.pairs = pairs  # the language pairs by name; a batch says which one it is of
        self.config = config
        self.model_config = model
        self.label_smoothing = label_smoothing
        self.seed = seed
        self.teaching: Teaching | None = None

    @abstractmethod
    def run(self, model: Transformer, batch: Batch, step: int) -> Passes:
        """The sub-networks that this step trains, run on the batch."""

    @abstractmethod
    def menu(self) -> DepthMenu:
        """The depths that a model trained this way is good at, as far as that is known beforehand."""

    def validated(self) -> DepthMenu:
        """The depths to look at while training goes on, under names that stay."""
        return self.menu()

    def finish(self, tensors: dict[str, Tensor], step: int) -> Finished:
        """The model as users get it, from its weights after so many steps."""
        return Finished(self.model_config, tensors, self.menu())

    def warnings(self, steps: int) -> list[str]:
        """What a user should know before a run of so many updates."""
        return []

    def beside(self, model: Transformer, batch: Batch, passes: Passes) -> dict[str, Tensor]:
        """Losses of its own that are added, by name: means over the source's tokens."""
        return {}

    @staticmethod
    def fitted(config: Any, model: ModelConfig) -> ModelConfig:
        """The model with what it has to have to be trained this way, and no unit that nobody trains."""
        return model.model_copy(update={"halting": False}) if model.halting else model

    @property
    def watches(self) -> bool:
        """Whether a step has to show its attention."""
        return self.teaching is not None and self.teaching.watches

    def forward(self, model: Transformer, batch: Batch, step: int) -> Loss:
        """The loss of one batch. Layers that it does not need are part of it, with gradient zero."""
        passes = self.run(model, batch, step)
        teaching = self.teaching if self.teaching is not None and step > self.teaching.config.begin else None
        loss = loss_of(model, batch, passes, self.label_smoothing, teaching)
        for name, part in self.beside(model, batch, passes).items():
            loss.of_source = part + (0.0 if loss.of_source is None else loss.of_source)
            loss.parts[name] = loss.source_parts[name] = part.detach()
        unused = unused_parameters(model, *passes.layers)
        if self.teaching is not None:
            unused += self.teaching.unused(None if teaching is None else passes)
        loss.total = keep_in_graph(loss.total, unused)
        return loss


def loss_of(
    model: Transformer, batch: Batch, passes: Passes, smoothing: float, teaching: Teaching | None = None
) -> Loss:
    """The weighted cross-entropy of what was run; with a teacher, that makes way for what is learnt from it."""
    lesson = None if teaching is None else teaching(model, batch, passes)
    found = cross_entropy(
        passes.features_erd,
        model.output.weight,
        batch.wanted[passes.real_r],
        passes.weight_er if lesson is None else passes.weight_er * lesson.left_er,
        smoothing,
        None if lesson is None else lesson.soft,
    )
    parts = {"nll": (found.nll_er * passes.weight_er).sum()}
    if lesson is None:
        return Loss(found.total, parts)
    parts["ce"] = (found.hard_er * passes.weight_er).sum()
    counted = {}
    if lesson.soft is not None:  # the mean where it counts: not at the deepest exit, if that is the teacher
        weight_er, tiny = lesson.soft.weight_er, torch.finfo(torch.float32).tiny
        counted["kd"] = weight_er.sum()
        parts["kd"] = (found.soft_er * weight_er).sum() / counted["kd"].clamp(min=tiny)
    parts |= lesson.parts
    return Loss(found.total + lesson.of_decoder, parts, lesson.of_encoder, lesson.source_parts, counted)

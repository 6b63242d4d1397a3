"""The `Objective` that the trainer calls, and what all objectives of the Transformer share."""

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
from anydepth.objectives.distillation import Distillation
from anydepth.objectives.outputs import ForwardOutputs, keep_in_graph, unused_parameters
from anydepth.objectives.sampled_softmax import sample_vocabulary, sampled_cross_entropy


@dataclass
class Loss:
    """The mean loss over the terms of a batch (target tokens or sentences), and its named parts for the logs, detached.

    `source_total`, not part of `total`, is a mean over source tokens and is weighted by their number; `source_parts`
    are its parts. `counted` is the share of the terms that a part is the mean over, if not all.
    """

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    source_total: Tensor | None = None
    source_parts: dict[str, Tensor] = field(default_factory=dict)
    counted: dict[str, Tensor] = field(default_factory=dict)

    def weighted(self, share: float, source_share: float) -> Tensor:
        """Its contribution to an update of whose terms and source tokens this batch has these shares."""
        return self.total * share + (0.0 if self.source_total is None else self.source_total * source_share)

    def weighted_parts(self, share: float, source_share: float) -> dict[str, tuple[Tensor, Tensor | float]]:
        """The same for each part, with its count: sums over an update give the mean of the whole update."""
        found: dict[str, tuple[Tensor, Tensor | float]] = {}
        for name, value in self.parts.items():
            source_part, counts = self.source_parts.get(name, 0.0), share * self.counted.get(name, 1.0)
            found[name] = (value - source_part) * counts + source_part * source_share, counts
        return found


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters of an objective, by name, with an optimizer of their own (Adam without weight decay)."""

    names: tuple[str, ...]
    learning_rate: float  # the peak; the schedule is that of `train.learning_rate`
    every: int  # updates of the model for one of these, which uses the gradient of the last


class Objective(nn.Module, ABC):
    """Maps a model and a batch to a loss. Subclasses say which kind of model and batch."""

    remedy: ClassVar[str] = "train with a lower learning rate"  # what to do when it diverges

    @abstractmethod
    def forward(self, model: Any, batch: Any, step: int) -> Loss:
        """The loss of one batch."""

    def groups(self) -> list[ParameterGroup]:
        """Its parameters that are not trained as the model's are."""
        return []

    def report(self) -> dict[str, Any]:
        """Further values for the log."""
        return {}


@dataclass(frozen=True)
class Finished:
    """The result of training: a model with its depth menu, smaller models cut out of it by name, and notes."""

    config: ModelConfig
    tensors: dict[str, Tensor]
    menu: DepthMenu
    cut_out: dict[str, "Finished"] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class TranslationObjective(Objective):
    """A way of training the Transformer: what a step runs and how the outputs are weighted. A teacher may add losses.

    It owns whatever exists only in training. Its parameters, if any, are trained and checkpointed too. Random choices
    are keyed by (seed, step) and, if needed, by the sentence or the batch's position in the data. They never depend on
    a generator's state: a resumed run and a run of several processes draw the same.
    """

    remedy = (
        "start a new run with a lower train.learning_rate or a longer train.warmup, or, if it is deep, with "
        "model.init=depth-scaled or objective.name=latent"
    )
    takes_encoder_alone: ClassVar[bool] = False  # for masked language modelling or classification
    only_classifies: ClassVar[bool] = False

    def __init__(
        self, config: Any, model: ModelConfig, label_smoothing: float, seed: int, pairs: tuple[str, ...] = ("",)
    ) -> None:
        super().__init__()
        self.pairs = pairs  # names of the language pairs; a batch has the index of its pair
        self.config = config
        self.model_config = model
        self.label_smoothing = label_smoothing
        self.seed = seed
        self.sampled_softmax = 0  # subwords in the softmax of an update; 0: all of them
        self.teaching: Distillation | None = None  # its name is part of the names in checkpoints

    @abstractmethod
    def forward_outputs(self, model: Transformer, batch: Batch, step: int) -> ForwardOutputs:
        """Run the sub-networks that this step trains on the batch."""

    @abstractmethod
    def menu(self) -> DepthMenu:
        """The depths that a model trained this way offers, as far as known before training."""

    def validated(self) -> DepthMenu:
        """The depths to validate during training, under names that do not change."""
        return self.menu()

    def finish(self, tensors: dict[str, Tensor], step: int) -> Finished:
        """The model as users get it, from its weights after `step` steps."""
        return Finished(self.model_config, tensors, self.menu())

    def warnings(self, steps: int) -> list[str]:
        """What a user should know before a run of `steps` updates."""
        return []

    def auxiliary_losses(self, model: Transformer, batch: Batch, outputs: ForwardOutputs) -> dict[str, Tensor]:
        """Further losses to add, by name: means over source tokens."""
        return {}

    @staticmethod
    def adapt_model(config: Any, model: ModelConfig) -> ModelConfig:
        """The model config with the parts that this objective needs, and no halting unit that nobody trains."""
        return model.model_copy(update={"halting": False}) if model.halting else model

    @property
    def needs_attention(self) -> bool:
        """Whether the loss needs attention probabilities."""
        return self.teaching is not None and self.teaching.needs_attention

    def forward(self, model: Transformer, batch: Batch, step: int) -> Loss:
        """The loss of one batch. Parameters that it does not use get gradient zero."""
        outputs = self.forward_outputs(model, batch, step)
        begun = self.teaching is not None and step > self.teaching.config.start_step
        if 0 < self.sampled_softmax < len(model.output.weight) and torch.is_grad_enabled():
            loss = self._sampled_loss(model, batch, outputs, step)
        else:
            loss = compute_loss(model, batch, outputs, self.label_smoothing, self.teaching if begun else None)
        for name, part in self.auxiliary_losses(model, batch, outputs).items():
            loss.source_total = part + (0.0 if loss.source_total is None else loss.source_total)
            loss.parts[name] = loss.source_parts[name] = part.detach()
        unused = unused_parameters(model, *outputs.layers)
        if self.teaching is not None:
            unused += self.teaching.unused_parameters(outputs if begun else None)
        loss.total = keep_in_graph(loss.total, unused)
        return loss

    def _sampled_loss(self, model: Transformer, batch: Batch, outputs: ForwardOutputs, step: int) -> Loss:
        features_erd, matrix_vd = model.output_product(outputs.features_erd)
        target_r = batch.wanted[outputs.real_r]
        sample = sample_vocabulary(len(matrix_vd), self.sampled_softmax, self.seed, step, matrix_vd.device)
        found = sampled_cross_entropy(features_erd, matrix_vd, target_r, outputs.weight_er, sample)
        return Loss(found.total, {"nll": found.total.detach()})


def compute_loss(
    model: Transformer,
    batch: Batch,
    outputs: ForwardOutputs,
    label_smoothing: float,
    distillation: Distillation | None = None,
) -> Loss:
    """The weighted cross-entropy of the outputs; with a teacher, part of its weight goes to the distillation losses."""
    distilled = None if distillation is None else distillation(model, batch, outputs)
    features_erd, matrix_vd = model.output_product(outputs.features_erd)
    found = cross_entropy(
        features_erd,
        matrix_vd,
        batch.wanted[outputs.real_r],
        outputs.weight_er if distilled is None else outputs.weight_er * distilled.reference_share_er,
        label_smoothing,
        None if distilled is None else distilled.soft_targets,
    )
    parts = {"nll": (found.nll_er * outputs.weight_er).sum()}
    if distilled is None:
        return Loss(found.total, parts)
    parts["ce"] = (found.hard_er * outputs.weight_er).sum()
    counted = {}
    if distilled.soft_targets is not None:  # the mean where it counts: not at the deepest exit, if that is the teacher
        weight_er, tiny = distilled.soft_targets.weight_er, torch.finfo(torch.float32).tiny
        counted["kd"] = weight_er.sum()
        parts["kd"] = (found.soft_er * weight_er).sum() / counted["kd"].clamp(min=tiny)
    parts |= distilled.parts
    return Loss(found.total + distilled.decoder_total, parts, distilled.encoder_total, distilled.source_parts, counted)

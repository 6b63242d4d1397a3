"""What the trainer knows of a way of training."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu
from anydepth.model import Transformer
from anydepth.text import Batch


@dataclass
class Loss:
    """The mean loss over `terms` (target tokens, or sentences), and its named parts for the logs (detached)."""

    total: Tensor
    terms: int
    parts: dict[str, Tensor] = field(default_factory=dict)


class Objective(nn.Module, ABC):
    """Maps a model and a batch to a loss. What kind of model and of batch, its subclasses say."""

    @abstractmethod
    def forward(self, model: Any, batch: Any, step: int) -> Loss:
        """The loss of one batch."""


class TranslationObjective(Objective):
    """A way of training the Transformer.

    It owns whatever exists only in training. Its own parameters, if any, are trained and checkpointed too.
    A random choice is keyed by (seed, step) and, where it needs more, by the sentence or by the place of the batch in
    the data, never by a generator's state: a resumed run and a run split over several processes draw the same.
    """

    def __init__(self, config: Any, model: ModelConfig, label_smoothing: float, seed: int) -> None:
        super().__init__()
        self.config = config
        self.model_config = model
        self.label_smoothing = label_smoothing
        self.seed = seed

    @abstractmethod
    def forward(self, model: Transformer, batch: Batch, step: int) -> Loss:
        """The loss of one batch."""

    @abstractmethod
    def menu(self) -> DepthMenu:
        """The depths that a model trained this way is good at."""

    def warnings(self) -> list[str]:
        """What a user should know before a long run."""
        return []

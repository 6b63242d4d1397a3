"""The one trainer, its optimiser, exact checkpoints, logs and validation."""

from anydepth.train.trainer import Trainer

__all__ = ["Trainer"]

"""Training: from a recipe to a finished model, with exact resume, on one process or many."""

from anydepth.training.trainer import Trainer

__all__ = ["Trainer"]

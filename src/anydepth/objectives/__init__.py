"""Ways of training: each maps (model, batch, step) to a loss. One file each."""

from anydepth.config import ModelConfig, ObjectiveConfig
from anydepth.objectives.base import Loss, Objective, TranslationObjective
from anydepth.objectives.flexible import Flexible
from anydepth.objectives.layerdrop import LayerDrop
from anydepth.objectives.tied_multi import TiedMulti
from anydepth.objectives.vanilla import Vanilla

OBJECTIVES: dict[str, type[TranslationObjective]] = {
    "vanilla": Vanilla,
    "tied-multi": TiedMulti,
    "flexible": Flexible,
    "layerdrop": LayerDrop,
}

__all__ = ["OBJECTIVES", "Loss", "Objective", "TranslationObjective", "make_objective"]


def make_objective(
    config: ObjectiveConfig, model: ModelConfig, label_smoothing: float, seed: int
) -> TranslationObjective:
    return OBJECTIVES[config.name](config, model, label_smoothing, seed)

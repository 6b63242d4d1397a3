"""Every key a recipe may have, with its meaning and its default. Unknown keys are refused.

Run `python -m anydepth.config` to print this as the table in docs/recipe-keys.md.
"""

from anydepth.config.data import AugmentConfig, CorpusConfig, DataConfig, PairConfig
from anydepth.config.keys import keys_as_markdown
from anydepth.config.model import ModelConfig
from anydepth.config.objective import (
    FlexibleConfig,
    HaltingConfig,
    LatentConfig,
    LayerDropConfig,
    ObjectiveConfig,
    TiedMultiConfig,
    VanillaConfig,
    WordDepthsConfig,
)
from anydepth.config.recipe import Recipe
from anydepth.config.section import Section
from anydepth.config.teacher import MapName, TeacherConfig
from anydepth.config.train import TrainConfig

__all__ = [
    "AugmentConfig",
    "CorpusConfig",
    "DataConfig",
    "FlexibleConfig",
    "HaltingConfig",
    "LatentConfig",
    "LayerDropConfig",
    "MapName",
    "ModelConfig",
    "ObjectiveConfig",
    "PairConfig",
    "Recipe",
    "Section",
    "TeacherConfig",
    "TiedMultiConfig",
    "TrainConfig",
    "VanillaConfig",
    "WordDepthsConfig",
    "keys_as_markdown",
]

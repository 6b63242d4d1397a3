"""Every key a recipe may have, with its meaning and its default. Unknown keys are refused.

`python -m anydepth.config` prints them as docs/recipe-keys.md, `anydepth schema` as a JSON schema.
Modules are imported when a name of theirs is asked for: running a model needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anydepth.config.data import AugmentConfig, CorpusConfig, DataConfig, PairConfig
    from anydepth.config.keys import keys_as_markdown, keys_as_schema
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
    from anydepth.config.section import ConfigSection
    from anydepth.config.teacher import MapName, TeacherConfig
    from anydepth.config.train import TrainConfig

__all__ = [
    "AugmentConfig",
    "ConfigSection",
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
    "TeacherConfig",
    "TiedMultiConfig",
    "TrainConfig",
    "VanillaConfig",
    "WordDepthsConfig",
    "keys_as_markdown",
    "keys_as_schema",
]

_MODULES = {
    "data": ("AugmentConfig", "CorpusConfig", "DataConfig", "PairConfig"),
    "keys": ("keys_as_markdown", "keys_as_schema"),
    "model": ("ModelConfig",),
    "objective": (
        "FlexibleConfig",
        "HaltingConfig",
        "LatentConfig",
        "LayerDropConfig",
        "ObjectiveConfig",
        "TiedMultiConfig",
        "VanillaConfig",
        "WordDepthsConfig",
    ),
    "recipe": ("Recipe",),
    "section": ("ConfigSection",),
    "teacher": ("MapName", "TeacherConfig"),
    "train": ("TrainConfig",),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

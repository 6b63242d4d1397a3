"""A whole recipe."""

from pathlib import Path

from pydantic import Field

from anydepth.config.data import DataConfig
from anydepth.config.model import ModelConfig
from anydepth.config.objective import ObjectiveConfig, VanillaConfig
from anydepth.config.section import Section
from anydepth.config.teacher import TeacherConfig
from anydepth.config.train import TrainConfig


class Recipe(Section):
    init_from: Path | None = Field(
        None,
        description="a finished model or run to start from, or a pre-trained encoder of the BERT family (a folder, or "
        "a name on the Hugging Face hub), with its tokenizer; `model` may then be left out, and only dropouts, "
        "max_length, head and halting may differ, and layers may be fewer",
    )
    data: DataConfig
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = VanillaConfig()
    teacher: TeacherConfig | None = Field(None, description="who teaches, if anyone does")
    train: TrainConfig = TrainConfig()

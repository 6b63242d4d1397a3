"""A whole recipe."""

from pathlib import Path

from pydantic import Field, model_validator

from anydepth.config.data import DataConfig
from anydepth.config.model import ModelConfig
from anydepth.config.objective import ObjectiveConfig, VanillaConfig
from anydepth.config.section import ConfigSection
from anydepth.config.teacher import TeacherConfig
from anydepth.config.train import TrainConfig


class Recipe(ConfigSection):
    about: str | None = Field(
        None,
        description="text for the model card: origin, attribution, how to make the model again",
    )
    init_from: Path | None = Field(
        None,
        description="a finished model, an imported one (`anydepth import`) or a run to start from, or a pre-trained "
        "encoder of the BERT family (a folder, or a name on the Hugging Face hub), with its tokenizer; `model` may "
        "then be left out, and only dropouts, max_length, head and halting may differ, and layers may be fewer",
    )
    data: DataConfig
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = VanillaConfig()
    teacher: TeacherConfig | None = Field(None, description="who teaches, if anyone does")
    train: TrainConfig = TrainConfig()

    @model_validator(mode="after")
    def _a_classifier_teaches_itself(self) -> "Recipe":
        if self.data.is_labelled and self.teacher is not None and self.teacher.model != "self":
            raise ValueError(
                "with labelled texts the only teacher is the model itself: set teacher.model=self, or leave out teacher"
            )
        return self

    @model_validator(mode="after")
    def _a_sample_is_for_references(self) -> "Recipe":
        if not self.train.sampled_softmax:
            return self
        if self.train.label_smoothing:
            raise ValueError("train.sampled_softmax is for references as they are: set train.label_smoothing=0")
        if self.teacher is not None or self.data.is_labelled:
            raise ValueError("train.sampled_softmax is for references, without teacher or labels: set it to 0")
        return self

"""Objectives: ways of training, each of which maps (model, batch, step) to a loss. One file each."""

from collections.abc import Sequence

from anydepth.config import ModelConfig, ObjectiveConfig, TeacherConfig
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.objectives.base import Finished, Loss, Objective, TranslationObjective
from anydepth.objectives.distillation import Distillation, Teacher
from anydepth.objectives.flexible import Flexible
from anydepth.objectives.halting import Halting
from anydepth.objectives.latent import Latent
from anydepth.objectives.layerdrop import LayerDrop
from anydepth.objectives.tied_multi import TiedMulti
from anydepth.objectives.vanilla import Vanilla
from anydepth.objectives.word_depths import ByWord

OBJECTIVES: dict[str, type[TranslationObjective]] = {
    "vanilla": Vanilla,
    "tied-multi": TiedMulti,
    "flexible": Flexible,
    "layerdrop": LayerDrop,
    "latent": Latent,
    "word-depths": ByWord,
    "halting": Halting,
}

__all__ = [
    "OBJECTIVES",
    "Distillation",
    "Finished",
    "Loss",
    "Objective",
    "TranslationObjective",
    "make_distillation",
    "make_objective",
]


def make_objective(
    config: ObjectiveConfig,
    model: ModelConfig,
    label_smoothing: float,
    seed: int,
    pairs: Sequence[str] = ("",),
    classifies: bool = False,
) -> TranslationObjective:
    kind = OBJECTIVES[config.name]
    if kind.only_classifies and not classifies:
        raise UserError(f"objective {config.name} is for classification: give labelled texts, or choose another")
    if not model.decoder_layers and not kind.takes_encoder_alone:
        able = ", ".join(name for name, kind in OBJECTIVES.items() if kind.takes_encoder_alone)
        raise UserError(
            f"objective {config.name} needs a decoder; an encoder-only model is trained with one of: {able}"
        )
    return kind(config, model, label_smoothing, seed, tuple(pairs))


def make_distillation(
    config: TeacherConfig, teacher: tuple[Transformer, DepthMenu] | None, objective: TranslationObjective
) -> Distillation:
    """What a teacher, or without one the student's own deepest exit, adds to an objective."""
    menu, student = objective.menu(), objective.model_config
    if config.matches_layers and any(entry.subnetwork.by_word for entry in menu):
        raise UserError("where each word has its own depth there are no layers to match: set teacher.method=rkd")
    if teacher is None:
        if len(menu) == 1:
            raise UserError(
                f"teacher.model: self needs an objective with several depths, and {objective.config.name} has one: "
                "give another model, or set objective.name=tied-multi"
            )
        one = Teacher(None, student, menu.deepest.subnetwork)
    else:
        model, offered = teacher
        try:
            entry = offered.deepest if config.depth is None else offered[config.depth]
        except UserError as error:
            raise UserError(f"teacher.depth: {str(error).replace('this model', 'the teacher')}") from error
        if entry.subnetwork.by_word:
            raise UserError("a model in which each word has its own depth cannot teach: choose another teacher")
        one = Teacher(model.requires_grad_(False).eval(), model.config, entry.subnetwork)
    return Distillation(config, one, student, menu, objective.seed)

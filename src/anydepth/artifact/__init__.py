"""The model folder, its card, and the bundled model.

Nothing is imported here that needs PyTorch: the bundled model is found without it.
"""

from pathlib import Path

from anydepth.errors import UserError

BUNDLED = "pt-en"
_PACKAGE = Path(__file__).parents[1]
PLACES = (_PACKAGE / "models", _PACKAGE.parents[1] / "models")  # as it is installed, and in a checkout


def bundled_model() -> Path:
    """The folder of the model that runs when none is named."""
    for place in PLACES:
        if (place / BUNDLED / "config.json").is_file():
            return place / BUNDLED
    raise UserError("this installation has no bundled model: name one, a model folder or a finished run")


def short_name(model: Path) -> str:
    """The folder's name; for the model of a run, the run's."""
    path = model.resolve()
    of_run = path.name == "model" and (path.parent / "recipe.json").exists()
    return path.parent.name if of_run else path.name

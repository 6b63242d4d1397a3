"""The model in the box: what runs when no model is named."""

from pathlib import Path

from anydepth.errors import UserError

NAME = "fr-en"
_HERE = Path(__file__).parents[1]
PLACES = (_HERE / "models", _HERE.parents[1] / "models")  # as it is installed, and in a checkout


def bundled_model() -> Path:
    for place in PLACES:
        if (place / NAME / "config.json").is_file():
            return place / NAME
    raise UserError("this installation has no model in the box: name one, a model folder or a finished run")

"""Train one Transformer, run it at any depth.

import anydepth
translator = anydepth.load("runs/demo")
translator.translate(["Bonjour tout le monde."], depth="3-1")
anydepth.load("runs/reviews").classify(["a truly terrible thriller"])
"""

from pathlib import Path
from typing import TYPE_CHECKING

from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.classifier import Classifier
    from anydepth.infer.translator import Translator

__all__ = ["UserError", "load"]
__version__ = "0.1.0"


def load(path: Path | str, device: str = "cpu") -> "Translator | Classifier":
    """A Translator, or a Classifier, from a model folder or from the folder of a finished run."""
    from anydepth.artifact import load_any  # PyTorch is imported only when it is needed

    return load_any(path, device)

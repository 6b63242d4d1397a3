"""Train one Transformer, run it at any depth.

import anydepth
translator = anydepth.load("runs/demo")  # with engine="auto" it is faster
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


def load(
    path: Path | str | None = None,
    device: str = "cpu",
    engine: str = "torch",
    quantize: str | None = None,
    *,
    speculate: bool = False,
    shortlist: bool = False,
) -> "Translator | Classifier":
    """A Translator, or a Classifier, from a model folder or from the folder of a finished run; by default the model in
    the box. Translators also run on other engines: "native", in int8; "ctranslate2", there with numbers such as int8;
    or "auto", the fastest that is here. `speculate` and `shortlist` as for `anydepth translate`."""
    from anydepth.artifact.bundled import bundled_model
    from anydepth.artifact.model import load_any  # PyTorch is imported only when it is needed
    from anydepth.engines.auto import on_engine
    from anydepth.infer.classifier import Classifier

    found = load_any(bundled_model() if path is None else path, device)
    if isinstance(found, Classifier):
        if engine not in ("auto", "torch"):
            raise UserError(f"{engine} takes models that translate; {path} classifies: use the engine torch")
        return found
    return on_engine(found, engine, None, quantize, speculate=speculate, shortlist=shortlist)

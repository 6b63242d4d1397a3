"""Train one Transformer, run it at any depth.

    from anydepth import Classifier, Translator

    translator = Translator.load("runs/demo")
    translator.translate("Bom dia a todos.", depth="3-1")
    Classifier.load("runs/reviews").classify("a truly terrible thriller").label

Mistakes that a user can mend raise `UserError`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.config import Recipe
    from anydepth.infer.classifier import Classifier
    from anydepth.infer.translator import Translator

__all__ = ["Classifier", "Translator", "UserError", "__version__", "load", "train"]
__version__ = "0.1.0"


def load(
    path: Path | str | None = None,
    *,
    engine: str = "auto",
    device: str = "auto",
    threads: int | None = None,
    quantize: str | None = None,
    speculate: bool = False,
    shortlist: bool | None = None,
) -> "Translator | Classifier":
    """Whichever the folder holds: a Translator or a Classifier; by default the bundled model, Portuguese to English.

    Where you know which it is, `Translator.load` and `Classifier.load` take more options, and type checkers know what
    they return. Arguments as there.
    """
    from anydepth.artifact import bundled_model
    from anydepth.artifact.model import load_model
    from anydepth.engines.auto import EngineOptions, make_classifier_engine, make_engine, refuse_translation_options
    from anydepth.infer.text_model import DEFERRED, set_threads
    from anydepth.infer.translator import Translator

    set_threads(threads)
    loaded = load_model(bundled_model() if path is None else path, device, defer=engine in DEFERRED)
    if loaded.kind == "classifier":
        refuse_translation_options(quantize, speculate, shortlist)
        from anydepth.infer.classifier import Classifier

        return Classifier(loaded, make_classifier_engine(loaded, engine, threads))
    return Translator(loaded, make_engine(loaded, engine, EngineOptions(threads, quantize, speculate, shortlist)))


def train(recipe: "Path | str | Recipe", out: Path | str, *, overrides: Sequence[str] = ()) -> Path:
    """Train a model, or go on where training stopped; return the folder of the finished model.

    Args:
        recipe: A recipe file, or a Recipe.
        out: The folder of the run.
        overrides: Changes to a recipe file, such as "train.steps=500".
    """
    from anydepth.config import Recipe
    from anydepth.config.reading import read_recipe
    from anydepth.training.run import train as run_recipe

    if isinstance(overrides, str):
        raise UserError(f"overrides is one string: give a list, [{overrides!r}]")
    return run_recipe(recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe), overrides), Path(out))


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> object:
    """Translator and Classifier are imported when they are asked for: `import anydepth` stays cheap."""
    if name == "Translator":
        from anydepth.infer.translator import Translator

        return Translator
    if name == "Classifier":
        from anydepth.infer.classifier import Classifier

        return Classifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Translate with a model file of anydepth, at any depth.

    from anydepth_runtime import Translator

    translator = Translator("pt-en.anydepth")
    translator.translate("Bom dia!", depth="2-2")

Whatever goes wrong raises `RuntimeFileError`, `TranslationError` or one of its subclasses.
"""

from anydepth_runtime.translator import (
    Depth,
    Hypothesis,
    RuntimeFileError,
    StoppedError,
    TooLongError,
    TranslationError,
    Translator,
    kernels,
)

__all__ = [
    "Depth",
    "Hypothesis",
    "RuntimeFileError",
    "StoppedError",
    "TooLongError",
    "TranslationError",
    "Translator",
    "__version__",
    "kernels",
]
__version__ = "0.1.0"

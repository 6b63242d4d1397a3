"""From text to text: search over token ids, and the Translator around it."""

from anydepth.infer.translator import Hypothesis, Translator

__all__ = ["Hypothesis", "Translator"]

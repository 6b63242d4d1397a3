"""From text to text: search over token ids, and the Translator around it."""

from anydepth.infer.hypothesis import Hypothesis
from anydepth.infer.translator import Translator

__all__ = ["Hypothesis", "Translator"]

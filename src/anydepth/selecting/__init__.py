"""From sentences to a trained selector and its report: the composition, as recipe.py is for models."""

from anydepth.selecting.fitting import candidates, fine_tune, fit_selector, search_selector
from anydepth.selecting.inputs import Sample, check_model, read_sample
from anydepth.selecting.work import Work

__all__ = [
    "Sample",
    "Work",
    "candidates",
    "check_model",
    "fine_tune",
    "fit_selector",
    "read_sample",
    "search_selector",
]

"""Corpora, cleaning, the tokenizer, token files and batches; ready-made data sets.

Modules are imported when a name of theirs is asked for: most need PyTorch, and the tokenizer does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anydepth.data.batching import Batch, BatchStream, PairStream, alike, plan_epoch, stacked
    from anydepth.data.masking import MaskedStream, mask_and_vocabulary, masked_batches
    from anydepth.data.preparation import Prepared, PreparedPair, prepare
    from anydepth.data.shards import PairStore
    from anydepth.data.tokenizer import Tokenizer

__all__ = [
    "Batch",
    "BatchStream",
    "MaskedStream",
    "PairStore",
    "PairStream",
    "Prepared",
    "PreparedPair",
    "Tokenizer",
    "alike",
    "mask_and_vocabulary",
    "masked_batches",
    "plan_epoch",
    "prepare",
    "stacked",
]

_MODULES = {
    "batching": ("Batch", "BatchStream", "PairStream", "alike", "plan_epoch", "stacked"),
    "masking": ("MaskedStream", "mask_and_vocabulary", "masked_batches"),
    "preparation": ("Prepared", "PreparedPair", "prepare"),
    "shards": ("PairStore",),
    "tokenizer": ("Tokenizer",),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

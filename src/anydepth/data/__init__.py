"""Corpora, cleaning, the tokenizer, token files and batches; ready-made data sets.

Modules are imported when a name of theirs is asked for: most need PyTorch, and the tokenizer does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anydepth.data.batching import Batch, BatchStream, PairStream, alike, make_batch, plan_epoch, stacked
    from anydepth.data.cleaning import Cleaner, CleaningCounts
    from anydepth.data.corpus import Pair, decode_lines, read_lines, read_pairs
    from anydepth.data.datasets import DATA_SETS, fetch
    from anydepth.data.masking import MaskedStream, mask_and_vocabulary, mask_batch, masked_batches
    from anydepth.data.preparation import Prepared, PreparedPair, prepare
    from anydepth.data.shards import PairStore, StoreWriter
    from anydepth.data.split import HoldOut, split_pairs
    from anydepth.data.tokenizer import MASK, Tokenizer

__all__ = [
    "DATA_SETS",
    "MASK",
    "Batch",
    "BatchStream",
    "Cleaner",
    "CleaningCounts",
    "HoldOut",
    "MaskedStream",
    "Pair",
    "PairStore",
    "PairStream",
    "Prepared",
    "PreparedPair",
    "StoreWriter",
    "Tokenizer",
    "alike",
    "decode_lines",
    "fetch",
    "make_batch",
    "mask_and_vocabulary",
    "mask_batch",
    "masked_batches",
    "plan_epoch",
    "prepare",
    "read_lines",
    "read_pairs",
    "split_pairs",
    "stacked",
]

_MODULES = {
    "batching": ("Batch", "BatchStream", "PairStream", "alike", "make_batch", "plan_epoch", "stacked"),
    "cleaning": ("Cleaner", "CleaningCounts"),
    "corpus": ("Pair", "decode_lines", "read_lines", "read_pairs"),
    "datasets": ("DATA_SETS", "fetch"),
    "masking": ("MaskedStream", "mask_and_vocabulary", "mask_batch", "masked_batches"),
    "preparation": ("Prepared", "PreparedPair", "prepare"),
    "shards": ("PairStore", "StoreWriter"),
    "split": ("HoldOut", "split_pairs"),
    "tokenizer": ("MASK", "Tokenizer"),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

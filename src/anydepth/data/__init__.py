"""Corpora, cleaning, the tokenizer, token files and batches; ready-made data sets."""

from anydepth.data.batching import Batch, BatchStream, PairStream, alike, plan_epoch, stacked
from anydepth.data.masking import MaskedStream, mask_and_vocabulary, masked_batches
from anydepth.data.prepare import Prepared, PreparedPair, prepare
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

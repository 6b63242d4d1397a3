"""Corpora, cleaning, the tokenizer, token files and batches; ready-made data sets."""

from anydepth.data.batching import Batch, BatchStream, PairStream, alike, make_batch, plan_epoch, stacked
from anydepth.data.cleaning import Cleaner, CleaningCounts
from anydepth.data.corpus import Pair, decode_lines, read_lines, read_pairs
from anydepth.data.datasets import DATA_SETS, fetch
from anydepth.data.masking import MaskedStream, mask_and_vocabulary, mask_batch, masked_batches
from anydepth.data.prepare import Prepared, PreparedPair, prepare
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

"""Corpora, cleaning, the tokenizer, token files and batches; ready-made data sets."""

from anydepth.text.batches import Batch, BatchStream, alike, make_batch, plan_epoch, stacked
from anydepth.text.clean import Cleaner, CleaningCounts
from anydepth.text.corpus import Pair, decode_lines, read_lines, read_pairs
from anydepth.text.datasets import DATA_SETS, fetch
from anydepth.text.masking import MASK, MaskedStream, mask_and_vocabulary, mask_batch, masked_batches
from anydepth.text.mixing import PairStream
from anydepth.text.prepare import Prepared, PreparedPair, prepare
from anydepth.text.split import HoldOut, split_pairs
from anydepth.text.store import PairStore, StoreWriter
from anydepth.text.tokenizer import Tokenizer

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

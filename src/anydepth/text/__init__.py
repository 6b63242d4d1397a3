"""Corpora, cleaning, the tokenizer, token files and batches; ready-made data sets."""

from anydepth.text.batches import Batch, BatchStream, make_batch, plan_epoch
from anydepth.text.clean import Cleaner, CleaningCounts
from anydepth.text.corpus import Pair, decode_lines, read_lines, read_pairs
from anydepth.text.datasets import DATA_SETS, fetch
from anydepth.text.prepare import Prepared, prepare
from anydepth.text.split import HoldOut, split_pairs
from anydepth.text.store import PairStore, StoreWriter
from anydepth.text.tokenizer import Tokenizer

__all__ = [
    "DATA_SETS",
    "Batch",
    "BatchStream",
    "Cleaner",
    "CleaningCounts",
    "HoldOut",
    "Pair",
    "PairStore",
    "Prepared",
    "StoreWriter",
    "Tokenizer",
    "decode_lines",
    "fetch",
    "make_batch",
    "plan_epoch",
    "prepare",
    "read_lines",
    "read_pairs",
    "split_pairs",
]

"""Tables whose best depth a sentence's length decides, on top of noise that nobody can foresee."""

from dataclasses import replace

import numpy as np
from conftest import toy_pairs

from anydepth.evaluate.every_depth import EveryDepth
from anydepth.infer.translator import Translator
from anydepth.selectors.calibration import LengthCost

DEPTHS = ("1-1", "2-1", "1-2", "2-2")
COSTS = tuple(LengthCost(0.05 * (k + 1), 0.02 * (k + 1)) for k in range(4))
LONG = 8  # subwords with EOS from which the deepest depth is the better one


def is_long(translator: Translator, sources: list[str]) -> np.ndarray:
    return np.array([len(ids) + 1 >= LONG for ids in translator.tokenizer.encode_many(sources)])


def made_table(translator: Translator, count: int, seed: int) -> EveryDepth:
    """Of short sentences 1-1 is the best by far, of long ones 2-2."""
    sources, references = (tuple(side) for side in zip(*toy_pairs(count, seed), strict=True))
    rng = np.random.default_rng(seed)
    chrf_nk = rng.uniform(40, 60, (count, 1)) + rng.uniform(0, 5, (count, 4))
    chrf_nk[np.arange(count), np.where(is_long(translator, sources), 3, 0)] += 20
    bleu_nks = np.ones((count, 4, 10), np.int32)
    lengths_n1 = np.array([[len(ids) + 1] for ids in translator.tokenizer.encode_many(sources)])
    likelihood_nk = (chrf_nk / 40 - 3) * lengths_n1  # nats for the whole sentence
    table = EveryDepth(DEPTHS, sources, references, (references,) * 4, chrf_nk.astype(np.float32), bleu_nks)
    return replace(table, likelihood_nk=likelihood_nk.astype(np.float32))

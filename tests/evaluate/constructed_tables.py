"""Tables of every depth made by hand: a better depth gets more words right."""

import random

import numpy as np
from sacrebleu.metrics import BLEU

from anydepth.evaluate.every_depth import EveryDepth
from anydepth.evaluate.metrics import sentence_chrf
from anydepth.evaluate.tradeoff import Tradeoff

VOCABULARY = ["red", "green", "small", "house", "tree", "river", "walks", "sings", "old", "of", "the", "stone"]


def make_table(columns: dict[str, list[str]], references: list[str]) -> EveryDepth:
    """Scored as a real one is."""
    bleu = BLEU(effective_order=True)
    scores = [
        [bleu.sentence_score(output, [line]) for output, line in zip(outputs, references, strict=True)]
        for outputs in columns.values()
    ]
    bleu_kns = [[[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in row] for row in scores]
    chrf_kn = [sentence_chrf(outputs, references) for outputs in columns.values()]
    sources = tuple(f"source {line}" for line in references)
    outputs = tuple(map(tuple, columns.values()))
    statistics = np.array(bleu_kns, np.int32).transpose(1, 0, 2)
    return EveryDepth(tuple(columns), sources, tuple(references), outputs, np.array(chrf_kn, np.float32).T, statistics)


def noisy_table(right: dict[str, float], count: int = 60, seed: int = 1) -> EveryDepth:
    """Depths that get this share of the words right."""
    rng = random.Random(seed)
    references = [[rng.choice(VOCABULARY) for _ in range(rng.randint(4, 12))] for _ in range(count)]

    def spoilt(words: list[str], share: float) -> str:
        return " ".join(word if rng.random() < share else rng.choice(VOCABULARY) for word in words)

    columns = {depth: [spoilt(words, share) for words in references] for depth, share in right.items()}
    return make_table(columns, [" ".join(words) for words in references])


def with_costs(table: EveryDepth, *seconds_k: float) -> Tradeoff:
    """Every sentence costs the same."""
    return Tradeoff(table, np.tile(np.array(seconds_k), (len(table), 1)))

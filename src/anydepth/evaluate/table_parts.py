"""Tables of every depth in parts: rows of one, several joined, and a split that keeps equal sources together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydepth.data.cleaning import digest
from anydepth.evaluate.depth_table import EveryDepth

SHARES = {"train": 0.6, "valid": 0.2, "test": 0.2}
DIGESTS = 2**64  # a digest is below this


def rows_of(table: EveryDepth, rows: Sequence[int] | NDArray[np.integer[Any]]) -> EveryDepth:
    """The table of these sentences alone, in this order."""
    chosen = np.asarray(rows, dtype=np.intp)
    return EveryDepth(
        table.depths,
        tuple(table.sources[row] for row in chosen),
        tuple(table.references[row] for row in chosen),
        tuple(tuple(lines[row] for row in chosen) for lines in table.outputs),
        table.chrf_nk[chosen],
        table.bleu_nks[chosen],
        None if table.likelihood_nk is None else table.likelihood_nk[chosen],
    )


def joined(tables: Sequence[EveryDepth]) -> EveryDepth:
    """One below the other; all have the same depths."""
    outputs = zip(*(table.outputs for table in tables), strict=True)
    likelihoods = [table.likelihood_nk for table in tables if table.likelihood_nk is not None]
    return EveryDepth(
        tables[0].depths,
        tuple(text for table in tables for text in table.sources),
        tuple(text for table in tables for text in table.references),
        tuple(tuple(line for lines in pieces for line in lines) for pieces in outputs),
        np.concatenate([table.chrf_nk for table in tables]),
        np.concatenate([table.bleu_nks for table in tables]),
        None if len(likelihoods) < len(tables) else np.concatenate(likelihoods),
    )


def split_by_source(table: EveryDepth, seed: int) -> dict[str, EveryDepth]:
    return {name: rows_of(table, rows) for name, rows in rows_of_parts(table.sources, seed).items()}


def rows_of_parts(sources: Sequence[str], seed: int) -> dict[str, NDArray[np.intp]]:
    """About 60, 20 and 20 %. Where a sentence goes depends on its source and the seed, and on nothing else."""
    place_n = np.array([digest(source, b"%d" % seed) / DIGESTS for source in sources])
    borders = np.cumsum([0.0, *SHARES.values()])
    borders[-1] = np.inf
    parts = zip(SHARES, borders, borders[1:], strict=False)
    return {name: np.flatnonzero((low <= place_n) & (place_n < high)) for name, low, high in parts}

"""Random numbers that depend only on their key, so that any process can draw them for any sentence."""

import numpy as np
import numpy.typing as npt

ENCODER, DECODER = 0, 1  # a key that separates the random numbers of the two sides

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _scramble(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of the SplitMix64 generator (Steele et al. 2014): a good 64-bit hash."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def keyed_uniform(*keys: int | npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), one for each combination of the broadcast integer keys."""
    state = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for key in keys:
            state = _scramble((state + _GOLDEN) ^ np.asarray(key).astype(np.uint64) * _MIX_2)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53

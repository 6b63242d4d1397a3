import random

import numpy as np
import pytest

from anydepth.data.cleaning import DigestSet


@pytest.mark.parametrize("seed", range(5))
def test_it_knows_what_a_set_knows(seed):
    rng = random.Random(seed)
    seen, known = DigestSet(), set()
    for _ in range(60):
        numbers = [
            rng.choice((0, 2**64 - 1, rng.randrange(500), rng.randrange(2**64))) for _ in range(rng.randrange(40))
        ]
        expected = []
        for number in numbers:
            expected.append(number not in known)
            known.add(number)
        assert seen.add(np.array(numbers, np.uint64)).tolist() == expected
        assert len(seen) == len(known)
    assert len(seen._runs) < 15

"""What depth buys: decoding at 6-1 against 6-6, batch 1, width 256, one thread.

python benchmarks/depths.py [--repeats 15]
"""

from functools import partial

import numpy as np
import torch
import typer
from common import interleaved, print_versions, random_model

from anydepth.artifact.weights import arrange_for_decoding
from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.base import SearchOptions
from anydepth.engines.torch import search

LENGTH, VOCABULARY = 25, 8000


def main(repeats: int = 15) -> None:
    torch.set_num_threads(1)
    print_versions()
    model = random_model(256, 6, VOCABULARY).eval()
    arrange_for_decoding(model)
    source = [*np.random.default_rng(1).integers(4, VOCABULARY, LENGTH).tolist(), Tokenizer.EOS]
    options = SearchOptions(min_length=LENGTH, scores=False)

    def decode(sub: SubNetwork) -> None:
        search(model, sub, [source], [LENGTH], options)

    depths = [SubNetwork.prefix(6, m) for m in (6, 3, 2, 1)]
    seconds = interleaved({sub.name: partial(decode, sub) for sub in depths}, repeats)
    for name, value in seconds.items():
        bar = " (bar 4x)" if name == "6-1" else ""
        print(f"{name}: {seconds['6-6'] / value:.2f}x as fast as 6-6{bar}")


if __name__ == "__main__":
    typer.run(main)

"""Our decoding against CTranslate2 float32: same weights, same output, one thread. Ratio above 1: we are faster.

python benchmarks/decoding.py [--repeats 5]
"""

import tempfile
from pathlib import Path

import ctranslate2
import numpy as np
import torch
import typer
from common import interleaved, print_versions, random_model

from anydepth.artifact.weights import arrange_for_decoding
from anydepth.data import Tokenizer
from anydepth.engines.base import SearchOptions
from anydepth.engines.ctranslate2 import convert, write
from anydepth.engines.torch import search
from anydepth.model import Transformer

LENGTH = 25
SIZES = {"width 512, 6-6, vocabulary 32k": (512, 6, 32_000), "width 256, 6-6, vocabulary 8k": (256, 6, 8_000)}
BARS = {(256, 1): 0.65}


def main(repeats: int = 5, only: str = "") -> None:
    torch.set_num_threads(1)
    print_versions("ctranslate2")
    for size, (width, layers, vocabulary) in SIZES.items():
        if only not in size:
            continue
        model = random_model(width, layers, vocabulary).eval()
        peer = to_ctranslate2(model)
        arrange_for_decoding(model)
        rng = np.random.default_rng(1)
        for batch in (1, 32):
            sources = [[*rng.integers(4, vocabulary, LENGTH).tolist(), Tokenizer.EOS] for _ in range(batch)]
            for beam in (1, 4):
                ratio, same = compare(model, peer, sources, beam, repeats * (5 if batch == 1 else 1))
                bar = BARS.get((width, batch), 0.8)
                print(f"{size}, batch {batch:2}, beam {beam}: {ratio:.2f}x (bar {bar}x), same output {same}/{batch}")


def compare(
    model: Transformer, peer: ctranslate2.Translator, sources: list[list[int]], beam: int, repeats: int
) -> tuple[float, int]:
    """How many times faster we are, and for how many sources the best outputs agree."""
    sub, limits = model.full, [LENGTH] * len(sources)
    options = SearchOptions(beam=beam, length_penalty=0.0, min_length=LENGTH, scores=False)
    texts = [[str(token) for token in source[:-1]] for source in sources]  # it adds EOS itself
    peer_options = {
        "beam_size": beam,
        "max_batch_size": len(sources),
        "min_decoding_length": LENGTH,
        "max_decoding_length": LENGTH,
        "length_penalty": 0.0,
    }

    def ours() -> list[list[int]]:
        return [list(found[0].tokens) for found in search(model, sub, sources, limits, options)]

    def theirs() -> list[list[int]]:
        return [[int(t) for t in found.hypotheses[0]] for found in peer.translate_batch(texts, **peer_options)]

    same = sum(a == b for a, b in zip(ours(), theirs(), strict=True))
    seconds = interleaved({"ours": ours, "ctranslate2": theirs}, repeats)
    return seconds["ctranslate2"] / seconds["ours"], same


def to_ctranslate2(model: Transformer) -> ctranslate2.Translator:
    """The full model in CTranslate2's format, loaded with one thread. Its vocabulary is our token numbers."""
    names = [str(i) for i in range(model.vocabulary)]
    with tempfile.TemporaryDirectory() as folder:
        write(convert(model, model.full, names), Path(folder))
        return ctranslate2.Translator(folder, compute_type="float32", inter_threads=1, intra_threads=1)


if __name__ == "__main__":
    typer.run(main)

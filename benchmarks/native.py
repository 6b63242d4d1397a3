"""Our native engine against CTranslate2 int8: same weights, one core, 25 tokens in and out. Above 1: we are faster.

python benchmarks/native.py [--rounds 7] [--only 512]

CTranslate2 runs with one thread and the settings that were fastest here; both search the whole vocabulary. "Decoder
only" is the time of 25 tokens less that of one. Ratios are medians of those of interleaved rounds.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import ctranslate2
import numpy as np
import torch
from common import print_versions, random_model

from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.ctranslate2 import convert, write
from anydepth.engines.native import NativeModel, kernels
from anydepth.engines.native_format import packed
from anydepth.model import Transformer

LENGTH = 25
Run = Callable[[int], object]  # with so many tokens of output


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--kernels", help="such as avx2; by default the fastest")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_versions("ctranslate2")
    print(f"kernels: {arguments.kernels or kernels()}")
    for width, vocabulary, bars in (
        (512, 32_000, {"whole": 3.0, "decoder": 3.3, "beam": 2.0, "batch": 1.2}),
        (256, 8_000, {"whole": 2.7, "whole 3": 2.3, "whole 1": 2.0, "decoder": 3.3, "beam": 2.0, "batch": 1.2}),
    ):
        if arguments.only not in str(width):
            continue
        model = random_model(width, 6, vocabulary).eval()
        native = NativeModel(packed(model), arguments.kernels)
        print(f"\nwidth {width}, 6-6, vocabulary {vocabulary:,}: {native.memory / 1e6:.0f} MB of weights")
        measure(model, native, bars, arguments.rounds)


def measure(model: Transformer, native: NativeModel, bars: dict[str, float], rounds: int) -> None:
    for m in (6, 3, 1):
        sub = SubNetwork.prefix(6, m)
        peer = to_ctranslate2(model, sub)
        ours, theirs = ways(model, native, sub, peer, 1, 1)
        name = "whole" if m == 6 else f"whole {m}"
        show(f"batch 1, greedy, 6-{m}, whole sentence", ratio(ours, theirs, rounds), bars.get(name))
        show(
            f"batch 1, greedy, 6-{m}, decoder only",
            decoder_ratio(ours, theirs, rounds),
            bars["decoder"] if m == 6 else None,
        )
        if m == 6:
            show("batch 1, beam 4, 6-6", ratio(*ways(model, native, sub, peer, 1, 4), rounds), bars["beam"])
            show("batch 32, greedy, 6-6", ratio(*ways(model, native, sub, peer, 32, 1), rounds), bars["batch"])
            show("batch 32, beam 4, 6-6", ratio(*ways(model, native, sub, peer, 32, 4), max(3, rounds // 2)), None)


def show(what: str, found: list[float], bar: float | None) -> None:
    against = "" if bar is None else f" (bar {bar}x)"
    print(f"{what}: {median(found):.2f}x{against}, rounds {min(found):.2f} to {max(found):.2f}", flush=True)


def ways(
    model: Transformer, native: NativeModel, sub: SubNetwork, peer: ctranslate2.Translator, batch: int, beam: int
) -> tuple[Run, Run]:
    rng = np.random.default_rng(1)
    sources = [[*rng.integers(4, model.vocabulary, LENGTH - 1).tolist(), Tokenizer.EOS] for _ in range(batch)]
    texts = [[str(token) for token in source[:-1]] for source in sources]  # it adds EOS itself

    def ours(length: int) -> object:
        options = SearchOptions(beam=beam, length_penalty=0.0, min_length=length, scores=False)
        return native.search(sub, SearchBatch(sources, [length] * batch), options)

    def theirs(length: int) -> object:
        return peer.translate_batch(
            texts,
            beam_size=beam,
            max_batch_size=batch,
            min_decoding_length=length,
            max_decoding_length=length,
            length_penalty=0.0,
        )

    return ours, theirs


def seconds(run: Run, length: int, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        run(length)
    return (time.perf_counter() - began) / times


def ratio(ours: Run, theirs: Run, rounds: int) -> list[float]:
    times = max(1, int(0.1 / seconds(ours, LENGTH, 1)))
    theirs(LENGTH)
    return [seconds(theirs, LENGTH, times) / seconds(ours, LENGTH, times) for _ in range(rounds)]


def decoder_ratio(ours: Run, theirs: Run, rounds: int) -> list[float]:
    times = max(1, int(0.1 / seconds(ours, LENGTH, 1)))
    rows = [
        (
            seconds(theirs, LENGTH, times),
            seconds(ours, LENGTH, times),
            seconds(theirs, 1, times),
            seconds(ours, 1, times),
        )
        for _ in range(rounds)
    ]
    return [(they - they_encode) / (we - we_encode) for they, we, they_encode, we_encode in rows]


def to_ctranslate2(model: Transformer, sub: SubNetwork) -> ctranslate2.Translator:
    """Its vocabulary is our token numbers."""
    names = [str(i) for i in range(model.vocabulary)]
    with tempfile.TemporaryDirectory() as folder:
        write(convert(model, sub, names), Path(folder), "int8")
        return ctranslate2.Translator(folder, compute_type="int8", inter_threads=1, intra_threads=1)


if __name__ == "__main__":
    main()

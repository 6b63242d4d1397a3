"""Our native engine against CTranslate2 int8 by length, batch and shape: same weights, one thread, CPU time.

python benchmarks/native_shapes.py [--rounds 5] [--width 512] [--kernels avx2] [--case 1:25:25]...

A case is batch:source tokens:output tokens; greedy, 6-6, the whole vocabulary on both sides. Times are of CPU, rounds
interleaved; ratios are medians over the rounds. Above 1: we are faster. For AVX2 on both sides set
CT2_FORCE_CPU_ISA=AVX2, ONEDNN_MAX_CPU_ISA=AVX2 (the former leaves its products in AVX-512) and --kernels avx2.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import ctranslate2
import numpy as np
import torch
from common import print_versions, random_model
from native import to_ctranslate2

from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.native import NativeModel, kernels
from anydepth.engines.native_format import packed

VOCABULARY = {512: 32_000, 256: 8_000}
CASES = {
    "1": ("1:10:10", "1:25:25", "1:100:100", "1:200:200"),
    "encoder": ("1:200:1", "16:200:1"),
    "batch": ("32:25:25", "32:100:100", "32:200:200", "64:25:25", "64:100:100", "64:200:200"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each round and side, at least one run")
    parser.add_argument("--width", type=int, action="append")
    parser.add_argument("--kernels", help="such as avx2; by default the fastest")
    parser.add_argument("--case", action="append", help="batch:source:output, or 1, encoder, batch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_versions("ctranslate2")
    print(f"kernels: {arguments.kernels or kernels()}")
    given = arguments.case or list(CASES)
    cases = [case for one in given for case in CASES.get(one, (one,))]
    for width in arguments.width or VOCABULARY:
        model = random_model(width, 6, VOCABULARY[width]).eval()
        native = NativeModel(packed(model), arguments.kernels)
        sub = SubNetwork.prefix(6, 6)
        peer = to_ctranslate2(model, sub)
        print(f"width {width}, 6-6, vocabulary {model.vocabulary:,}")
        for case in cases:
            compare(model.vocabulary, native, sub, peer, case, arguments.rounds, arguments.seconds)


def compare(
    vocabulary: int,
    native: NativeModel,
    sub: SubNetwork,
    peer: ctranslate2.Translator,
    case: str,
    rounds: int,
    least: float,
) -> None:
    batch, source, output = map(int, case.split(":"))
    rng = np.random.default_rng(1)
    sources = [[*rng.integers(4, vocabulary, source - 1).tolist(), Tokenizer.EOS] for _ in range(batch)]
    texts = [[str(token) for token in one[:-1]] for one in sources]  # it adds EOS itself
    options = SearchOptions(beam=1, length_penalty=0.0, min_length=output, scores=False)

    def ours() -> object:
        return native.search(sub, SearchBatch(sources, [output] * batch), options)

    def theirs() -> object:
        return peer.translate_batch(
            texts,
            beam_size=1,
            max_batch_size=batch,
            min_decoding_length=output,
            max_decoding_length=output,
            length_penalty=0.0,
        )

    once = seconds(ours, 1)
    if once < 1:
        seconds(theirs, 1)
    times = max(1, int(least / once))
    found = [(seconds(theirs, times), seconds(ours, times)) for _ in range(rounds if once < 2 else min(rounds, 2))]
    ratios = [a / b for a, b in found]
    print(
        f"{case}: {median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"ours {1000 * median(b for _, b in found):.2f} ms",
        flush=True,
    )


def seconds(run: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - began) / times


if __name__ == "__main__":
    main()

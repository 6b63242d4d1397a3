"""Our native engine against CTranslate2 int8 with the same weights, over lengths and batches. Above 1: we are faster.

python benchmarks/native.py [TABLE ...] [--width 512] [--rounds 3] [--lengths 10 25 100 200] [--batches 1 8 32 64]

    greedy, beam       6-6, greedy or beam 4, as many tokens out as in: engines alone differ
    encoder, decoder   6-6, greedy, LENGTH tokens in and one out, or 10 in and LENGTH out
    shallow            6-1 of the same weights, greedy
    threads            greedy on two threads, both sides
    bundled            the bundled model on sentences of its sample of about LENGTH tokens, which end where they end

Width 512 has a vocabulary of 32,000 subwords, width 256 one of 8,000; but for `bundled`, weights are random and lengths
are forced. Both sides search the whole vocabulary; `bundled` once more with the lexical shortlist on both sides.
Ratios are medians of those of interleaved rounds: of CPU time on one thread, with the settings of CTranslate2 that were
fastest here; of elapsed time on two. "-": a run takes longer than --limit seconds.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import ctranslate2
import numpy as np
import torch
from common import print_versions, random_model

from anydepth.artifact import bundled_model
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.core import NativeModel, kernels
from anydepth.engines.ctranslate2 import convert, write
from anydepth.engines.native import NativeEngine
from anydepth.engines.native_format import packed
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator, on_engine
from anydepth.model import Transformer

VOCABULARIES = {512: 32_000, 256: 8_000}
BARS = {  # of some cells, at both widths: batch, length, ratio
    "greedy": {(1, 10): 3.5, (1, 25): 3.5, (1, 100): 3.2, (1, 200): 3.0}
    | {(batch, length): 1.5 for batch in (32, 64) for length in (25, 100, 200)},
    "encoder": {(1, 200): 1.5},
}
Run = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=[], help="default: all")
    parser.add_argument("--width", type=int, choices=sorted(VOCABULARIES), help="default: both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 25, 100, 200])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--kernels", help="such as avx2; by default the fastest")
    arguments = parser.parse_args()
    tables = arguments.tables or [*TABLES, "bundled"]
    if unknown := set(tables) - {*TABLES, "bundled"}:
        parser.error(f"there is no table {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    print_versions("ctranslate2")
    print(f"kernels: {arguments.kernels or kernels()}")
    for width, vocabulary in VOCABULARIES.items():
        if arguments.width in (None, width) and set(tables) & set(TABLES):
            peers = Peers(random_model(width, 6, vocabulary).eval(), arguments.kernels)
            print(f"\nwidth {width}, vocabulary {vocabulary:,}, random weights: {peers.native.memory / 1e6:.0f} MB")
            for name in tables:
                if name in TABLES:
                    show(name, TABLES[name](peers), arguments)
    if "bundled" in tables:
        for listed in (False, True):
            show("bundled, shortlist on both sides" if listed else "bundled", bundled(listed), arguments)


class Peers:
    """A model on both engines."""

    def __init__(self, model: Transformer, kernels: str | None) -> None:
        self.model, self.native = model, NativeModel(packed(model), kernels)
        self.menu = DepthMenu.of([SubNetwork.prefix(6, m) for m in (6, 1)])

    def ways(self, sub: SubNetwork, beam: int, threads: int, lengths: Callable[[int], tuple[int, int]]) -> "Cell":
        """`lengths` gives the tokens in and out for a length of the table."""
        engine = NativeEngine(self.native, self.model.config, self.menu, threads)
        translators: dict[bool, ctranslate2.Translator] = {}

        def cell(batch: int, length: int) -> tuple[Run, Run]:
            read, written = lengths(length)
            rng = np.random.default_rng(1)
            words = rng.integers(4, self.model.vocabulary, (batch, max(1, read - 1))).tolist()
            sources = [[*one, Tokenizer.EOS] for one in words]
            texts = [[str(token) for token in source[:-1]] for source in sources]  # it adds EOS itself
            share = -(-batch // threads)  # two threads take half of the sentences each
            batches = [
                SearchBatch(sources[i : i + share], [written] * len(sources[i : i + share]))
                for i in range(0, batch, share)
            ]
            options = SearchOptions(beam=beam, length_penalty=0.0, min_length=written, scores=False)

            def peer(within: bool) -> object:
                if within not in translators:
                    translators[within] = to_ctranslate2(self.model, sub, threads, within)
                return translators[within].translate_batch(
                    texts,
                    beam_size=beam,
                    max_batch_size=share,
                    min_decoding_length=written,
                    max_decoding_length=written,
                    length_penalty=0.0,
                )

            within = False
            if batch == 1 and threads > 1:  # a sentence: by one thread, or by all, whichever is faster
                peer(False), peer(True)
                by_one, by_all = (seconds(partial(peer, one), time.perf_counter, 3) for one in (False, True))
                within = by_all < by_one
            return lambda: list(engine.search([sub], batches, options)), lambda: peer(within)

        return cell, threads


Cell = tuple[Callable[[int, int], tuple[Run, Run]], int]
FULL, SHALLOW = SubNetwork.prefix(6, 6), SubNetwork.prefix(6, 1)
TABLES: dict[str, Callable[[Peers], Cell]] = {
    "greedy": lambda peers: peers.ways(FULL, 1, 1, lambda length: (length, length)),
    "beam": lambda peers: peers.ways(FULL, 4, 1, lambda length: (length, length)),
    "encoder": lambda peers: peers.ways(FULL, 1, 1, lambda length: (length, 1)),
    "decoder": lambda peers: peers.ways(FULL, 1, 1, lambda length: (10, length)),
    "shallow": lambda peers: peers.ways(SHALLOW, 1, 1, lambda length: (length, length)),
    "threads": lambda peers: peers.ways(FULL, 1, 2, lambda length: (length, length)),
}


def bundled(listed: bool) -> Cell:
    """Real text: the sentences of the sample whose lengths are nearest, repeated where the batch is larger."""
    model = Translator.load(engine="torch", device="cpu")
    texts = find_sample(model, bundled_model()).sources
    sizes = {text: len(ids) for text, ids in zip(texts, model.tokenizer.encode_many(texts), strict=True)}
    ours = on_engine(model, "native", 1, shortlist=listed)
    theirs = on_engine(model, "ctranslate2", 1, "int8", shortlist=listed)

    def cell(batch: int, length: int) -> tuple[Run, Run]:
        near = sorted(sizes, key=lambda text: abs(sizes[text] - length))[:8]
        chosen = [near[i % len(near)] for i in range(batch)]
        if batch == 1:  # a sentence alone is an accident: eight, one at a time
            return tuple(lambda way=way: [way.translate(text) for text in near] for way in (ours, theirs))  # type: ignore[return-value]
        return tuple(lambda way=way: way.translate(chosen, batch_size=batch) for way in (ours, theirs))  # type: ignore[return-value]

    return cell, 1


def show(name: str, table: Cell, arguments: argparse.Namespace) -> None:
    cell, threads = table
    clock = time.process_time if threads == 1 else time.perf_counter
    print(f"\n{name}: CTranslate2's time over ours, {threads} thread(s); rows are batches, columns lengths")
    print("batch " + "".join(f"{length:>16}" for length in arguments.lengths), flush=True)
    for batch in arguments.batches:
        found = [ratio(*cell(batch, length), clock, arguments.rounds, arguments.limit) for length in arguments.lengths]
        known = {} if arguments.kernels else BARS.get(name, {})
        bars = [known.get((batch, length)) for length in arguments.lengths]
        cells = [
            f"{'-' if one is None else f'{one:.2f}x'}{'' if bar is None else f' (bar {bar})'}"
            for one, bar in zip(found, bars, strict=True)
        ]
        print(f"{batch:>5} " + "".join(f"{one:>16}" for one in cells), flush=True)


def ratio(ours: Run, theirs: Run, clock: Callable[[], float], rounds: int, limit: float) -> float | None:
    first = seconds(ours, clock, 1)  # warms up
    if first > limit:
        return None
    theirs()
    times = max(1, int(0.05 / max(first, 1e-6)))
    return median(seconds(theirs, clock, times) / seconds(ours, clock, times) for _ in range(rounds))


def seconds(run: Run, clock: Callable[[], float], times: int) -> float:
    began = clock()
    for _ in range(times):
        run()
    return (clock() - began) / times


def to_ctranslate2(model: Transformer, sub: SubNetwork, threads: int, within: bool) -> ctranslate2.Translator:
    """Its vocabulary is our token numbers. Its threads share a sentence, or take batches side by side."""
    names = [str(i) for i in range(model.vocabulary)]
    inter, intra = (1, threads) if within else (threads, 1)
    with tempfile.TemporaryDirectory() as folder:
        write(convert(model, sub, names), Path(folder), "int8")
        return ctranslate2.Translator(folder, compute_type="int8", inter_threads=inter, intra_threads=intra)


if __name__ == "__main__":
    main()

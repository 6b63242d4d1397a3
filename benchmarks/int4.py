"""What int4 feed-forward weights save and cost against int8, on the native engine.

python benchmarks/int4.py [quality] [speed] [random] [--model M] [--source F --reference F] [--depths 1-1 6-3]
                          [--kernels avx2] [--rounds 9] [--sentences 60]

    quality   BLEU at the depths, with the model's shortlist if it has one
    speed     the same sentences in int8 and in int4, by batch size: above 1, int4 is faster
    random    the same for a 6-6 model of width 512 with random weights, 25 tokens in and out

Ratios are medians of those of interleaved rounds, of CPU time on one thread.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from common import print_versions, random_model

from anydepth.artifact import bundled_model
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.core import NativeModel, kernels
from anydepth.engines.native import NativeEngine
from anydepth.engines.native_format import packed
from anydepth.engines.shortlist import Shortlist
from anydepth.evaluate.metrics import score
from anydepth.export.runtime import build_runtime_file
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator

BATCHES = (1, 4, 8, 32)
WIDTH, LAYERS, VOCABULARY, LENGTH = 512, 6, 32_000, 25


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=[], help="default: all")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--depths", nargs="+", default=["1-1", "2-2", "4-3", "6-3"])
    parser.add_argument("--kernels")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sentences", type=int, default=60)
    arguments = parser.parse_args()
    parts = arguments.parts or ["quality", "speed", "random"]
    print_versions()
    print(f"kernels: {arguments.kernels or kernels()}")
    model = arguments.model or bundled_model()
    translator = Translator.load(model, engine="native", threads=1)
    sample = find_sample(translator, model, arguments.source, arguments.reference, 10_000)
    if "quality" in parts:
        quality(translator, sample.sources, sample.references, arguments.depths)
    if "speed" in parts:
        texts = sample.sources[: arguments.sentences]
        ids = translator.tokenizer.encode_many(texts)
        both = [native(translator, int4, arguments.kernels) for int4 in (False, True)]
        for depth in arguments.depths:
            show(f"depth {depth}", both, translator.menu[depth].subnetwork, ids, arguments.rounds)
    if "random" in parts:
        random = random_model(WIDTH, LAYERS, VOCABULARY).eval()
        sub = SubNetwork.prefix(LAYERS, LAYERS)
        rng = np.random.default_rng(1)
        ids = rng.integers(4, VOCABULARY, (32, LENGTH - 1)).tolist()
        both = []
        for int4 in (False, True):
            core = NativeModel(packed(random, int4=int4), arguments.kernels)
            both.append(NativeEngine(core, random.config, DepthMenu.of([sub]), 1))
        show(f"width {WIDTH}, 6-6", both, sub, ids, arguments.rounds)


def quality(translator: Translator, sources: list[str], references: list[str] | None, depths: list[str]) -> None:
    with TemporaryDirectory() as folder:
        files = {}
        for name, int4 in (("int8", False), ("int4", True)):
            path = Path(folder) / f"{name}.anydepth"
            path.write_bytes(build_runtime_file(translator, int4=int4))
            files[name] = Translator.load(path, engine="native")
            print(f"{name}: {path.stat().st_size / 1e6:.1f} MB")
        for depth in depths:
            found = {name: one.translate(sources, depth=depth, cut_long=True) for name, one in files.items()}
            before, after = (score(texts, references or found["int8"]).bleu for texts in found.values())
            print(f"{depth}: {before:.2f} BLEU in int8, {after:.2f} in int4 ({after - before:+.2f})", flush=True)


def native(translator: Translator, int4: bool, name: str | None) -> NativeEngine:
    loaded = translator.loaded
    core = NativeModel(packed(loaded.arrays, shortlist=Shortlist.find(loaded), int4=int4), name)
    listed = Shortlist.find(loaded) is not None
    return NativeEngine(core, loaded.config, loaded.menu.whole, 1, search_shortlist=listed)


def show(name: str, both: list[NativeEngine], sub: SubNetwork, ids: list[list[int]], rounds: int) -> None:
    """Outputs are made as long as sources: with other weights they would end elsewhere."""
    sources = [[*one, Tokenizer.EOS] for one in ids]
    options = SearchOptions(length_penalty=0.0, min_length=max(map(len, sources)), scores=False)
    cells = []
    for batch in BATCHES:
        chunks = [sources[i : i + batch] for i in range(0, len(sources), batch)]
        batches = [SearchBatch(chunk, [len(one) for one in chunk]) for chunk in chunks]
        old, new = (partial(seconds, engine, sub, batches, options) for engine in both)
        old(), new()
        cells.append(f"batch {batch} {median(old() / new() for _ in range(rounds)):.2f}x")
    print(f"{name}, int4 against int8: {', '.join(cells)}", flush=True)


def seconds(engine: NativeEngine, sub: SubNetwork, batches: list[SearchBatch], options: SearchOptions) -> float:
    began = time.process_time()
    list(engine.search([sub], batches, options))
    return time.process_time() - began


if __name__ == "__main__":
    main()

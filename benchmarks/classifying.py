"""Classifiers of MiniLM's size: the native engine in int8 against PyTorch in float32 and onnxruntime in both.

python benchmarks/classifying.py [--repeats 9] [--threads 1] [--kernels avx2]

Random weights, CPU time, interleaved, medians. Then a depth for each token, spread as in by_word.py, against full depth
of the same weights. What int8 costs in accuracy, `anydepth bench MODEL --source TEST.tsv` says of a trained model.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from by_word import SPREADS
from common import print_versions
from onnxruntime.quantization import QuantType, quantize_dynamic

from anydepth.artifact.weights import arrange_for_decoding
from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import ClassifierDepths, ClassifierEngine
from anydepth.engines.core import NativeModel, kernels
from anydepth.engines.native import NativeEngine
from anydepth.engines.native_format import packed
from anydepth.engines.onnx import OnnxClassifier, write_onnx_classifier
from anydepth.engines.torch import TorchEngine
from anydepth.model import Transformer

LAYERS, WIDTH, HEADS, VOCABULARY, CLASSES = 6, 384, 12, 30522, 2
FULL, WORDS = SubNetwork.prefix(LAYERS, 0), SubNetwork.words(LAYERS, 0)
BARS = {12: 5.0, 128: 3.0, 512: 2.0}  # against PyTorch in float32, at batch 1
ONNX_BAR = 1.2
SECONDS = 0.05  # of calls in one round at least


class DrawnDepths:
    """In place of a table of words: how deep each token of some texts goes."""

    def __init__(self, sources: list[list[int]], shares: tuple[float, ...], seed: int) -> None:
        rng = np.random.default_rng(seed)
        chosen = np.array(shares) / sum(shares)
        self.depths = {id(one): rng.choice(LAYERS, len(one), p=chosen) + 1 for one in sources}

    def of(self, ids: list[int]) -> list[int]:
        found: list[int] = self.depths[id(ids)].tolist()
        return found

    def of_many(self, sources: list[list[int]]) -> list[list[int]]:
        return [self.of(source) for source in sources]

    @property
    def mean(self) -> float:
        return float(np.concatenate(list(self.depths.values())).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kernels")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print_versions("onnxruntime")
    print(f"kernels {kernels(arguments.kernels)}")
    model = _random_classifier()
    native = NativeModel(packed(model), arguments.kernels)
    menu = DepthMenu.of([FULL])
    ways: dict[str, ClassifierEngine] = {
        "torch float32": TorchEngine(model),
        "native int8": NativeEngine(native, model.config, menu, arguments.threads),
    }
    with tempfile.TemporaryDirectory() as folder:
        plain, int8 = Path(folder, "model.onnx"), Path(folder, "int8.onnx")
        tokenizer: Tokenizer = object()  # type: ignore[assignment]  # not a PretrainedTokenizer: ids stay as they are
        write_onnx_classifier(model, FULL, plain, tokenizer)
        quantize_dynamic(plain, int8, weight_type=QuantType.QInt8)
        for name, path in (("onnxruntime float32", plain), ("onnxruntime int8", int8)):
            ways[name] = OnnxClassifier(FULL, path, arguments.threads, tokenizer, name.split()[1])
    for batch, length in ((1, 12), (1, 128), (1, 512), (16, 12), (16, 128)):
        _against_others(ways, _texts(batch, length), batch, length, arguments.repeats)
    for batch, length in ((1, 128), (16, 128), (16, 32)):
        for name, shares in SPREADS.items():
            _by_word(ways["native int8"], _texts(batch, length), name, shares, arguments.repeats)


def _random_classifier() -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(
        width=WIDTH,
        heads=HEADS,
        ffn=4 * WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=0,
        norm="post",
        activation="gelu",
        positions="learned",
        token_types=2,
        max_length=512,
        dropout=0.0,
    )
    model = Transformer(config, VOCABULARY, CLASSES).eval()
    arrange_for_decoding(model)
    return model


def _texts(batch: int, length: int) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [[*rng.integers(4, VOCABULARY, length - 1).tolist(), Tokenizer.EOS] for _ in range(batch)]


def _against_others(
    ways: dict[str, ClassifierEngine], texts: list[list[int]], batch: int, length: int, repeats: int
) -> None:
    calls = {name: partial(engine.classify, FULL, texts, ClassifierDepths()) for name, engine in ways.items()}
    seconds = _interleaved(calls, repeats)
    ours = seconds["native int8"]
    bars = {"torch float32": BARS[length], "onnxruntime int8": ONNX_BAR} if batch == 1 else {}
    ratios = [
        f"{name} {1000 * found:.2f} ms"
        + (f" ({found / ours:.2f}x" + (f", bar {bars[name]}x)" if name in bars else ")") if found is not ours else "")
        for name, found in seconds.items()
    ]
    print(f"batch {batch}, {length} tokens: " + ", ".join(ratios), flush=True)


def _by_word(
    engine: ClassifierEngine, texts: list[list[int]], name: str, shares: tuple[float, ...], repeats: int
) -> None:
    table = DrawnDepths(texts, shares, 1)
    depths = ClassifierDepths(table=table)  # type: ignore[arg-type]
    calls = {
        "full": partial(engine.classify, FULL, texts, ClassifierDepths()),
        "words": partial(engine.classify, WORDS, texts, depths),
    }
    seconds = _interleaved(calls, 2 * repeats)
    ratio, ideal = seconds["words"] / seconds["full"], table.mean / LAYERS
    print(
        f"batch {len(texts)}, {len(texts[0])} tokens, native, depths {name}: {ratio:.3f}x the time of full depth, "
        f"ideal {ideal:.3f}x, {ideal / ratio:.2f} of the ideal",
        flush=True,
    )


def _interleaved(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of a call; each round runs every way often enough to be measured."""
    times = {name: _cpu_seconds(call, 1) for name, call in calls.items() for _ in range(2)}
    counts = {name: max(1, round(SECONDS / max(found, 1e-6))) for name, found in times.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            seconds[name].append(_cpu_seconds(call, counts[name]))
    return {name: median(found) for name, found in seconds.items()}


def _cpu_seconds(call: Callable[[], object], count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - began) / count


if __name__ == "__main__":
    main()

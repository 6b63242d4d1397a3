"""What the benchmarks share: interleaved timing, and a line with everything that a figure depends on."""

import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from statistics import median

import numpy as np
import torch

from anydepth.config import ModelConfig
from anydepth.data import Batch
from anydepth.model import Transformer


def interleaved(
    ways: Mapping[str, Callable[[], object]], repeats: int, after: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Median seconds of each way. Each round runs every way once, so that a slow moment hits all of them.

    `after` each of them something may be tidied up, which is not timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        run()  # warm-up
        after()
    for _ in range(repeats):
        for name, run in ways.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
            after()
    return {name: median(values) for name, values in seconds.items()}


def print_versions(*packages: str) -> None:
    names = ("anydepth", "torch", *packages)
    found = ", ".join(f"{name} {version(name)}" for name in names)
    print(f"{found}, python {platform.python_version()}, {platform.machine()}, {torch.get_num_threads()} thread(s)")


def random_model(width: int, layers: int | tuple[int, int], vocabulary: int, dropout: float = 0.0) -> Transformer:
    """`layers` of encoder and decoder, or of each."""
    torch.manual_seed(1)
    n, m = (layers, layers) if isinstance(layers, int) else layers
    config = ModelConfig(
        width=width,
        heads=width // 64,
        ffn=4 * width,
        encoder_layers=n,
        decoder_layers=m,
        dropout=dropout,
    )
    return Transformer(config, vocabulary)


def random_batch(rows: int, length: int, vocabulary: int) -> Batch:
    rng = np.random.default_rng(1)
    sources, targets = (rng.integers(4, vocabulary, (rows, length)).tolist() for _ in range(2))
    return Batch.from_rows(sources, targets)


def gradient(model: Transformer, step: Callable[[], None]) -> torch.Tensor:
    """The whole gradient of a step as one vector."""
    model.zero_grad()
    step()
    parts = [p.grad.flatten().double() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return torch.cat(parts)

"""Millions of synthetic pairs: memory and time to prepare them, to begin an epoch, and to make batches.

python benchmarks/corpus.py [--pairs 5000000] [--folder DIR]

Memory is the sum over all processes, sampled ten times a second; pages of files that are read in place are counted
apart, for the system takes those back as it likes. The peer of the input pipeline is the training that reads from it:
the same batches are made alone, and trained on, in turn.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from common import print_versions, random_model

from anydepth.config import DataConfig, VanillaConfig
from anydepth.data import BatchStream, prepare
from anydepth.objectives import make_objective

BARS = {"gibibytes": 2.0, "pipeline": 10.0}
GIB = 2**30
TOGETHER = 20_000
BATCH_TOKENS = 4000


def write_corpus(folder: Path, pairs: int) -> None:
    """Words at random, common ones more often, 5 to 30 in a sentence."""
    letters, rng = random.Random(1), np.random.default_rng(1)
    words = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=letters.randint(2, 9))) for _ in range(50_000)]
    shares = 1 / np.arange(1, len(words) + 1)
    bounds = np.cumsum(shares / shares.sum())
    for side in ("source", "target"):
        with open(folder / f"train.{side}", "w", encoding="utf-8") as file:
            for start in range(0, pairs, TOGETHER):
                lengths = rng.integers(5, 31, min(TOGETHER, pairs - start))
                chosen = np.searchsorted(bounds, rng.random(lengths.sum())).clip(max=len(words) - 1)
                text, place = [words[number] for number in chosen.tolist()], 0
                for length in lengths.tolist():
                    file.write(" ".join(text[place : place + length]) + "\n")
                    place += length


class Memory:
    """The most that a process and all below it had at one time, of their own and with the files they read."""

    def __init__(self, process: int) -> None:
        self.own = self.resident = 0
        self._root, self._over = psutil.Process(process), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            found = []
            try:
                for one in (self._root, *self._root.children(recursive=True)):
                    found.append(one.memory_info())
            except psutil.Error:
                continue  # one has just ended
            self.resident = max(self.resident, sum(one.rss for one in found))
            self.own = max(self.own, sum(one.rss - one.shared for one in found))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def make_config(folder: Path) -> DataConfig:
    corpus = {"source": str(folder / "train.source"), "target": str(folder / "train.target")}
    return DataConfig.model_validate({"train": corpus, "vocabulary": 16_000})


def prepared_apart(folder: Path) -> None:
    """In a process of its own, so that what it takes is seen."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, __file__, "--prepare", str(folder)])
    memory = Memory(process.pid)
    if process.wait():
        raise SystemExit("preparing failed")
    memory.stop()
    seconds = time.perf_counter() - began
    print(
        f"prepared in {seconds:.0f} s: at most {memory.resident / GIB:.2f} GiB resident (bar {BARS['gibibytes']} GiB), "
        f"{memory.own / GIB:.2f} GiB of it not files",
        flush=True,
    )


def own_memory() -> float:
    found = psutil.Process().memory_info()
    return float(found.rss - found.shared) / GIB


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the text is, or is to be kept")
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(make_config(arguments.prepare), arguments.prepare / "data", seed=1)
        return
    print_versions("sentencepiece", "numpy")
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        folder.mkdir(exist_ok=True)
        if not (folder / "train.target").exists():
            write_corpus(folder, arguments.pairs)
        prepared_apart(folder)
        measure(folder, arguments.rounds)


def measure(folder: Path, rounds: int) -> None:
    began = time.perf_counter()
    data = prepare(make_config(folder), folder / "data", seed=1)
    print(
        f"{len(data.parts[0].train):,} pairs found again, every checksum verified: {time.perf_counter() - began:.1f} s"
    )
    stream = BatchStream(data.parts[0].train, BATCH_TOKENS, seed=1)
    for epoch in (0, 1):
        began = time.perf_counter()
        count = stream.batches_in(epoch)
        print(f"epoch {epoch} of {count:,} batches begun: {time.perf_counter() - began:.1f} s", flush=True)
    before = own_memory()
    _rate(stream, 0, 20_000)
    print(f"memory while 20,000 batches were read: {before:.2f} GiB before, {own_memory():.2f} GiB after")
    model = random_model(256, (6, 3), data.tokenizer.vocabulary_size)
    objective = make_objective(VanillaConfig(name="vanilla"), model.config, 0.1, seed=1)
    ratios, place = [], 0
    for number in range(1, rounds + 1):
        alone = _rate(stream, place, 2000)
        trained = _rate(stream, place, 10, lambda batch: objective(model, batch, 1).weighted(1, 1).backward())
        place += 2000
        ratios.append(alone / trained)
        print(f"round {number}: {alone:,.0f} tokens/s made, {trained:,.0f} trained on, {ratios[-1]:.0f}x", flush=True)
    print(f"the pipeline against training: {median(ratios):.0f}x (bar {BARS['pipeline']:.0f}x)")


def _rate(stream: BatchStream, start: int, count: int, use=lambda batch: None) -> float:  # type: ignore[no-untyped-def]
    began, tokens = time.perf_counter(), 0
    for index in range(start, start + count):
        batch = stream.at(1, index)
        use(batch)
        tokens += batch.target_tokens
    return tokens / (time.perf_counter() - began)


if __name__ == "__main__":
    main()

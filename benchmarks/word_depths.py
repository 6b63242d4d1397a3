"""What the depths of words from mutual information take: all long film reviews, from file to file, one thread.

python benchmarks/word_depths.py [--data FOLDER] [--repeats 3]     FOLDER as `anydepth data movie-reviews` makes it

Every run is a process of its own, whose peak memory counts the interpreter and all libraries.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from common import print_versions
from platformdirs import user_cache_path

from anydepth.data.corpus import read_labelled
from anydepth.data.datasets import fetch
from anydepth.word_depths.mutual_information import mi_depths

LAYERS = 12


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=user_cache_path("anydepth") / "data" / "movie-reviews")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.once:
        once(arguments.data)
        return
    print_versions("numpy")
    fetch("movie-reviews", arguments.data)
    runs = [in_a_process(arguments.data) for _ in range(arguments.repeats)]
    seconds, peak = median(run["seconds"] for run in runs), max(run["peak"] for run in runs)
    print(
        f"{runs[0]['texts']:,} reviews, {runs[0]['words']:,} words and signs, {LAYERS} layers: {seconds:.1f} s "
        f"(median of {len(runs)}, bar 30 s), peak memory {peak / 2**20:.0f} MiB (bar 1024 MiB)"
    )


def in_a_process(data: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--once", "--data", str(data)]
    said: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return said


def once(data: Path) -> None:
    parts = (read_labelled(data / "long" / f"{part}.tsv") for part in ("train", "valid", "test"))
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        depths = mi_depths(chain.from_iterable(parts), LAYERS)
        depths.save(Path(folder) / "word-depths.json")
        seconds = time.perf_counter() - began
    unit = 1 if sys.platform == "darwin" else 1024
    peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = depths.facts
    print(json.dumps({"seconds": seconds, "peak": peak, "texts": facts["texts"], "words": facts["occurrences"]}))


if __name__ == "__main__":
    main()

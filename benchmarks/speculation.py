"""Speculation against the same engine without it: sentences one at a time, CPU time of a thread, the same output twice.

python benchmarks/speculation.py MODEL [--depth 6-6] [--source test.fr] [--shortlist]

MODEL is a trained one; where there is none of the size wanted, `benchmarks/growing.py` makes one from the bundled
model. With a shortlist in the model's folder, drafts are taken from that.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from common import print_versions

from anydepth.artifact import bundled_model
from anydepth.artifact.model import resolve
from anydepth.engines.native import NativeEngine
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator, on_engine


def seconds(translator: Translator, texts: list[str], depth: str) -> tuple[float, list[str]]:
    began = time.process_time()
    found = [translator.translate([text], depth=depth)[0] for text in texts]
    return time.process_time() - began, found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--depth")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shortlist", action="store_true", help="search among its outputs, both ways")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_versions()
    model = Translator.load(resolve(arguments.model), engine="torch", device="cpu")
    sample = find_sample(
        Translator.load(bundled_model(), engine="torch", device="cpu"),
        arguments.model,
        arguments.source,
        size=arguments.sentences,
    )
    depth = arguments.depth or model.menu.deepest.name
    plain = on_engine(model, "native", 1, shortlist=arguments.shortlist)
    drafting = on_engine(model, "native", 1, speculate=True, shortlist=arguments.shortlist)
    ratios, same = [], 0
    for turn in range(arguments.rounds + 1):
        (before, expected), (after, found) = (seconds(way, sample.sources, depth) for way in (plain, drafting))
        same = sum(a == b for a, b in zip(expected, found, strict=True))
        if turn:  # the first warms up
            ratios.append(before / after)
    engine = drafting.engine
    assert isinstance(engine, NativeEngine)
    counts = engine.native.speculation
    print(f"{depth}, width {model.model.config.width}, {len(sample.sources)} sentences ({sample.origin})")
    print(f"speculation: {median(ratios):.2f}x as fast, rounds {min(ratios):.2f} to {max(ratios):.2f} (bar 1.5x)")
    print(f"same output: {same} of {len(sample.sources)}")
    print(
        f"drafts right: {counts['accepted'] / max(1, counts['drafted']):.1%}; tokens in a pass: "
        f"{counts['tokens'] / max(1, counts['passes']):.2f}"
    )


if __name__ == "__main__":
    main()

"""`distill` on Ray with two workers of one thread each against one: lines per second, all of it, Ray's start included.

python benchmarks/on_ray.py [--rounds 3] [--lines 8000]

Rounds are interleaved. The output of either is compared with that of this process alone.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

import ray
import torch
import typer
from common import print_versions
from distill import run_distill, save_random_model, write_text

from anydepth.export.ray import RayRunner
from anydepth.infer.distill import DistillOptions
from anydepth.infer.runner import Runner, local
from anydepth.infer.translator import Translator

BAR = 1.7
OPTIONS = DistillOptions(beam=4, batch_size=64, max_length=12, keep_all=True, chunk=256)


def main(rounds: int = 3, lines: int = 8000) -> None:
    torch.set_num_threads(1)
    print_versions("ray", "sentencepiece")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        translator, source = made(folder, lines)
        alone = time_distilling(translator, source, folder / "local", local)
        print(f"this process alone: {lines / alone:.1f} lines/s", flush=True)
        expected = (folder / "local" / "distilled.bb").read_bytes()
        ratios = []
        for number in range(1, rounds + 1):
            taken = []
            for workers in (1, 2):
                out = folder / f"ray-{number}-{workers}"
                taken.append(time_distilling(translator, source, out, RayRunner(workers=workers)))
                ray.shutdown()
                assert (out / "distilled.bb").read_bytes() == expected, "not the same bytes"
            one, two = taken
            ratios.append(one / two)
            rates = ", ".join(f"{lines / seconds:.1f}" for seconds in taken)
            print(f"round {number}: {rates} lines/s, {ratios[-1]:.2f}x; the same bytes", flush=True)
    print(f"two workers against one: {median(ratios):.2f}x (bar {BAR}x)")


def made(folder: Path, lines: int) -> tuple[Translator, Path]:
    return Translator.load(save_random_model(folder / "model", 256, 6), engine="torch", device="cpu"), write_text(
        folder / "text", lines, longest=20
    )


def time_distilling(translator: Translator, source: Path, out: Path, run: Runner) -> float:
    began = time.perf_counter()
    run_distill(translator, source, out, OPTIONS, run)
    return time.perf_counter() - began


if __name__ == "__main__":
    typer.run(main)

"""Distilling against translating the same lines (ratio above 1: distilling is faster), and memory by number of lines.

python benchmarks/distill.py [MODEL] [--repeats 9] [--lines 1000000] [--only speed|memory]
"""

import random
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from common import interleaved, print_versions, random_model

from anydepth.artifact import saving
from anydepth.data import Tokenizer
from anydepth.data.corpus import read_lines
from anydepth.data.tokenizer import TokenizerOptions
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.infer.distill import DistillOptions, distill
from anydepth.infer.runner import Runner, local
from anydepth.infer.translator import Translator

WIDTH, LAYERS, VOCABULARY = 256, 6, 4000
SPEED_LINES, FEW_LINES = 1024, 10_000
SPEED = DistillOptions(beam=4, batch_size=64, max_length=12, keep_all=True)
MEMORY = DistillOptions(beam=1, batch_size=256, max_length=1, keep_all=True)


def main(
    model: Annotated[Path | None, typer.Argument(help="by default a random one is made")] = None,
    repeats: int = 5,
    lines: int = 1_000_000,
    only: Literal["speed", "memory"] | None = None,
    memory_of: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    torch.set_num_threads(1)
    if memory_of:
        print(peak_of_distilling(memory_of))
        return
    print_versions("sentencepiece")
    with tempfile.TemporaryDirectory() as folder:
        if only != "memory":
            compare_speed(model, Path(folder), repeats)
        if only != "speed":
            compare_memory(Path(folder), lines)


def compare_speed(model: Path | None, folder: Path, repeats: int) -> None:
    """Both from a file to a file. A random model never ends by itself, so that both do the same work."""
    if model is None:
        model = save_random_model(folder / "model", WIDTH, LAYERS)
    translator = Translator.load(model, engine="torch", device="cpu")
    source = write_text(folder / "speed", SPEED_LINES, longest=20)
    outs = (folder / f"speed-{number}" for number in range(repeats + 1))
    translations = folder / "translations"
    ways = {
        "translate": partial(translate, translator, source, translations),
        "distill": lambda: run_distill(translator, source, next(outs), SPEED),
    }
    seconds = interleaved(ways, repeats)
    rates = ", ".join(f"{name} {SPEED_LINES / value:.1f} lines/s" for name, value in seconds.items())
    distilled = next((folder / "speed-0").glob(f"distilled.{translator.languages[1]}"))
    same = distilled.read_bytes() == translations.read_bytes()
    ratio = seconds["translate"] / seconds["distill"]
    print(f"beam {SPEED.beam}, batch {SPEED.batch_size}, {SPEED_LINES} lines: {rates}; same output: {same}")
    print(f"distill against translate: {ratio:.2f}x the speed (bar 0.95x)", flush=True)


def translate(translator: Translator, source: Path, out: Path) -> None:
    """As the verb does it."""
    found = translator.stream(
        read_lines(source),
        beam=SPEED.beam,
        batch_size=SPEED.batch_size,
        max_length=SPEED.max_length,
        length_penalty=SPEED.length_penalty,
        cut_long=True,
        scores=False,
    )
    with open(out, "wb") as file:
        for hypotheses in found:
            file.write(hypotheses[0].text.encode() + b"\n")


def run_distill(
    translator: Translator, source: Path, out: Path, options: DistillOptions, runner: Runner = local
) -> None:
    distill(translator, source, out, options, None, runner)


def compare_memory(folder: Path, many: int) -> None:
    save_random_model(folder / "tiny", 64, 1)
    peaks = {}
    for lines in (FEW_LINES, many):
        work = folder / f"memory-{lines}"
        work.mkdir()
        write_text(work / "source", lines, longest=3)
        peaks[lines] = peak_in_new_process(work)
        print(f"peak memory on {lines:,} lines: {peaks[lines] / 2**20:.0f} MiB", flush=True)
    print(f"{many:,} lines against {FEW_LINES:,}: {peaks[many] / peaks[FEW_LINES]:.2f}x the memory (bar 1.2x)")


def peak_in_new_process(work: Path) -> int:
    command = [sys.executable, __file__, "--memory-of", str(work)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.strip().splitlines()[-1])


def peak_of_distilling(work: Path) -> int:
    run_distill(
        Translator.load(work.parent / "tiny", engine="torch", device="cpu"), work / "source", work / "out", MEMORY
    )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def save_random_model(folder: Path, width: int, layers: int) -> Path:
    """A model folder whose tokenizer is made from text like that of `write_text`."""
    with tempfile.TemporaryDirectory() as text:
        sentences = read_lines(write_text(Path(text) / "text", 5000, longest=20))
        tokenizer = Tokenizer.train(sentences, TokenizerOptions(VOCABULARY, sample=5000), seed=1)
    model = random_model(width, layers, tokenizer.vocabulary_size)
    tensors = {name: value.detach() for name, value in model.named_parameters()}
    menu = DepthMenu.of([SubNetwork.prefix(layers, layers)])
    saving.save(folder, saving.ModelContent(model.config, tensors, tokenizer, menu, ("aa", "bb")), {})
    return folder


def write_text(path: Path, lines: int, longest: int) -> Path:
    """Sentences of 1 to `longest` made-up words, line by line: no more than one in memory."""
    rng = random.Random(1)
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(5000)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(lines):
            file.write(" ".join(rng.choices(words, k=rng.randint(1, longest))) + "\n")
    return path


if __name__ == "__main__":
    typer.run(main)

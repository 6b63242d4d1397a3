"""The engines side by side: CTranslate2 in float32 and in int8 against PyTorch, in batches and one sentence at a time.

python benchmarks/engines.py [--model models/pt-en] [--source test.pt] [--threads 2]

Needs the test set of `make demo`. Each engine has all threads; ratios are medians of interleaved rounds.
"""

from functools import partial
from pathlib import Path

import torch
import typer
from common import interleaved, print_versions

from anydepth.artifact import bundled_model
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator, on_engine

ROUNDS, MANY, FEW = 3, 600, 80
DEPTHS = ("6-3", "4-1", "1-1")


def translate(translator: Translator, texts: list[str], depth: str, batch_size: int) -> None:
    """Sentences one by one come as they do from a user: each in a call of its own."""
    for part in [texts] if batch_size > 1 else [[text] for text in texts]:
        translator.translate(part, depth=depth, batch_size=batch_size)


def main(model: Path | None = None, source: Path | None = None, threads: int = 2) -> None:
    torch.set_num_threads(threads)
    print_versions("ctranslate2")
    ours = Translator.load(model or bundled_model(), engine="torch", device="cpu")
    engines = {"torch": ours} | {
        f"ctranslate2 {kind}": on_engine(ours, "ctranslate2", threads, kind) for kind in ("float32", "int8")
    }
    lines = find_sample(ours, model or bundled_model(), source, size=MANY).sources
    for depth in (name for name in DEPTHS if name in ours.menu.names):
        for batch_size, count in ((32, MANY), (1, FEW)):
            ways = {
                name: partial(translate, engine, lines[:count], depth, batch_size) for name, engine in engines.items()
            }
            torch_time, *others = interleaved(ways, ROUNDS).values()
            ratios = (f"{name} {torch_time / one:.2f}x" for name, one in zip(list(ways)[1:], others, strict=True))
            print(f"{depth}, batches of {batch_size}: against torch, {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    typer.run(main)

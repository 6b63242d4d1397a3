"""Translating at every depth in one pass against a run for each depth, same model, batch size and output.

python benchmarks/every_depth.py [MODEL SOURCE] [--sentences 500] [--batch-size 32] [--repeats 3]     by default what
`make demo` has left
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from common import interleaved, print_versions

import anydepth
from anydepth.data.corpus import read_lines

Outputs = dict[str, list[str]]


def main(
    model: Annotated[Path, typer.Argument()] = Path("demo/run"),
    source: Annotated[Path, typer.Argument()] = Path("demo/data/test.fr"),
    sentences: int = 500,
    batch_size: int = 32,
    repeats: int = 3,
) -> None:
    torch.set_num_threads(1)
    print_versions()
    translator, size = anydepth.load(model, engine="torch"), batch_size
    lines = list(read_lines(source))
    texts = lines[:: max(1, len(lines) // sentences)][:sentences]
    found: dict[str, Outputs] = {}

    def one_pass() -> None:
        every = translator.every_depth(texts, batch_size=size, scores=False)
        found["one pass"] = {name: [best[0].text for best in lists] for name, lists in every.items()}

    def separate(batch_size: int) -> Outputs:
        return {name: translator.translate(texts, depth=name, batch_size=batch_size) for name in translator.menu.names}

    def runs() -> None:
        found["runs"] = separate(size)

    def runs_in_large_batches() -> None:
        separate(6 * size)

    seconds = interleaved({"one pass": one_pass, "runs": runs, "runs in large batches": runs_in_large_batches}, repeats)
    depths = len(translator.menu)
    different = sum(
        a != b for name in found["runs"] for a, b in zip(found["runs"][name], found["one pass"][name], strict=True)
    )
    print(f"{depths} depths, {len(texts)} sentences, batches of {size}")
    print(f"one pass against {depths} runs: {seconds['runs'] / seconds['one pass']:.2f}x as fast (bar 2x)")
    larger = seconds["runs in large batches"] / seconds["one pass"]
    print(f"one pass against {depths} runs in batches of {6 * size}: {larger:.2f}x as fast")
    print(f"outputs that differ: {different} of {depths * len(texts)}")


if __name__ == "__main__":
    typer.run(main)

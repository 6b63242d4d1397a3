"""Every depth of a model exported to CTranslate2: float32 token for token against PyTorch, int8 by BLEU.

python benchmarks/exporting.py [--model models/pt-en] [--source test.pt --reference test.en]

Needs the test set of `make demo`. Where a tie broke, both texts are listed.
"""

from pathlib import Path

import torch
import typer
from common import print_versions

from anydepth.artifact import bundled_model
from anydepth.export.export import check_export
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator, on_engine

IDENTICAL, SCORED, BAR = 500, 1000, -0.3


def main(model: Path | None = None, source: Path | None = None, reference: Path | None = None) -> None:
    print_versions("ctranslate2")
    torch.set_num_threads(2)
    given = model or bundled_model()
    ours = Translator.load(given, engine="torch", device="cpu")
    float32, int8 = (on_engine(ours, "ctranslate2", 2, kind) for kind in ("float32", "int8"))
    few, many = (find_sample(ours, given, source, reference, size) for size in (IDENTICAL, SCORED))
    worst = 0.0
    for depth in ours.menu.names:
        same = check_export(ours, float32, depth, depth, few)
        small = check_export(ours, int8, depth, depth, many)
        assert small.bleu is not None
        before, after = small.bleu
        worst = min(worst, after - before)
        print(
            f"{depth}: float32 {same.same} of {len(few.sources)} identical, {len(same.wrong)} wrong; "
            f"int8 {after:.2f} BLEU against {before:.2f} ({after - before:+.2f})",
            flush=True,
        )
        for one in same.differences:
            print(f"  apart by {one.gap:.1e}: {one.source!r}")
            print(f"    torch       {one.expected!r}\n    ctranslate2 {one.found!r}")
    print(f"int8 loses at most {-worst:.2f} BLEU (bar {-BAR})")


if __name__ == "__main__":
    typer.run(main)

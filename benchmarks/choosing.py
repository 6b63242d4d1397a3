"""What choosing a depth takes, over translating at the shallowest one, sentence by sentence, one thread.

python benchmarks/choosing.py [MODEL SOURCE] [--sentences 100] [--repeats 5]     by default what `make demo` has left

How long a network takes does not depend on its weights: these are untrained.
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from common import interleaved, print_versions

import anydepth
from anydepth.data.corpus import read_lines
from anydepth.selectors.calibration import LengthCost
from anydepth.selectors.learned import LearnedSelector
from anydepth.selectors.network import DEFAULTS, DepthPredictor, SelectorKind, SelectorReader


def main(
    model: Annotated[Path, typer.Argument()] = Path("demo/run"),
    source: Annotated[Path, typer.Argument()] = Path("demo/data/test.fr"),
    sentences: int = 100,
    repeats: int = 5,
) -> None:
    torch.set_num_threads(1)
    print_versions()
    translator = anydepth.load(model, engine="torch")
    lines = list(read_lines(source))
    texts = lines[:: max(1, len(lines) // sentences)][:sentences]
    ids = [[*row, 3] for row in translator.tokenizer.encode_many(texts)]
    shallowest = translator.menu.names[0]

    def untrained(kind: SelectorKind) -> LearnedSelector:
        config, depths = DEFAULTS[kind], translator.menu.names
        network = DepthPredictor(config, translator.model, len(depths))
        read = SelectorReader(translator.model, translator.tokenizer, config.reads == "encoder")
        return LearnedSelector(network, read, depths, [LengthCost(1.0, 0.0)] * len(depths), 10.0)

    ours, papers = untrained("likelihood"), untrained("labels")

    def translate() -> None:
        for text in texts:
            translator.translate([text], depth=shallowest, batch_size=1)

    def choose(selector: LearnedSelector) -> None:
        for row in ids:
            selector.choose([row])

    seconds = interleaved(
        {"translate": translate, "ours": lambda: choose(ours), "paper's": lambda: choose(papers)}, repeats
    )
    for name in ("ours", "paper's"):
        share = seconds[name] / seconds["translate"]
        print(f"choosing, {name} network: {share:.1%} of the time of {shallowest} (bar 10%)")


if __name__ == "__main__":
    typer.run(main)

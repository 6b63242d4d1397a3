"""Latent depth: a training step against a static one, and decoding with half the layers against all of them.

python benchmarks/latent.py [--repeats 9]
"""

from functools import partial

import torch
import typer
from common import interleaved, print_versions, random_batch, random_model

from anydepth.config import LatentConfig, VanillaConfig
from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.engines.base import SearchOptions
from anydepth.engines.torch import search
from anydepth.model import Transformer
from anydepth.model.pruning import cut
from anydepth.objectives import TranslationObjective, make_objective

VOCABULARY, ROWS, LENGTH, OUTPUT = 4000, 16, 24, 24
LAYERS = (6, 24)


def main(repeats: int = 9) -> None:
    torch.set_num_threads(1)
    print_versions()
    for width in (64, 128):
        training(width, repeats)
        decoding(width, repeats)


def training(width: int, repeats: int) -> None:
    """Steps 1 and 2 of two inner steps: the second also has the gradient of the gates."""
    model = random_model(width, LAYERS, VOCABULARY, dropout=0.1)
    batch = random_batch(ROWS, LENGTH, VOCABULARY)
    static = make_objective(VanillaConfig(), model.config, 0.1, seed=1)
    latent = make_objective(LatentConfig(name="latent", decoder_target=12), model.config, 0.1, seed=1)
    ways = {
        "static": partial(steps, static, model, batch),
        "latent": partial(steps, latent, model, batch),
    }
    seconds = interleaved(ways, repeats, after=model.zero_grad)
    print(
        f"width {width}, {LAYERS[0]}-{LAYERS[1]}, two training steps of {ROWS} x {LENGTH} tokens: latent "
        f"{seconds['latent'] / seconds['static']:.3f}x the time of static (bar 1.1x)",
        flush=True,
    )


def steps(objective: TranslationObjective, model: Transformer, batch: Batch) -> None:
    for step in (1, 2):
        objective(model, batch, step).total.backward()


@torch.no_grad()
def decoding(width: int, repeats: int) -> None:
    """One sentence at a time, the encoder included."""
    model = random_model(width, LAYERS, VOCABULARY).eval()
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    half = SubNetwork(tuple(range(6)), tuple(range(0, 24, 2)))
    config, kept = cut(model.config, tensors, half)
    pruned = Transformer(config, VOCABULARY).eval()
    pruned.load_state_dict(kept, strict=False)
    ways = {
        "whole": partial(decode, model, model.full),
        "half": partial(decode, model, half),
        "pruned": partial(decode, pruned, pruned.full),
    }
    tokens = {name: way() for name, way in ways.items()}  # always the same: random models need not stop alike
    seconds = {name: value / tokens[name] for name, value in interleaved(ways, repeats).items()}
    for name in ("half", "pruned"):
        print(
            f"width {width}, decoding at batch 1 with 12 of 24 decoder layers ({name}): "
            f"{seconds[name] / seconds['whole']:.3f}x the time of all per token (bar 0.5 x 1.15 = 0.575x)",
            flush=True,
        )


def decode(model: Transformer, sub: SubNetwork) -> int:
    source = random_batch(1, LENGTH, VOCABULARY).source.tolist()
    ((best, *_),) = search(model, sub, source, [OUTPUT], SearchOptions())
    return len(best.tokens) + best.ended


if __name__ == "__main__":
    typer.run(main)

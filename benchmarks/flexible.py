"""One `flexible` step over the 24 tasks of a 12-6 model against 24 separate passes: time and gradients.

python benchmarks/flexible.py [--repeats 5]
"""

from functools import partial
from itertools import count

import torch
import torch.nn.functional as F
import typer
from common import gradient, interleaved, print_versions, random_batch, random_model

from anydepth.config import FlexibleConfig
from anydepth.data import Batch
from anydepth.model import Transformer
from anydepth.objectives import make_objective

WIDTH, LAYERS, VOCABULARY, ROWS, LENGTH = 256, (12, 6), 8000, 16, 24
STEPS = count(1)  # each draws its own tasks
CONFIGS = {
    "flexible": FlexibleConfig(name="flexible"),
    "flexible, 2 decoder depths drawn": FlexibleConfig(name="flexible", decoder_tasks=2),
    "flexible, 1 decoder depth drawn": FlexibleConfig(name="flexible", decoder_tasks=1),
}


def main(repeats: int = 5) -> None:
    torch.set_num_threads(1)
    model, batch = random_model(WIDTH, LAYERS, VOCABULARY), random_batch(ROWS, LENGTH, VOCABULARY)
    print_versions()
    print(f"width {WIDTH}, 12-6, vocabulary {VOCABULARY}, {ROWS} x {LENGTH} tokens, all on 1 thread")
    ours = gradient(model, lambda: step("flexible", model, batch))
    theirs = gradient(model, lambda: separate_passes(model, batch))
    print(f"relative difference of the gradients: {float((ours - theirs).norm() / theirs.norm()):.1e}", flush=True)
    ways = {"24 passes": partial(separate_passes, model, batch)}
    ways |= {name: partial(step, name, model, batch) for name in CONFIGS}
    seconds = interleaved(ways, repeats, after=model.zero_grad)
    for name in CONFIGS:
        bar = " (bar 1.4x)" if name == "flexible" else ""
        print(f"{name}: {seconds['24 passes'] / seconds[name]:.2f}x as fast as 24 separate passes{bar}")


def separate_passes(model: Transformer, batch: Batch) -> None:
    """Lines 7 to 12 of Algorithm 1 read literally: each task its own forward and backward pass, gradients added up."""
    menu = make_objective(CONFIGS["flexible"], model.config, 0.1, seed=1).menu()
    target = batch.target_out.flatten()
    for entry in menu:
        logits = model(batch.source, batch.target_in, entry.subnetwork, batch.source_padding)
        loss = F.cross_entropy(logits.flatten(0, 1), target, ignore_index=0, label_smoothing=0.1)
        (loss / len(menu)).backward()


def step(name: str, model: Transformer, batch: Batch) -> None:
    make_objective(CONFIGS[name], model.config, 0.1, seed=1)(model, batch, next(STEPS)).total.backward()


if __name__ == "__main__":
    typer.run(main)

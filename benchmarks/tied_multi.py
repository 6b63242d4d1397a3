"""Tied-multi training steps: exact against a naive double loop (time, gradients, memory), sampled against vanilla.

python benchmarks/tied_multi.py [--repeats 5]
"""

import subprocess
import sys
from functools import partial
from typing import Annotated

import torch
import torch.nn.functional as F
import typer
from common import gradient, interleaved, print_versions, random_batch, random_model

from anydepth.config import TiedMultiConfig, VanillaConfig
from anydepth.data import Batch
from anydepth.depth import SubNetwork
from anydepth.model import Transformer
from anydepth.objectives import make_objective

WIDTH, LAYERS, VOCABULARY, ROWS, LENGTH = 512, 6, 8000, 16, 24


def main(repeats: int = 5, memory_of: Annotated[str | None, typer.Option(hidden=True)] = None) -> None:
    torch.set_num_threads(1)
    model, batch = random_model(WIDTH, LAYERS, VOCABULARY), random_batch(ROWS, LENGTH, VOCABULARY)
    if memory_of:
        print(step_memory(memory_of, model, batch))
        return
    print_versions()
    print(f"width {WIDTH}, {LAYERS}-{LAYERS}, vocabulary {VOCABULARY}, {ROWS} x {LENGTH} tokens, all on 1 thread")
    errors = ", ".join(
        f"{name} {error:.1e}" for name, error in gradient_errors(random_batch(4, LENGTH, VOCABULARY)).items()
    )
    print(f"relative difference of the gradients: {errors} (bar 1e-5)", flush=True)
    seconds = interleaved({name: partial(way, model, batch) for name, way in WAYS.items()}, repeats)
    print(f"exact step against the double loop: {seconds['naive'] / seconds['exact']:.2f}x faster (bar 3.3x)")
    print(f"sampled step against a vanilla step: {seconds['sampled'] / seconds['vanilla']:.2f}x the time (bar 1.25x)")
    print(f"exact step against a vanilla step: {seconds['exact'] / seconds['vanilla']:.1f}x the time (paper: 9.5x)")
    memory = {name: memory_in_new_process(name) for name in ("exact", "all-logits")}
    ratio = memory["exact"] / memory["all-logits"]
    print(f"exact's peak memory over keeping all logits: {ratio:.2f}x (bar 0.4x), {memory['exact'] / 2**20:.0f} MiB")


def naive(model: Transformer, batch: Batch) -> None:
    """Algorithm 1 read literally: every (n, m) is a model of its own; backward after each, so memory stays small."""
    double_loop(model, batch)
    model.zero_grad()


def double_loop(model: Transformer, batch: Batch) -> None:
    for n in range(1, LAYERS + 1):
        for m in range(1, LAYERS + 1):
            (exit_loss(model, batch, n, m) / LAYERS**2).backward()


def exit_loss(model: Transformer, batch: Batch, n: int, m: int) -> torch.Tensor:
    logits = model(batch.source, batch.target_in, SubNetwork.prefix(n, m), batch.source_padding)
    return F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=0, label_smoothing=0.1)


def all_logits(model: Transformer, batch: Batch) -> None:
    """The same sharing as ours, but plain autograd over the logits of all exits."""
    states = model.encode(batch.source, model.full, batch.source_padding)
    memory = model.memory(torch.cat(states))
    states = model.decode(batch.target_in.repeat(LAYERS, 1), memory, model.full)
    target = batch.target_out.flatten().repeat(LAYERS)
    losses = [
        F.cross_entropy(model.output(model.features(state)).flatten(0, 1), target, label_smoothing=0.1)
        for state in states
    ]
    torch.stack(losses).mean().backward()
    model.zero_grad()


def objective_step(config: VanillaConfig | TiedMultiConfig, model: Transformer, batch: Batch) -> None:
    make_objective(config, model.config, 0.1, seed=1)(model, batch, 1).total.backward()
    model.zero_grad()


EXACT = TiedMultiConfig(name="tied-multi", mode="exact")
SAMPLED = TiedMultiConfig(name="tied-multi", mode="sampled")
WAYS = {
    "naive": naive,
    "all-logits": all_logits,
    "exact": lambda model, batch: objective_step(EXACT, model, batch),
    "sampled": lambda model, batch: objective_step(SAMPLED, model, batch),
    "vanilla": lambda model, batch: objective_step(VanillaConfig(), model, batch),
}


def gradient_errors(batch: Batch) -> dict[str, float]:
    """|g - g'| / |g| over all parameters together, and of both against the double loop in double precision."""
    model, exact_model = (random_model(WIDTH, LAYERS, VOCABULARY) for _ in range(2))
    objective = make_objective(EXACT, model.config, 0.1, seed=1)
    ours = gradient(model, lambda: objective(model, batch, 1).total.backward())
    loop = gradient(model, lambda: double_loop(model, batch))
    true = gradient(exact_model.double(), lambda: double_loop(exact_model, batch))
    pairs = {"ours to the loop": (ours, loop), "ours to float64": (ours, true), "the loop to float64": (loop, true)}
    return {name: float((a - b).norm() / b.norm()) for name, (a, b) in pairs.items()}


def step_memory(name: str, model: Transformer, batch: Batch) -> int:
    """Peak bytes allocated by tensors during one step, weights and their gradients not counted."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    with torch.profiler.profile(profile_memory=True) as profiler:
        WAYS[name](model, batch)
    live = peak = 0
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak - weights


def memory_in_new_process(name: str) -> int:
    done = subprocess.run([sys.executable, __file__, "--memory-of", name], capture_output=True, text=True, check=True)
    return int(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    typer.run(main)

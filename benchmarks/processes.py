"""Training by two processes of one thread each against one: tokens per second, by torchrun and gloo.

python benchmarks/processes.py [--rounds 5] [--steps 30]

The peer is the same command without torchrun, which learns the same. Rounds are interleaved: in each, either run goes
on for some updates, and the speed is that of the second half of them, as its log has it.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import typer
from common import print_versions

BAR = 1.7
RECIPE = """
data:
  train: {{source: {folder}/train.source, target: {folder}/train.target}}
  hold_out: 100
  vocabulary: 8000
model: {{width: 256, heads: 4, ffn: 1024, encoder_layers: 6, decoder_layers: 3, dropout: 0.1}}
objective: {{name: tied-multi, mode: sampled}}
train:
  batch_tokens: {tokens}
  schedule: inverse-sqrt
  log_every: {every}
  valid_every: 1000000
  checkpoint_every: 1000000
  threads: 1
"""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def write_corpus(folder: Path, pairs: int = 20_000) -> None:
    """Words at random, common ones more often."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    for side in ("source", "target"):
        lines = (" ".join(rng.choices(words, weights, k=rng.randint(5, 30))) for _ in range(pairs))
        (folder / f"train.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def speed(recipe: Path, run: Path, steps: int, processes: int) -> float:
    start = TORCHRUN if processes == 2 else [sys.executable]
    command = [*start, "-m", "anydepth", "train", str(recipe), "--out", str(run), "--set", f"train.steps={steps}"]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    records = map(json.loads, (run / "log.jsonl").read_text("utf-8").splitlines())
    return float([record for record in records if record["kind"] == "train"][-1]["tokens_per_second"])


def main(rounds: int = 5, steps: int = 30, tokens: int = 4000) -> None:
    print_versions()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        recipe = folder / "recipe.yaml"
        every = steps // 2
        recipe.write_text(RECIPE.format(folder=folder, tokens=tokens, every=every), "utf-8")
        ratios = []
        for number in range(1, rounds + 1):
            one, two = (speed(recipe, folder / f"run-{n}", number * 2 * every, n) for n in (1, 2))
            ratios.append(two / one)
            print(f"round {number}: {one:,.0f} and {two:,.0f} tokens/s, {ratios[-1]:.2f}x", flush=True)
    print(f"two processes against one: {median(ratios):.2f}x (bar {BAR}x)")


if __name__ == "__main__":
    typer.run(main)

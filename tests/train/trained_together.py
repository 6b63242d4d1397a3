"""Runs under torchrun: trains each of the cases in a JSON file, one after the other.

Then, what is to be refused: data and weights of the second process's own. At last it trains the last case again, which
has finished: the second process is slow to hear of it, and the first has nothing left to do.
"""

import json
import sys
import time
from pathlib import Path

import torch
from rich.console import Console

from anydepth.errors import UserError
from anydepth.train.distributed import join
from anydepth.train.recipe import read_recipe
from anydepth.train.run import train

cases = json.loads(Path(sys.argv[1]).read_text("utf-8"))
for case in cases:
    recipe = read_recipe(Path(case["recipe"]), case["changes"])
    train(recipe, Path(case["run"]), Console(stderr=True))

processes, _ = join("cpu", shard=False)
apart = Path(sys.argv[2])
try:
    train(read_recipe(apart / "recipe.yaml", []), apart / str(processes.rank), Console(quiet=True))
except UserError as error:
    print(f"process {processes.rank}: {error}", file=sys.stderr)

weights = [torch.linspace(-1, 1, 1_000_000), torch.ones(3)]
processes.check_alike(weights)
weights[0][7] += processes.rank * 0.001
try:
    processes.check_alike(weights)
except UserError as error:
    print(f"process {processes.rank}: {error}", file=sys.stderr)

time.sleep(2 * processes.rank)
recipe = read_recipe(Path(cases[-1]["recipe"]), cases[-1]["changes"])
print(f"process {processes.rank} found {train(recipe, Path(cases[-1]['run']), Console(quiet=True))}", file=sys.stderr)

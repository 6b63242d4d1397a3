"""Runs in each of two processes: trains each of the cases in a JSON file, one after the other.

Then, what is to be refused: data and weights of the second process's own. At last it trains the last case again, which
has finished: the second process is slow to hear of it, and the first has nothing left to do.
"""

import json
import sys
import time
from pathlib import Path

import torch

from anydepth.config.reading import read_recipe
from anydepth.errors import UserError
from anydepth.training.distributed import init_distributed
from anydepth.training.run import train

cases = json.loads(Path(sys.argv[1]).read_text("utf-8"))
for case in cases:
    recipe = read_recipe(Path(case["recipe"]), case["changes"])
    train(recipe, Path(case["run"]))

world, _ = init_distributed("cpu", shard=False)
apart = Path(sys.argv[2])
try:
    train(read_recipe(apart / "recipe.yaml", []), apart / str(world.rank))
except UserError as error:
    print(f"process {world.rank}: {error}", file=sys.stderr)

weights = [torch.linspace(-1, 1, 1_000_000), torch.ones(3)]
world.check_in_sync(weights)
weights[0][7] += world.rank * 0.001
try:
    world.check_in_sync(weights)
except UserError as error:
    print(f"process {world.rank}: {error}", file=sys.stderr)

time.sleep(2 * world.rank)
recipe = read_recipe(Path(cases[-1]["recipe"]), cases[-1]["changes"])
print(f"process {world.rank} found {train(recipe, Path(cases[-1]['run']))}", file=sys.stderr)

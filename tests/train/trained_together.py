"""Runs under torchrun: trains each of the cases in a JSON file, one after the other.

Then it gives the second process weights of its own.
"""

import json
import sys
from pathlib import Path

import torch
from rich.console import Console

from anydepth.errors import UserError
from anydepth.recipe import train
from anydepth.recipe_file import read_recipe
from anydepth.train.processes import join

for case in json.loads(Path(sys.argv[1]).read_text("utf-8")):
    recipe = read_recipe(Path(case["recipe"]), case["changes"])
    train(recipe, Path(case["run"]), Console(stderr=True))

processes, _ = join("cpu", shard=False)
weights = [torch.linspace(-1, 1, 1_000_000), torch.ones(3)]
processes.check_alike(weights)
weights[0][7] += processes.rank * 0.001
try:
    processes.check_alike(weights)
except UserError as error:
    print(f"process {processes.rank}: {error}", file=sys.stderr)

"""Runs under torchrun: trains each of the cases in a JSON file, one after the other."""

import json
import sys
from pathlib import Path

from rich.console import Console

from anydepth.recipe import train
from anydepth.recipe_file import read_recipe

for case in json.loads(Path(sys.argv[1]).read_text("utf-8")):
    recipe = read_recipe(Path(case["recipe"]), case["changes"])
    train(recipe, Path(case["run"]), Console(stderr=True))

"""Runs under torchrun: the second process has weights of its own, which is noticed."""

import sys

import torch

from anydepth.errors import UserError
from anydepth.train.processes import join

processes, _ = join("cpu", shard=False)
weights = [torch.linspace(-1, 1, 1000), torch.ones(3)]
processes.check_alike(weights)
weights[0][7] += processes.rank * 0.01
try:
    processes.check_alike(weights)
except UserError as error:
    print(f"process {processes.rank}: {error}", file=sys.stderr)
else:
    sys.exit("not noticed")

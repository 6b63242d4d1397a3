"""Objectives that leave out layers, under DistributedDataParallel with real processes (gloo)."""

import socket

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from anydepth.config import FlexibleConfig, LayerDropConfig, ModelConfig, TeacherConfig
from anydepth.model import Transformer
from anydepth.objectives import make_objective, make_teaching
from anydepth.text import Batch

CONFIG = ModelConfig(width=16, heads=2, ffn=24, encoder_layers=6, decoder_layers=4, dropout=0.0)
OBJECTIVES = {
    "layerdrop": LayerDropConfig(name="layerdrop", encoder_p=0.5, decoder_p=0.5),
    "flexible": FlexibleConfig(name="flexible", encoder_tasks=1, decoder_tasks=1),
    "taught": FlexibleConfig(name="flexible", encoder_tasks=1, decoder_tasks=1),
}
TEACHER = TeacherConfig.model_validate({"model": "self", "method": "ckd", "eta": 0.3, "lambda": 0.3})
SOURCES = [[5, 6, 7], [9, 10, 11], [12, 13, 14], [15, 16, 17]]
TARGETS = [[20, 21], [22, 23], [24, 25], [26, 27]]
STEPS = 6


class Step(nn.Module):
    """What a process computes in one step: the objective's loss of a batch."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.model = Transformer(CONFIG, 40)
        self.objective = make_objective(OBJECTIVES[name], CONFIG, 0.1, seed=1)
        if name == "taught":
            self.objective.teaching = make_teaching(TEACHER, None, self.objective)

    def forward(self, batch: Batch, step: int) -> torch.Tensor:
        return self.objective(self.model, batch, step).weighted(1, 1)


def train(module: nn.Module, parameters: list[nn.Parameter], rows: slice, number: int) -> None:
    # Not Adam, which would scale up the rounding errors of gradients that are zero, as the keys' biases have.
    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for step in range(1, STEPS + 1):
        batch = Batch.from_rows(SOURCES[rows], TARGETS[rows], place=(0, number))
        module(batch, step).backward()
        optimiser.step()
        optimiser.zero_grad()


def worker(rank: int, port: int, name: str, same_batch: bool, path: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    step = Step(name)
    # No find_unused_parameters: a layer without a gradient would be an error here.
    train(
        DistributedDataParallel(step), list(step.parameters()), slice(2 * rank, 2 * rank + 2), 0 if same_batch else rank
    )
    torch.save(dict(step.model.named_parameters()), f"{path}/{rank}.pt")
    torch.distributed.destroy_process_group()


def in_two_processes(name: str, same_batch: bool, path: str) -> list[dict[str, torch.Tensor]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(worker, (port, name, same_batch, path), nprocs=2)
    return [torch.load(f"{path}/{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_processes_with_half_the_batch_each_equal_one_with_the_whole(name, tmp_path):
    first, second = in_two_processes(name, True, str(tmp_path))
    alone = Step(name)
    train(alone, list(alone.parameters()), slice(0, 4), 0)
    for key, value in alone.model.named_parameters():
        assert torch.equal(first[key], second[key])
        torch.testing.assert_close(first[key], value, rtol=1e-4, atol=1e-5)


def test_processes_that_drop_different_layers_stay_equal(tmp_path):
    first, second = in_two_processes("layerdrop", False, str(tmp_path))
    for key in first:
        assert torch.equal(first[key], second[key]), key

"""What scale_model.py foretells against what is measured on this machine."""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from common import interleaved, print_versions, random_batch, random_model
from processes import RECIPE, speed, write_corpus
from scale_model import Cluster, Size, Training
from torch import Tensor, multiprocessing, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from anydepth.config import TiedMultiConfig, VanillaConfig
from anydepth.model import Transformer
from anydepth.objectives import Objective, make_objective
from anydepth.text import Batch
from anydepth.train.processes import Processes
from anydepth.train.trainer import Update

VOCABULARY, LENGTH, ROWS = 8000, 30, 32
SIZE = Size(6, 3, 256, 1024, VOCABULARY)
OBJECTIVES: dict[str, Any] = {
    "one depth": VanillaConfig(name="vanilla"),
    "sampled exits": TiedMultiConfig(name="tied-multi", mode="sampled"),
    "every exit exactly": TiedMultiConfig(name="tied-multi", mode="exact"),
}


def check() -> None:
    torch.set_num_threads(1)
    print_versions()
    print("\n| what | foretold | measured | off by |\n| --- | --- | --- | --- |")
    seconds = _of_objectives()
    _of_state()
    _of_two_processes(seconds)


def row(what: str, foretold: float, measured: float, unit: str) -> None:
    print(f"| {what} | {foretold:.3g} {unit} | {measured:.3g} {unit} | {foretold / measured - 1:+.0%} |", flush=True)


def _of_objectives() -> float:
    """Operations, memory and time of an update. The first time says how fast this machine is, the others follow."""
    model = random_model(SIZE.width, (SIZE.encoder, SIZE.decoder), VOCABULARY, dropout=0.1).train()
    batch = random_batch(ROWS, LENGTH - 1, VOCABULARY)
    made = {name: make_objective(config, model.config, 0.1, seed=1) for name, config in OBJECTIVES.items()}
    foretold = {name: Training(SIZE, "exact" in name, ROWS * LENGTH, LENGTH) for name in made}
    for name, objective in made.items():
        one = foretold[name]
        with FlopCounterMode(display=False) as counter:
            objective(model, batch, 1).weighted(1, 1).backward()
        row(f"operations, {name}", 6e-9 * one.multiplications() * one.tokens, 1e-9 * counter.get_total_flops(), "G")
    for name, objective in made.items():
        row(
            f"kept for gradients, {name}",
            foretold[name].kept() * ROWS * LENGTH / 1e6,
            _kept(model, objective, batch),
            "MB",
        )
    ways = {
        name: (lambda objective=objective: objective(model, batch, 1).weighted(1, 1).backward())
        for name, objective in made.items()
    }
    seconds = interleaved(ways, 7)
    first = seconds["one depth"] / foretold["one depth"].multiplications()
    print(f"| an update, one depth | sets the speed | {seconds['one depth']:.2f} s | |")
    for name in list(made)[1:]:
        row(f"an update, {name}", first * foretold[name].multiplications(), seconds[name], "s")
    return 6 * foretold["one depth"].multiplications() * ROWS * LENGTH / seconds["one depth"]


def _kept(model: Transformer, objective: Objective, batch: Batch) -> float:
    """Megabytes of tensors that autograd saves, weights aside."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, tuple[int, Tensor]] = {}

    def note(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes(), value  # held on to, so that its place is not used again
        return value

    with saved_tensors_hooks(note, lambda value: value):
        objective(model, batch, 1)
    return sum(size for size, _ in saved.values()) / 1e6


def _in_two(rank: int, port: int, folder: str) -> None:
    """A process of two: bytes of its state, whole and sharded, and the speed of its link to the other."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    found = {}
    for sharded in (False, True):
        model = random_model(SIZE.width, (SIZE.encoder, SIZE.decoder), VOCABULARY)
        objective = make_objective(OBJECTIVES["one depth"], model.config, 0.1, seed=1)
        update = Processes(rank, 2, sharded).wrapped(Update(model, objective), model, set())
        optimiser = torch.optim.Adam(model.parameters())
        update(random_batch(4, LENGTH - 1, VOCABULARY), 1, (1.0, 1.0))[0].backward()
        optimiser.step()
        found[sharded] = sum(_bytes(parameter, optimiser) for parameter in model.parameters())
    whole = torch.zeros(SIZE.parameters)
    taken = []
    for _ in range(8):
        began = time.perf_counter()
        dist.all_reduce(whole)
        taken.append(time.perf_counter() - began)
    if rank == 0:
        torch.save({"state": found, "link": 4 * SIZE.parameters / median(taken[1:])}, f"{folder}/found.pt")
    dist.destroy_process_group()


def _bytes(parameter: nn.Parameter, optimiser: torch.optim.Optimizer) -> int:
    state = optimiser.state[parameter]
    tensors = [parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]]
    local = [one.to_local() if hasattr(one, "to_local") else one for one in tensors]
    return sum(one.nbytes for one in local)


_link: list[float] = []


def _of_state() -> None:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_in_two, (_free_port(), folder), nprocs=2)  # type: ignore
        found = torch.load(f"{folder}/found.pt")
    one = Training(SIZE, False, ROWS * LENGTH)
    for sharded, name in ((False, "whole"), (True, "sharded in two")):
        row(f"weights, gradients and moments, {name}", one.state(2, sharded) / 1e6, found["state"][sharded] / 1e6, "MB")
    _link.append(found["link"])


def _of_two_processes(flops: float) -> None:
    """One process says how fast it is, two that know nothing of each other what cores lose side by side; two that train
    together follow."""
    tokens, ratios, rates, beside = 4000, [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        recipe = folder / "recipe.yaml"
        recipe.write_text(RECIPE.format(folder=folder, tokens=tokens, every=15), "utf-8")
        for number in (1, 2, 3):
            one, two = (speed(recipe, folder / f"run-{n}", number * 30, n) for n in (1, 2))
            with ThreadPoolExecutor() as pool:
                both = pool.map(lambda n, steps=number * 30: speed(recipe, folder / f"beside-{n}", steps, 1), (1, 2))
                beside.append(sum(both) / one)
            ratios.append(two / one)
            rates.append(one)
    update = Training(SIZE, False, tokens)
    alone = tokens / median(rates)
    here = Cluster(6 * update.multiplications() * tokens / alone, 0, _link[0], _link[0], 2)
    ideal = alone / update.seconds(here, 2)[0]
    row("two processes against one, were cores their own", ideal, median(ratios), "x")
    row("the same, less what two trainings lose side by side", ideal * median(beside) / 2, median(ratios), "x")
    print(
        f"\ntwo trainings side by side: {median(beside):.2f}x one; one core: {flops / 1e9:.0f} billion operations/s; "
    )
    print(f"gloo: {_link[0] / 1e9:.1f} GB/s")


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])

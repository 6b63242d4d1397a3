"""The estimates of scale_model.py against measurements on this machine."""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import ray
import torch
import torch.distributed as dist
from common import interleaved, print_versions, random_batch, random_model
from distill import run_distill
from on_ray import OPTIONS, made, time_distilling
from processes import RECIPE, speed, write_corpus
from scale_model import Cluster, Size, Training, Translating
from torch import Tensor, multiprocessing, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from anydepth.config import TiedMultiConfig, VanillaConfig
from anydepth.data import Batch, BatchStream, PairStore
from anydepth.export.ray import RayRunner
from anydepth.infer.distill import ChunkResult, DistillCounts, DistillOptions
from anydepth.infer.runner import local
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.objectives import Objective, make_objective
from anydepth.training.distributed import World
from anydepth.training.trainer import Update

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
    print("\n| what | estimated | measured | off by |\n| --- | --- | --- | --- |")
    seconds = _of_objectives()
    _of_state()
    _of_two_processes(seconds)
    _of_workers()
    _of_writing()


def row(what: str, estimated: float, measured: float, unit: str) -> None:
    print(f"| {what} | {estimated:.3g} {unit} | {measured:.3g} {unit} | {estimated / measured - 1:+.0%} |", flush=True)


def _of_objectives() -> float:
    """Operations, memory and time of an update. The first time says how fast this machine is, the others follow."""
    model = random_model(SIZE.width, (SIZE.encoder, SIZE.decoder), VOCABULARY, dropout=0.1).train()
    batch = random_batch(ROWS, LENGTH - 1, VOCABULARY)
    made = {name: make_objective(config, model.config, 0.1, seed=1) for name, config in OBJECTIVES.items()}
    estimated = {name: Training(SIZE, "exact" in name, ROWS * LENGTH, LENGTH) for name in made}
    for name, objective in made.items():
        one = estimated[name]
        with FlopCounterMode(display=False) as counter:
            objective(model, batch, 1).weighted(1, 1).backward()
        row(f"operations, {name}", 6e-9 * one.multiplications() * one.tokens, 1e-9 * counter.get_total_flops(), "G")
    for name, objective in made.items():
        row(
            f"kept for gradients, {name}",
            estimated[name].kept() * ROWS * LENGTH / 1e6,
            _kept(model, objective, batch),
            "MB",
        )
    ways = {
        name: (lambda objective=objective: objective(model, batch, 1).weighted(1, 1).backward())
        for name, objective in made.items()
    }
    seconds = interleaved(ways, 7)
    first = seconds["one depth"] / estimated["one depth"].multiplications()
    print(f"| an update, one depth | sets the speed | {seconds['one depth']:.2f} s | |")
    for name in list(made)[1:]:
        row(f"an update, {name}", first * estimated[name].multiplications(), seconds[name], "s")
    return 6 * estimated["one depth"].multiplications() * ROWS * LENGTH / seconds["one depth"]


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
        update = World(rank, 2, sharded).wrap(Update(model, objective), model, set())
        optimizer = torch.optim.Adam(model.parameters())
        update(random_batch(4, LENGTH - 1, VOCABULARY), 1, (1.0, 1.0))[0].backward()
        optimizer.step()
        found[sharded] = sum(_bytes(parameter, optimizer) for parameter in model.parameters())
    whole = torch.zeros(SIZE.parameters)
    taken = []
    for _ in range(8):
        began = time.perf_counter()
        dist.all_reduce(whole)
        taken.append(time.perf_counter() - began)
    if rank == 0:
        torch.save({"state": found, "link": 4 * SIZE.parameters / median(taken[1:])}, f"{folder}/found.pt")
    dist.destroy_process_group()


def _bytes(parameter: nn.Parameter, optimizer: torch.optim.Optimizer) -> int:
    state = optimizer.state[parameter]
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
    places, ratios, rates, beside = 4000, [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        recipe = folder / "recipe.yaml"
        recipe.write_text(RECIPE.format(folder=folder, tokens=places, every=15), "utf-8")
        for number in (1, 2, 3):
            one, two = (speed(recipe, folder / f"run-{n}", number * 30, n) for n in (1, 2))
            with ThreadPoolExecutor() as pool:
                both = pool.map(lambda n, steps=number * 30: speed(recipe, folder / f"beside-{n}", steps, 1), (1, 2))
                beside.append(sum(both) / one)
            ratios.append(two / one)
            rates.append(one)
        store = PairStore(folder / "run-1" / "data", "train")
        of_epoch = int(store.target_lengths.sum()) + len(store)
        tokens = of_epoch // BatchStream(store, places, seed=1).batches_in(0)
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


def _of_workers(lines: int = 4000) -> None:
    """One worker of Ray says how long it takes to begin; two follow."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        translator, source = made(folder, lines)
        alone, one, two = (_on_ray(translator, source, folder / f"out-{workers}", workers) for workers in (0, 1, 2))
    job = Translating(lines, alone / lines, OPTIONS.chunk, deaths_per_day=0, loading=max(0.0, one - alone))
    row("distilling with two workers of Ray", 3600 * job.hours(2), two, "s")


def _on_ray(translator: Translator, source: Path, out: Path, workers: int) -> float:
    seconds = time_distilling(translator, source, out, RayRunner(workers=workers) if workers else local)
    ray.shutdown()
    return seconds


def _of_writing(pieces: int = 100) -> None:
    """What a piece takes where all are written down, whoever has translated it."""

    def instantly(_: Any, __: Translator, chunks: Iterator[Any], ___: Any) -> Iterator[Any]:
        for lines, _ in chunks:
            yield ChunkResult([(line, line) for line in lines], DistillCounts(len(lines), len(lines)))

    with tempfile.TemporaryDirectory() as name:
        translator, source = made(Path(name), pieces * DistillOptions().chunk)
        began = time.perf_counter()
        run_distill(translator, source, Path(name) / "out", DistillOptions(), instantly)  # type: ignore[arg-type]
        seconds = (time.perf_counter() - began) / pieces
    print(f"\nto write down a piece of {DistillOptions().chunk} lines takes {1e3 * seconds:.0f} ms")


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])

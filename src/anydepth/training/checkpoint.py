"""Checkpoints: a folder per step, written atomically, with tensors in safetensors and the rest in JSON."""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from anydepth.files import atomic_folder, file_sha256
from anydepth.tensors import write_tensors


@dataclass
class TrainState:
    """Everything besides tensors that a run needs for an exact resume."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # the next batch of the epoch
    best: float | None = None
    best_step: int = 0
    worse: int = 0  # validations since the best
    stopped: bool = False
    data: str = ""  # fingerprint of the prepared text
    scaler: dict[str, Any] = field(default_factory=dict)


@dataclass
class Checkpoint:
    state: TrainState
    tensors: dict[str, dict[str, Tensor]]  # by file: model, optimizer, objective


def _folder(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:09d}"


def save_checkpoint(run: Path, checkpoint: Checkpoint) -> None:
    with atomic_folder(_folder(run, checkpoint.state.step)) as folder:
        files = {}
        for name, tensors in checkpoint.tensors.items():
            path = folder / f"{name}.safetensors"
            write_tensors(path, tensors)
            files[path.name] = file_sha256(path)
        (folder / "state.json").write_text(json.dumps({"state": asdict(checkpoint.state), "files": files}, indent=1))


def saved_steps(run: Path) -> list[int]:
    """The steps that have a checkpoint folder, intact or torn, oldest first."""
    names = (path.name.removeprefix("step-") for path in (run / "checkpoints").glob("step-*"))
    return sorted(int(name) for name in names if name.isdigit())


def read_state(run: Path, step: int) -> TrainState | None:
    """The state of a checkpoint, or None if it is torn: a file is missing or damaged."""
    folder = _folder(run, step)
    try:
        record = json.loads((folder / "state.json").read_text())
        if any(file_sha256(folder / name) != digest for name, digest in record["files"].items()):
            return None
        return TrainState(**record["state"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remove_torn(run: Path) -> list[int]:
    """Remove torn checkpoints and what a killed writer left; return their steps."""
    for path in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)
    torn = [step for step in saved_steps(run) if read_state(run, step) is None]
    remove_checkpoints(run, set(saved_steps(run)) - set(torn))
    return torn


def load_tensors(run: Path, step: int, name: str) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = load_file(_folder(run, step) / f"{name}.safetensors")
    return tensors


def remove_checkpoints(run: Path, keep: set[int]) -> None:
    for step in saved_steps(run):
        if step not in keep:
            shutil.rmtree(_folder(run, step), ignore_errors=True)


def average_checkpoints(run: Path, steps: list[int], kind: str = "model") -> dict[str, Tensor]:
    """The mean of the models, or of another `kind` of file, summed in double precision."""
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for step in steps:
        for name, value in load_tensors(run, step, kind).items():
            dtypes[name] = value.dtype
            total[name] = total.get(name, torch.zeros((), dtype=torch.float64)) + value.double()
    return {name: (value / len(steps)).to(dtypes[name]) for name, value in total.items()}

"""The weights of a model as NumPy arrays, by name: from model.safetensors, without PyTorch, or of a Transformer."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from anydepth.artifact.folder import parameter_shapes
from anydepth.config import ModelConfig

if TYPE_CHECKING:
    from anydepth.model import Transformer

Floats32 = NDArray[np.float32]
# What safetensors calls the types that weights are stored in. NumPy has no bfloat16: its bits are read.
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class ModelArrays:
    """Each tensor in float32, read when it is asked for; those that layers share are there under the first name."""

    config: ModelConfig
    vocabulary: int
    classes: int
    read: Callable[[str], Floats32]

    @classmethod
    def of_model(cls, model: "Transformer") -> "ModelArrays":
        parameters = dict(model.named_parameters())

        def read(name: str) -> Floats32:
            values: Floats32 = parameters[name].detach().float().cpu().contiguous().numpy()
            return values

        return cls(model.config, model.vocabulary, model.classes, read)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """In the order that PyTorch has them in."""
        return tuple(parameter_shapes(self.config, self.vocabulary, self.classes))

    def __getitem__(self, name: str) -> Floats32:
        return self.read(name)


class StoredArrays:
    """The tensors of a file of safetensors, which may be stored in half precision."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "numpy"):  # which checks the header
            pass
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            self._entries: dict[str, dict[str, Any]] = json.loads(file.read(size))
        self._entries.pop("__metadata__", None)
        self._path, self._start = path, 8 + size

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(entry["shape"]) for name, entry in self._entries.items()}

    def read(self, name: str) -> Floats32:
        entry = self._entries[name]
        if entry["dtype"] not in TYPES:
            raise ValueError(f"{name} has the type {entry['dtype']}")
        offset, count = self._start + entry["data_offsets"][0], math.prod(entry["shape"])
        stored = np.fromfile(self._path, TYPES[entry["dtype"]], count, offset=offset).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            stored = (stored.astype("<u4") << 16).view("<f4")
        values: Floats32 = stored.astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has values that are not finite numbers")
        return values

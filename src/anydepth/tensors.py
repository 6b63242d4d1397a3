"""Tensors written to disk in safetensors, which runs no code on loading; and one that is computed, of positions."""

import json
import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

FAIRSEQ_FIRST = 2  # the position of a text's first subword in fairseq


def write_tensors(path: Path, tensors: "dict[str, Tensor]") -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file  # needs PyTorch, unlike those who import this

    try:
        save_file({name: value.detach().contiguous() for name, value in tensors.items()}, path)
    except SafetensorError as error:  # the system's error, such as a full disk, is in its message
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    path.chmod(0o666 & ~_umask())  # safetensors makes files that only their owner can read


TENSOR_TYPES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8}  # as safetensors calls them, and their sizes in bytes


def stream_tensors(
    path: Path,
    kind: str,
    shapes: "dict[str, tuple[int, ...]]",
    parts: "Callable[[str], Iterable[Tensor]]",
    metadata: dict[str, str] | None = None,
) -> None:
    """Write a file of safetensors tensor by tensor, each in parts along its first dimension, all of one type.

    No more than a part has to be in memory.
    """
    import torch

    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, shape in shapes.items():
        size = math.prod(shape) * TENSOR_TYPES[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            size = 0
            for part in parts(name):
                data = part.contiguous().reshape(-1).view(torch.uint8).numpy().data
                size += file.write(data)
            if size != math.prod(shape) * TENSOR_TYPES[kind]:
                raise ValueError(f"{name} has another size than its place")


def sinusoids(positions: int, width: int, fairseq: bool = False) -> "NDArray[np.float32]":
    """Sine in the even features, cosine in the odd ones (Vaswani et al. 2017, Section 3.5).

    Those of fairseq have other frequencies, the lowest being 1 / 10,000, and begin at position 2.

    Functions are computed in float64 and rounded, so that all machines and engines have the same table.
    """
    import numpy as np  # which not all who import this need

    if fairseq:
        exponents = np.arange(width // 2, dtype=np.float32) * np.float32(-math.log(10_000.0) / (width // 2 - 1))
    else:
        exponents = np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10_000.0) / width)
    rates = np.exp(exponents.astype(np.float64)).astype(np.float32)
    first = FAIRSEQ_FIRST if fairseq else 0
    angles = (np.arange(first, first + positions, dtype=np.float32)[:, None] * rates).astype(np.float64)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32).reshape(positions, width)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

"""Tensors written to disk in safetensors, which runs no code on loading; and one that is computed, of positions."""

import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


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


def sinusoids(positions: int, width: int) -> "NDArray[np.float32]":
    """Sine in the even features, cosine in the odd ones (Vaswani et al. 2017, Section 3.5).

    Functions are computed in float64 and rounded, so that all machines and engines have the same table.
    """
    import numpy as np  # which not all who import this need

    exponents = np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10_000.0) / width)
    rates = np.exp(exponents.astype(np.float64)).astype(np.float32)
    angles = (np.arange(positions, dtype=np.float32)[:, None] * rates).astype(np.float64)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32).reshape(positions, width)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

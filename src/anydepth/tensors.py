"""Writes tensors to disk in safetensors, which runs no code on loading."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

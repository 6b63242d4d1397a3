"""What there is to compute with: CPU cores and PyTorch devices."""

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from anydepth.errors import UserError

if TYPE_CHECKING:
    import torch


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows do not have it
        return os.cpu_count() or 1


def processor() -> str:
    """The model of the processor; on Linux platform.processor() does not know it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def choose_device(name: str) -> "torch.device":
    """The device of this name: auto, cpu, cuda or cuda:N."""
    import torch  # here, because `cores` is used where PyTorch is not needed

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise UserError(f"there is no device {name!r}: use auto, cpu or cuda")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {name!r} is not available here: use auto or cpu") from error
    return device

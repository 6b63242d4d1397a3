"""What there is to compute with: CPU cores and PyTorch devices."""

import os
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from anydepth.errors import UserError

if TYPE_CHECKING:
    import torch

_torch_threads: int | None = None  # asked for before PyTorch was imported


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


def set_torch_threads(threads: int | None) -> None:
    """PyTorch has one number of threads for the whole process. None: as it is.

    Where PyTorch is not imported yet, `apply_torch_threads` does it once it is.
    """
    global _torch_threads
    _torch_threads = threads or _torch_threads
    if "torch" in sys.modules:
        apply_torch_threads()


def apply_torch_threads() -> None:
    global _torch_threads
    if _torch_threads is not None:
        import torch

        torch.set_num_threads(_torch_threads)
        _torch_threads = None


def may_have_gpu() -> bool:
    """Whether PyTorch could find a GPU here: without a sign of a driver, it need not be imported to ask."""
    return "torch" in sys.modules or _has_gpu_driver()


def has_gpu() -> bool:
    """Whether PyTorch finds a GPU; where it is not imported, whether there is a driver for one."""
    torch = sys.modules.get("torch")
    return _has_gpu_driver() if torch is None else bool(torch.cuda.is_available())


def _has_gpu_driver() -> bool:
    if sys.platform == "win32":
        return (Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "System32" / "nvcuda.dll").exists()
    signs = ("/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg", "/dev/kfd", "/dev/nvmap", "/dev/nvhost-gpu")
    return any(map(os.path.exists, signs))


def runs_on_cpu(device: str) -> bool:
    """Whether `choose_device` would choose a CPU, where that is clear without PyTorch."""
    return device == "cpu" or (device == "auto" and not may_have_gpu())


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

"""What this machine has to run models with, what is slow, and why."""

import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch

from anydepth import __version__
from anydepth.artifact import bundled_model
from anydepth.device import cores, processor
from anydepth.engines.core import kernels
from anydepth.errors import UserError
from anydepth.evaluate.experiment import OtherLoad
from anydepth.export import EXTRAS

SIZE, ROUNDS = 384, 5
BUSY = 0.5  # cores used by other programs, above which timings are unreliable
SLOW = 1.5  # times float32: a type slower than that is worth a warning, one faster by as much a hint
LITTLE_DISK = 2e9


@dataclass
class Findings:
    """Facts in groups, by name; and advice, in sentences."""

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)


def examine() -> Findings:
    found, load = Findings(), OtherLoad()
    for part in (_software, _machine, _engines, _arithmetic, _bundled):
        part(found)
    found.advice += advice_on_load(other_load(load))
    return found


def _software(found: Findings) -> None:
    found.facts["software"] = {
        "anydepth": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        **{name: _version(name) for name in ("sentencepiece", "safetensors", "sacrebleu")},
        "system": platform.platform(terse=True),
    }


def _machine(found: Findings) -> None:
    usable, there = cores(), os.cpu_count() or 1
    quota = _quota()
    facts = {
        "processor": processor() or platform.machine(),
        "cores": f"{usable} of {there} may be used" if usable < there else str(there),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "torch threads": str(torch.get_num_threads()),
        "memory": _memory(),
        "GPU": _gpus(),
    }
    if quota is not None and quota < usable:
        facts["cores"] += f", limited to {quota:g}"
        found.advice.append(
            f"the container is limited to {quota:g} cores but sees {usable}: set threads to {max(1, int(quota))}"
        )
    found.facts["machine"] = facts
    free = shutil.disk_usage(Path.cwd()).free
    if free < LITTLE_DISK:
        found.advice.append(f"{free / 1e9:.1f} GB of disk are free: a training run may need more")


def other_load(load: OtherLoad) -> float:
    """In cores. The load average, where nothing better is known, counts processes that wait, too."""
    measured = load.cores()
    if measured is None and hasattr(os, "getloadavg"):
        measured = os.getloadavg()[0]
    return min(measured or 0.0, os.cpu_count() or 1)


def advice_on_load(busy: float) -> list[str]:
    if busy <= BUSY:
        return []
    there = os.cpu_count() or 1
    return [
        f"other programs use about {busy:.1f} of {there} cores: times measured now (sweep, calibrate) are unreliable"
    ]


def _gpus() -> str:
    if not torch.cuda.is_available():
        return "none"
    count = torch.cuda.device_count()
    return torch.cuda.get_device_name(0) + (f" and {count - 1} more" if count > 1 else "")


def _engines(found: Findings) -> None:
    rows = {"torch": "every model, every depth, cpu" + (" and cuda" if torch.cuda.is_available() else "")}
    rows["native"], native = _native(found)
    for extra, packages in EXTRAS.items():
        missing = [name for name in packages if find_spec(name) is None]
        rows[extra] = (
            f"missing: pip install 'anydepth[{extra}]'" if missing else f"{packages[0]} {_version(packages[0])}"
        )
    if find_spec("ctranslate2") is not None:
        from anydepth.engines.ctranslate2 import available

        types = available()
        rows["ctranslate2"] += f", computes in {', '.join(sorted(types))}"
        if "int8" not in types:
            found.advice.append("CTranslate2 has no int8 on this processor: its int8 models save disk but no time")
    elif not native:
        found.advice.append(
            "without CTranslate2 translation runs on torch, which is about half as fast: "
            "pip install 'anydepth[ctranslate2]'"
        )
    found.facts["engines and extras"] = rows


def _native(found: Findings) -> tuple[str, bool]:
    """The state of the native engine, and whether `auto` chooses it."""
    try:
        fastest = kernels()
    except UserError as error:
        found.advice.append(str(error))
        return "missing: built where there is a C++ compiler when anydepth is installed", False
    if fastest == "plain":
        found.advice.append(
            "the native engine has no fast instructions for this processor: the engine `auto` is another; "
            "native runs, slowly"
        )
        return "int8 without fast instructions", False
    return f"int8, every depth from one copy of the weights, {fastest}", True


def _arithmetic(found: Findings) -> None:
    """Times a matrix product in each type, interleaved, so that a slow moment hits all of them."""
    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    ways = {name: _product(dtype) for name, dtype in types.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, run in ways.items():
            began = time.perf_counter()
            run()
            if turn:  # the first warms up
                seconds[name].append(time.perf_counter() - began)
    times = {name: median(values) for name, values in seconds.items()}
    rate = 2 * SIZE**3 / times["float32"] / 1e9
    rows = {"float32": f"{rate:.0f} GFLOP/s, {torch.get_num_threads()} threads"}
    ratios = {name: times[name] / times["float32"] for name in ("bfloat16", "float16")}
    for name, ratio in ratios.items():
        rows[name] = f"{ratio:.1f} times the time of float32" if ratio >= 1 else f"{1 / ratio:.1f} times as fast"
    found.advice += advice_on_types(ratios)
    found.facts["arithmetic on the CPU"] = rows


def advice_on_types(ratios: Mapping[str, float]) -> list[str]:
    """Advice from times relative to float32: processors may have instructions for one type and not another."""
    said = [
        f"this processor has no fast instructions for {name}: products take {ratio:.1f} times as long as in float32, "
        f"so do not set `train.precision: {name}` on it"
        for name, ratio in ratios.items()
        if ratio > SLOW
    ]
    bfloat16 = ratios.get("bfloat16", 1.0)  # no advice for float16: it needs loss scaling and is no faster
    if bfloat16 < 1 / SLOW:
        said.append(
            f"this processor is fast in bfloat16: products take {bfloat16:.2f} of the time of float32, so "
            "`train.precision: bfloat16` may pay; `auto` computes in float32 on every CPU"
        )
    return said


def _product(dtype: torch.dtype) -> Callable[[], object]:
    matrix = torch.randn(SIZE, SIZE).to(dtype)
    return lambda: matrix @ matrix


def _bundled(found: Findings) -> None:
    try:
        folder = bundled_model()
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        found.facts["bundled model"] = {folder.name: f"{size / 1e6:.1f} MB, {folder}"}
    except UserError as error:
        found.advice.append(str(error))


def _version(package: str) -> str:
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "missing"


def _memory() -> str:
    try:
        pages = {name: os.sysconf(f"SC_{name}") * os.sysconf("SC_PAGE_SIZE") for name in ("PHYS_PAGES", "AVPHYS_PAGES")}
        return f"{pages['PHYS_PAGES'] / 2**30:.1f} GiB, {pages['AVPHYS_PAGES'] / 2**30:.1f} free"
    except (ValueError, OSError, AttributeError):
        return "unknown"


def _quota() -> float | None:
    """The CPU time that a container may use, in cores."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("utf-8").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None

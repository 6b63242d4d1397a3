"""The runtime package as its wheel has it, with the library of this installation, which has the same C interface."""

import shutil
from pathlib import Path

from anydepth.engines.core import library

ROOT = Path(__file__).parents[1]


def make_runtime(folder: Path) -> Path:
    package = folder / "anydepth_runtime"
    shutil.copytree(ROOT / "runtime" / "src" / package.name, package, ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(library()._name, package / "core.so")
    shutil.copy(ROOT / "src" / "anydepth" / "serve" / "segments.py", package)
    return folder

"""The tests that hold the shape of the project (see docs/architecture.md)."""

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import python

import anydepth

SOURCE = Path(anydepth.__file__).parent
# A room imports from rooms before it, and from itself.
ORDER = [
    *("errors", "device", "rng", "files", "progress", "tensors"),
    *("config", "depth", "data", "model", "word_depths", "selectors"),
    *("artifact", "engines", "infer", "evaluate", "export", "serve"),
    *("objectives", "training", "fitting", "cli"),
]
# What trains in two rooms: nothing that only runs a model imports it.
FITTING = {
    *(f"selectors/{name}.py" for name in ("data", "objective", "select", "training")),
    "word_depths/reconstruction.py",
}


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, which would not be seen here"
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        rooms |= {make_room(name.split(".")[1:]) for name in names if name.startswith("anydepth.")}
    return rooms


def make_room(parts: Sequence[str]) -> str:
    """Of a module: the folder it is in, but for those that train."""
    return "fitting" if f"{'/'.join(parts[:2])}.py" in FITTING else parts[0]


def test_imports_point_one_way():
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE)
        room = make_room(inside.with_suffix("").parts)
        if room in ("__init__", "__main__"):
            continue
        later = {other for other in imported_rooms(path) & set(ORDER) if ORDER.index(other) > ORDER.index(room)}
        assert not later, f"{inside} imports {later}"


def test_both_packages_have_one_version():
    """Each is in one place; a model file of the one is for the other."""
    runtime = Path(__file__).parent.parent / "runtime" / "src" / "anydepth_runtime" / "__init__.py"
    assert f'__version__ = "{anydepth.__version__}"' in runtime.read_text("utf-8").splitlines()


def test_make_bench_runs_every_benchmark():
    root = Path(__file__).parent.parent
    programs = [path for path in (root / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8")]
    makefile = (root / "Makefile").read_text("utf-8")
    assert programs
    assert [path.name for path in programs if f"benchmarks/{path.name}" not in makefile] == []


@pytest.mark.slow
def test_a_model_decodes_with_objectives_and_training_unimportable(toy_run):
    script = f"""
import sys
for room in ("objectives", "training", *(name.removesuffix(".py").replace("/", ".") for name in {sorted(FITTING)!r})):
    sys.modules["anydepth." + room] = None
import anydepth, anydepth.evaluate.sweep, anydepth.evaluate.report
import anydepth.export.export, anydepth.serve.server, anydepth.export.doctor
print(anydepth.load({str(toy_run)!r}).translate(["le chat dort."], depth="1-1", beam=2)[0])
"""
    done = python(script)
    assert done.stdout.strip() == "the cat sleeps.", done.stderr

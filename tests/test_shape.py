"""The tests that hold the shape of the project (see docs/design.md)."""

import ast
import subprocess
import sys
from pathlib import Path

import anydepth

SOURCE = Path(anydepth.__file__).parent
TOP = {"foundations", "pretrained", "recipe", "recipe_parts", "estimating", "selecting", "cli"}
RUNNING = {"select", "infer", "native", "evaluate", "artifact", "model_folder", "deploy", "box"}
TRAINING = {"objectives", "train"}
FORBIDDEN = {
    "config": {"depth", "data", "model"} | RUNNING | TRAINING | TOP,
    "depth": {"config", "data", "model"} | RUNNING | TRAINING | TOP,
    "data": {"depth", "model"} | RUNNING | TRAINING | TOP,
    "model": {"data"} | RUNNING | TRAINING | TOP,
    "select": {"infer", "native", "evaluate", "artifact", "model_folder", "deploy"} | TRAINING | TOP,
    "objectives": {"train", "infer", "evaluate", "artifact", "model_folder", "deploy"} | TOP,
    "train": {"artifact", "model_folder", "deploy"} | TOP,
    "infer": {"native", "evaluate", "artifact", "model_folder", "deploy"} | TRAINING | TOP,
    "native": {"evaluate", "artifact", "model_folder", "deploy"} | TRAINING | TOP,
    "evaluate": {"native", "deploy"} | TRAINING | TOP,
    "deploy": TRAINING | TOP,
    "box": {"deploy", "artifact"} | TRAINING | TOP,
    "artifact": {"native", "evaluate", "deploy"} | TRAINING | TOP,
    "model_folder": {"evaluate", "artifact", "deploy"} | TRAINING | TOP,
    "pretrained": {"foundations", "recipe", "selecting", "estimating", "cli"} | RUNNING | TRAINING,
    "foundations": {"recipe", "selecting", "estimating", "cli"},
    "recipe": {"selecting", "estimating", "cli"},
    "selecting": {"recipe", "estimating", "cli"},
    "estimating": {"selecting", "cli"},
}


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("anydepth.")}
    return rooms


def test_imports_point_one_way():
    for room, forbidden in FORBIDDEN.items():
        files = list((SOURCE / room).rglob("*.py")) or [SOURCE / f"{room}.py"]
        assert files, room
        for path in files:
            assert not imported_rooms(path) & forbidden, f"{path.name} imports {imported_rooms(path) & forbidden}"


def test_make_bench_runs_every_benchmark():
    root = Path(__file__).parent.parent
    programs = [path for path in (root / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8")]
    makefile = (root / "Makefile").read_text("utf-8")
    assert programs
    assert [path.name for path in programs if f"benchmarks/{path.name}" not in makefile] == []


def test_a_model_decodes_with_objectives_and_training_unimportable(toy_run):
    script = f"""
import sys
for room in ("objectives", "train", "foundations", "recipe", "selecting"):
    sys.modules["anydepth." + room] = None
import anydepth, anydepth.evaluate.sweep, anydepth.evaluate.report
import anydepth.deploy.export, anydepth.deploy.server.run, anydepth.deploy.doctor
print(anydepth.load({str(toy_run)!r}).translate(["le chat dort."], depth="1-1", beam=2)[0])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "the cat sleeps.", done.stderr

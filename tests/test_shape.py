"""The tests that hold the shape of the project (see docs/design.md)."""

import ast
import subprocess
import sys
from pathlib import Path

import anydepth

SOURCE = Path(anydepth.__file__).parent
FORBIDDEN = {
    "config": {"depth", "text", "model", "objectives", "train", "infer", "evaluate", "artifact", "recipe", "cli"},
    "depth": {"config", "text", "model", "objectives", "train", "infer", "evaluate", "artifact", "recipe", "cli"},
    "text": {"depth", "model", "objectives", "train", "infer", "evaluate", "artifact", "recipe", "cli"},
    "model": {"text", "objectives", "train", "infer", "evaluate", "artifact", "recipe", "cli"},
    "objectives": {"train", "infer", "evaluate", "artifact", "recipe", "cli"},
    "train": {"artifact", "recipe", "cli"},
    "infer": {"objectives", "train", "evaluate", "artifact", "recipe", "cli"},
    "evaluate": {"objectives", "train", "recipe", "cli"},
    "artifact": {"objectives", "train", "evaluate", "recipe", "cli"},
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
        files = list((SOURCE / room).glob("*.py")) or [SOURCE / f"{room}.py"]
        assert files, room
        for path in files:
            assert not imported_rooms(path) & forbidden, f"{path.name} imports {imported_rooms(path) & forbidden}"


def test_a_model_decodes_with_objectives_and_training_unimportable(toy_run):
    script = f"""
import sys
sys.modules["anydepth.objectives"] = sys.modules["anydepth.train"] = sys.modules["anydepth.recipe"] = None
import anydepth, anydepth.evaluate.sweep, anydepth.evaluate.report
print(anydepth.load({str(toy_run)!r}).translate(["le chat dort."], depth="1-1", beam=2)[0])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "the cat sleeps.", done.stderr

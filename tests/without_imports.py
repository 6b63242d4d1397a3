"""Programs that may not import some modules, such as PyTorch."""

import os
import subprocess
import sys


def without(modules: tuple[str, ...], code: str) -> list[str]:
    """The command of a program that may not import these."""
    script = f"""
import sys
class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ImportError(name + " must not be imported")
sys.meta_path.insert(0, Forbidden())
{code}
"""
    return [sys.executable, "-c", script]


def run_without_torch(code: str, modules: tuple[str, ...] = ("torch", "numpy")) -> str:
    command = without(modules, code)
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout

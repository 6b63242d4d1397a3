"""Compiles the core, which is csrc of anydepth (a copy of it in a source distribution), as a library with a C API.

The wheel is for any Python 3 of a platform: py3-none-<platform>.
"""

import shutil
from pathlib import Path

from setuptools import Distribution, Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
BESIDE, OWN = HERE.parent / "csrc", HERE / "csrc"
CORE = BESIDE if BESIDE.is_dir() else OWN
FLAGS = {"msvc": ["/std:c++17", "/O2", "/EHsc", "/utf-8"]}
UNIX_FLAGS = ["-std=c++17", "-O3", "-g0", "-fvisibility=hidden"]


class BuildCore(build_ext):
    """A library with a C API, not a Python module: it has no init function, and no Python version in its name."""

    def get_export_symbols(self, ext: Extension) -> list:
        return ext.export_symbols

    def get_ext_filename(self, fullname: str) -> str:
        suffix = Path(super().get_ext_filename(fullname)).suffix
        return f"{fullname.replace('.', '/')}{'.dll' if suffix == '.pyd' else suffix}"

    def build_extensions(self) -> None:
        for extension in self.extensions:
            extension.extra_compile_args = FLAGS.get(self.compiler.compiler_type, UNIX_FLAGS)
        super().build_extensions()


class AnyPython(bdist_wheel):
    def get_tag(self) -> tuple:
        return "py3", "none", super().get_tag()[2]


class WithCore(sdist):
    def make_release_tree(self, base_dir: str, files: list) -> None:
        super().make_release_tree(base_dir, files)
        if not (Path(base_dir) / "csrc").exists():
            wanted = shutil.ignore_patterns("tests", "program", "wasm")
            shutil.copytree(CORE, Path(base_dir) / "csrc", ignore=wanted)


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


def relative(path: Path) -> str:
    return Path("..", path.relative_to(HERE.parent)).as_posix() if CORE == BESIDE else path.relative_to(HERE).as_posix()


setup(
    packages=find_packages("src"),
    package_dir={"": "src"},
    distclass=Binary,
    cmdclass={"build_ext": BuildCore, "bdist_wheel": AnyPython, "sdist": WithCore},
    ext_modules=[
        Extension(
            "anydepth_runtime.core",
            sources=sorted(relative(path) for path in CORE.glob("*.cpp")),
            depends=sorted(relative(path) for pattern in ("*.h", "*.inl") for path in CORE.glob(pattern)),
            language="c++",
        )
    ],
)

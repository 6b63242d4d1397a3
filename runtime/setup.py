"""Compiles the core, which is csrc of anydepth (a copy of it in a source distribution), as a library with a C API.

The one Python file that anydepth and the runtime share, segments.py, is copied in.

The wheel is for any Python 3 of a platform: py3-none-<platform>.
"""

import shutil
from pathlib import Path

from setuptools import Distribution, Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
BESIDE, OWN = HERE.parent / "csrc", HERE / "csrc"
CORE = BESIDE if BESIDE.is_dir() else OWN
SEGMENTS, PACKAGE = HERE.parent / "src" / "anydepth" / "serve" / "segments.py", Path("src", "anydepth_runtime")
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


class WithSegments(build_py):
    """A source distribution has the file already."""

    def run(self) -> None:
        super().run()
        if SEGMENTS.is_file() and not self.editable_mode:
            shutil.copy(SEGMENTS, Path(self.build_lib) / PACKAGE.name)


class AnyPython(bdist_wheel):
    def get_tag(self) -> tuple:
        return "py3", "none", super().get_tag()[2]


class WithCore(sdist):
    def make_release_tree(self, base_dir: str, files: list) -> None:
        super().make_release_tree(base_dir, files)
        if not (Path(base_dir) / "csrc").exists():
            wanted = shutil.ignore_patterns("tests", "program", "wasm")
            shutil.copytree(CORE, Path(base_dir) / "csrc", ignore=wanted)
        if SEGMENTS.is_file():
            shutil.copy(SEGMENTS, Path(base_dir) / PACKAGE)


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


def relative(path: Path) -> str:
    return Path("..", path.relative_to(HERE.parent)).as_posix() if CORE == BESIDE else path.relative_to(HERE).as_posix()


setup(
    packages=find_packages("src"),
    package_dir={"": "src"},
    distclass=Binary,
    cmdclass={"build_ext": BuildCore, "build_py": WithSegments, "bdist_wheel": AnyPython, "sdist": WithCore},
    ext_modules=[
        Extension(
            "anydepth_runtime.core",
            sources=sorted(relative(path) for path in CORE.glob("*.cpp")),
            depends=sorted(relative(path) for pattern in ("*.h", "*.inl") for path in CORE.glob(pattern)),
            language="c++",
        )
    ],
)

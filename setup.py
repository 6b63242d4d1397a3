"""What pyproject.toml cannot express: the bundled model is outside src but part of a wheel, and the C++ core of the
native engine is compiled if there is a compiler."""

import shutil
from multiprocessing.pool import ThreadPool
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

CORE = "csrc"
MODELS = "models"

FLAGS = {"msvc": ["/std:c++17", "/O2", "/EHsc", "/utf-8"]}
UNIX_FLAGS = ["-std=c++17", "-O3", "-g0", "-fvisibility=hidden"]


class BuildCore(build_ext):
    """A library with a C API, not a Python module: it has no init function to export."""

    def build_extensions(self) -> None:
        for extension in self.extensions:
            extension.extra_compile_args = FLAGS.get(self.compiler.compiler_type, UNIX_FLAGS)
        super().build_extensions()

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols

    def build_extension(self, ext: Extension) -> None:
        """Compile the files side by side: setuptools takes one after the other."""
        compile_files = self.compiler.compile

        def compile_together(sources: list[str], **options: object) -> list[str]:
            with ThreadPool() as threads:
                found = threads.map(lambda source: compile_files([source], **options), sources)
            return [name for names in found for name in names]

        Path(self.build_temp, CORE).mkdir(parents=True, exist_ok=True)
        self.compiler.compile = compile_together
        super().build_extension(ext)


class BuildWithModels(build_py):
    """An installation in place finds the models in the checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            made_where_used = shutil.ignore_patterns("packed.anydepth")
            shutil.copytree(
                MODELS, Path(self.build_lib, "anydepth", MODELS), ignore=made_where_used, dirs_exist_ok=True
            )


setup(
    packages=find_packages("src"),
    package_dir={"": "src"},
    cmdclass={"build_ext": BuildCore, "build_py": BuildWithModels},
    ext_modules=[
        Extension(
            "anydepth.engines._core",
            sources=sorted(str(path) for path in Path(CORE).glob("*.cpp")),
            depends=sorted(str(path) for pattern in ("*.h", "*.inl") for path in Path(CORE).glob(pattern)),
            language="c++",
            optional=True,  # without a compiler, everything else works
        )
    ],
)

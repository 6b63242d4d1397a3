"""Only what pyproject.toml cannot say: the model in the box lies beside src and is installed as part of the package."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages("src"), "anydepth.models"],
    package_dir={"": "src", "anydepth.models": "models"},
)

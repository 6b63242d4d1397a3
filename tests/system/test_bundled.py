"""The bundled model: every depth of it is of use, it runs when no model is named, and it is in what is installed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import anydepth
from safetensors.torch import load_file

import anydepth as package
from anydepth.artifact import bundled_model
from anydepth.engines.packed import NAME as PACKED
from anydepth.evaluate.metrics import score
from anydepth.export.sample import find_sample

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from bundled import normal  # noqa: E402

BUNDLED = ROOT / "models" / "pt-en"
EVERYDAY = ROOT / "tests" / "bundled" / "everyday.tsv"
SENTENCE = "Onde fica a estação?\n".encode()


def shipped() -> list[Path]:
    """The packed form is made where the model is used."""
    return [file for file in BUNDLED.iterdir() if file.name != PACKED]


def test_it_is_small_and_says_where_it_is_from():
    assert bundled_model() == BUNDLED
    assert sum(file.stat().st_size for file in shipped()) <= 26_000_000
    assert {str(one.dtype) for one in load_file(BUNDLED / "model.safetensors").values()} == {"torch.float16"}
    card = (BUNDLED / "README.md").read_text("utf-8")
    for said in ("Bergamot", "CC BY-SA 4.0", "tatoeba.org", "recipes/pt-en.sh", "seed 1", "| 6-3 |"):
        assert said in card


@pytest.fixture(scope="module")
def translator():
    """As `anydepth translate` runs it: on the native engine, with the shortlist."""
    return package.load(engine="auto")


@pytest.mark.parametrize("encoder", range(1, 7))
@pytest.mark.parametrize("decoder", range(1, 4))
def test_every_depth_is_of_use(translator, encoder, decoder):
    """On sentences it has not been trained on. A model that copies, repeats or stops early is far below."""
    sample = find_sample(translator, BUNDLED, size=100)
    found = translator.translate(sample.sources, depth=f"{encoder}-{decoder}")
    assert all(found)
    assert score(found, sample.references).bleu >= 27


@pytest.mark.parametrize(("depth", "share"), [(None, 0.9), ("1-1", 0.88)])
def test_everyday_inputs(translator, depth, share):
    """Greetings, single words, questions, prices, capitals: a list of inputs with what would do as their output."""
    rows = [line.split("\t") for line in EVERYDAY.read_text("utf-8").splitlines()]
    found = translator.translate([text for text, _ in rows], depth=depth)
    right = [bool(re.fullmatch(pattern, normal(output))) for (_, pattern), output in zip(rows, found, strict=True)]
    assert sum(right) >= share * len(rows)


def test_it_runs_when_no_model_is_named(here):
    unnamed, named = anydepth("translate", stdin=SENTENCE), anydepth("translate", BUNDLED, stdin=SENTENCE)
    assert unnamed.stdout == named.stdout
    assert "station" in unnamed.stdout.decode()
    assert len(json.loads(here("info", "--json").stdout)["depths"]) == 18


def test_it_is_in_the_package_that_is_installed(tmp_path):
    """Away from this checkout, from nothing but the wheel; without a compiler, which it can do without."""
    tree = tmp_path / "tree"
    for name in ("src", "models", "csrc"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "CC": "false", "CXX": "false"}
    subprocess.run([*pip, "--target", tmp_path / "installed", "."], cwd=tree, env=environment, check=True)
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r})\n"
    script += "import anydepth; from anydepth.artifact import bundled_model\n"
    script += "print(anydepth.__file__, bundled_model())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    module, model = map(Path, done.stdout.split())
    assert module.is_relative_to(tmp_path)
    assert model == module.parent / "models" / "pt-en"
    assert {file.name for file in model.iterdir()} == {file.name for file in shipped()}

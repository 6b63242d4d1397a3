"""The core as WebAssembly: built from these sources, and the same translations as the native engine under Node."""

import gzip
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from anydepth.artifact.model_file import Kind, ModelFile
from anydepth.engines.core import NativeModel
from anydepth.export.runtime import build_runtime_file
from anydepth.export.sample import SampleText, find_sample
from anydepth.export.web import MEDIA_TYPES, describe_site, read_page_files
from anydepth.infer.translator import Translator

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "src" / "anydepth" / "export" / "page"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node here: install Debian's `nodejs` to test it")
LARGEST = 400_000  # bytes, compressed


def test_the_program_is_built_from_these_sources():
    spec = importlib.util.spec_from_file_location("build_wasm", ROOT / "csrc" / "wasm" / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    record = json.loads((PAGE / "anydepth.wasm.json").read_text("utf-8"))
    assert record["sources"] == build.source_sums(), "csrc has changed since anydepth.wasm was built: run make wasm"
    assert record["sha256"] == build._sum((PAGE / "anydepth.wasm").read_bytes()), "run make wasm"


def test_the_page_is_whole_and_small():
    page = read_page_files()
    assert set(page) == {path.name for path in PAGE.iterdir()} - {"anydepth.wasm.json"} == set(MEDIA_TYPES)
    assert len(gzip.compress(page["anydepth.wasm"])) <= LARGEST
    for name, data in page.items():
        if name != "anydepth.wasm" and name != "icon.svg":
            assert b"://" not in data, f"{name} names an outside address"


def test_examples_are_short_where_the_sample_has_short_ones():
    long, short = ["x" * 100, "x" * 61], ["le chat dort.", "un chien mange."]
    assert SampleText([*long, *short], None, "test", in_model=True).examples() == [*short, *long]
    plain = ["le petit chat dort, la souris mange.", "où est le petit chat ?!", "Où est la gare de la ville?"]
    others = ["Le chat de Jean dort.", "le chat a 3 souris.", "le petit chat dort", "le chat « dort » là."]
    shown = SampleText([*others, *plain], None, "test", in_model=True).examples()
    assert shown == [plain[2], plain[0], *others[:3]]
    assert SampleText(short * 9, None, "test").examples() == []  # text of a user


def run_node(model: Path, **job: object) -> dict:
    command = [NODE, Path(__file__).with_name("translate.mjs"), PAGE / "core.js", PAGE / "anydepth.wasm", model]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def bundled():
    return Translator.load(engine="torch", device="cpu", threads=1)


@pytest.fixture(scope="module")
def model_file(bundled, tmp_path_factory):
    path = tmp_path_factory.mktemp("web") / "model.anydepth"
    path.write_bytes(build_runtime_file(bundled))
    return path


@needs_node
def test_translations_are_those_of_the_native_engine(bundled, model_file):
    """But for a few: without fused multiply-add, sums differ in the last bit, and a quantized number by one."""
    everyday = ROOT / "tests" / "bundled" / "everyday.tsv"
    texts = [line.split("\t")[0] for line in everyday.read_text("utf-8").splitlines()][:100]
    names = bundled.menu.names
    depths = [names[0], names[len(names) // 2], names[-1]]
    found = run_node(model_file, texts=texts, depths=depths)
    assert found["kernels"] == "wasm"
    native = NativeModel(model_file)
    for depth in depths:
        expected = native.translate(texts, depth, None)
        differing = [pair for pair in zip(expected, found["outputs"][depth], strict=True) if len(set(pair)) > 1]
        assert len(differing) <= 3, differing


@needs_node
def test_a_file_runs_while_it_arrives(bundled, model_file):
    arrivals = run_node(model_file, texts=[], depths=[], pieces=100_000)["arrivals"]
    counts = [len(one["ready"]) for one in arrivals]
    assert counts == sorted(set(counts))
    assert counts[-1] == len(bundled.menu)
    assert arrivals[0]["ready"][0] == bundled.menu.names[0]
    needed = {(kind, 0) for kind in Kind} - {(Kind.WORD_DEPTHS, 0), (Kind.SHORTLIST, 0)}  # by the shallowest depth
    places = ModelFile.open(model_file).places[: len(needed)]
    assert {(place.kind, place.index) for place in places} == needed
    end = places[-1].offset + places[-1].size
    assert end <= arrivals[0]["bytes"] < end + 100_000


@needs_node
def test_errors_are_told_and_harm_nothing(bundled, model_file):
    names = bundled.menu.names
    texts = ["Bom dia. " * 400, "Bom dia."]
    found = run_node(model_file, texts=texts, depths=[names[0], "99-99", names[0]])["outputs"]
    too_long, fine = found[names[0]]
    assert "subwords" in too_long["message"]
    assert too_long["code"] == -5
    assert isinstance(fine, str)
    assert "no depth 99-99" in found["99-99"][1]["message"]


@needs_node
def test_a_damaged_file_is_refused(model_file, tmp_path):
    damaged = tmp_path / "damaged.anydepth"
    data = bytearray(model_file.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    command = [NODE, Path(__file__).with_name("translate.mjs"), PAGE / "core.js", PAGE / "anydepth.wasm", damaged]
    done = subprocess.run(command, input='{"texts": [], "depths": []}', capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "checksum" in done.stderr


@needs_node
@pytest.mark.parametrize(
    "text",
    [
        "Bonjour. Il est 10 h.\n\n  Ça va ? Oui !\t— \U0001f600\r\nFin",
        "M. Dupont est là. J. K. Rowling aussi.",
        "",
        "---\n   \n",
    ],
)
def test_sentences_put_together_again_are_the_text(text):
    script = (PAGE / "sentences.js").read_text("utf-8")
    script += f"console.log(JSON.stringify(split({json.dumps(text)}, 'fr')));"
    done = subprocess.run([NODE, "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    pieces = json.loads(done.stdout)
    assert "".join(one["before"] + one["text"] + one["after"] for one in pieces) == text
    sentences = [one["text"] for one in pieces if one["text"]]
    if text.startswith("M."):
        assert sentences == ["M. Dupont est là.", "J. K. Rowling aussi."]


def test_what_the_page_knows_of_the_model(bundled):
    about = describe_site(bundled, find_sample(bundled, ROOT), b"a model")
    (pair,) = about["pairs"].values()
    assert about["server"] is False
    assert [one["name"] for one in pair["depths"]] == bundled.menu.names == about["in_tab"]["depths"]
    assert all(one["bleu"] and one["ms"] for one in pair["depths"])
    assert pair["default"] == bundled.menu.default.name
    assert {one["code"] for one in about["languages"]} == {pair["source"], pair["target"]}

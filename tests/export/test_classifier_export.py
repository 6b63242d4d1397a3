"""Exports of models that classify, and the times and labels of their engines."""

import json
import re
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from conftest import assert_one_line, python
from labelled_texts import toy_texts
from made_checkpoints import TEXTS as CHECKPOINT_TEXTS
from made_checkpoints import bert_tokenizer, make_json
from running_server import serving
from without_imports import run_without_torch

from anydepth.artifact.model import LoadedModel
from anydepth.artifact.model_file import ModelFile
from anydepth.config import ModelConfig
from anydepth.data.tokenizer import PretrainedTokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.onnx import OnnxClassifier
from anydepth.engines.torch import TorchEngine
from anydepth.errors import UserError
from anydepth.export.classifier import ClassifierExport, compare_labels, export_classifier, export_file, find_texts
from anydepth.export.sample import SampleText
from anydepth.infer.classifier import Classifier
from anydepth.model import Transformer

pytestmark = pytest.mark.slow

pytest_plugins = ["made_classifiers"]

TEXTS = [text for text, _ in toy_texts(60, seed=11)] + ["", "zzz 😀 unheard of", "the film " * 100]
SAMPLE = SampleText(TEXTS, None, "texts")


@pytest.fixture(scope="module")
def halting(halting_run) -> Classifier:
    return Classifier.load(halting_run, engine="torch", device="cpu")


def read_program(folder: Path, text: str) -> list[str]:
    """What the program of the export's README says of a text, in that folder, where there is no anydepth."""
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    script = "import sys; sys.modules['anydepth'] = None\n" + program.replace('text = "..."', f"text = {text!r}")
    done = python(script, cwd=str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("depth", ["1-0", "3-0"])
def test_onnx_has_the_probabilities_of_torch(halting, tmp_path, depth):
    out = tmp_path / "out"
    result = export_classifier(ClassifierExport(halting, depth), "onnx", out, SAMPLE)
    assert (result.same, result.texts) == (len(TEXTS), len(TEXTS))
    engine = OnnxClassifier(halting.subnetwork(depth), out / "model.onnx", 1, halting.tokenizer)
    exported = Classifier(halting.loaded, engine)
    for size in (1, 32):
        for one, other in zip(exported.classify(TEXTS, depth=depth, batch_size=size),
                              halting.classify(TEXTS, depth=depth), strict=True):  # fmt: skip
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
            assert (one.depth, one.tokens) == (other.depth, other.tokens)
    for text in (TEXTS[0], TEXTS[-1]):
        label, probability = read_program(out, text)
        expected = halting.classify(text, depth=depth)
        assert (label, float(probability)) == (expected.label, pytest.approx(expected.probability, abs=1e-4))
    with pytest.raises(UserError, match="this export has one depth"):
        exported.classify(TEXTS, depth="2-0")
    with pytest.raises(UserError, match="runs all its layers"):
        exported.classify(TEXTS, depth=depth, exit="patience:2")


def test_onnx_can_be_quantized_by_onnxruntime(halting, tmp_path):
    """Its tool refuses graphs whose recorded shapes are not those of the tensors."""
    from onnxruntime.quantization import quantize_dynamic

    export_classifier(ClassifierExport(halting, "3-0"), "onnx", tmp_path / "out", SAMPLE)
    quantize_dynamic(tmp_path / "out" / "model.onnx", tmp_path / "int8.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "out" / "model.onnx"), full_check=True)
    assert {one.name for one in onnxruntime.InferenceSession(tmp_path / "int8.onnx").get_inputs()} == {
        "input_ids",
        "attention_mask",
    }


def test_what_has_no_place_in_an_export_is_refused(halting, here, halting_run, by_mi_run, tmp_path):
    out = tmp_path / "out"
    for to in ("ctranslate2", "web"):
        assert_one_line(here("export", halting_run, "--to", to, "--out", out), f"{to} is for models that translate")
    words = here("export", by_mi_run, "--to", "onnx", "--out", out)
    assert_one_line(words, "at depth 3-0-words each word has its own depth, which ONNX cannot run")
    assert_one_line(here("export", halting_run, "--to", "onnx", "--quantize", "int8", "--out", out), "in float32")
    assert_one_line(
        here("export", halting_run, "--to", "runtime", "--depth", "1-0", "--out", out), "every depth, in int8 or"
    )
    assert_one_line(here("export", halting_run, "--to", "onnx", "--quantize", "int4", "--out", out), "--to runtime")
    assert_one_line(here("export", halting_run, "--to", "onnx", "--pair", "a-b", "--out", out), "no references, pairs")
    assert not out.exists()


@pytest.mark.parametrize(("depth", "stored"), [("2-0", "float32"), ("2-0", "float16"), ("3-0-words", "float32")])
def test_a_depth_of_its_own(halting_run, by_mi_run, tmp_path, depth, stored):
    for name, run in (("halting", halting_run), ("mi", by_mi_run)):
        source, out = Classifier.load(run, engine="torch", device="cpu"), tmp_path / name
        result = export_classifier(ClassifierExport(source, depth, stored), "anydepth", out, SAMPLE)
        assert result.furthest < (1e-5 if stored == "float32" else 1e-2)
        alone = Classifier.load(out, engine="torch", device="cpu")
        assert (alone.menu.names, alone.labels) == ([depth], source.labels)
        assert alone.loaded.config.encoder_layers == int(depth[0])
        assert alone.loaded.config.halting == (name == "halting" and "words" in depth)
        found, expected = (one.classify(TEXTS, depth=depth) for one in (alone, source))
        assert [one.depth for one in found] == [one.depth for one in expected]
        # again, over the same folder; and from the depth that is now the model
        export_classifier(ClassifierExport(source, depth, stored), "anydepth", out, SAMPLE)
        with pytest.raises(UserError, match="where the model itself is"):
            export_classifier(ClassifierExport(alone, depth), "anydepth", out, SAMPLE)


@pytest.fixture(scope="module")
def file(by_mi_run, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("file") / "mi.anydepth"
    export_file(Classifier.load(by_mi_run, engine="torch", device="cpu"), out, SAMPLE, 1)
    return out


def test_a_file_is_a_model(by_mi_run, file):
    folder, alone = Classifier.load(by_mi_run, engine="native"), Classifier.load(file)
    assert (alone.engine.name, alone.labels, alone.depths) == ("native", folder.labels, folder.depths)
    assert alone.fingerprint == folder.fingerprint
    for depth in folder.depths:
        assert alone.classify(TEXTS, depth=depth) == folder.classify(TEXTS, depth=depth)
    assert alone.classify(TEXTS, scale=0.5) == folder.classify(TEXTS, scale=0.5)
    with pytest.raises(UserError, match="has the weights of the native engine only"):
        Classifier.load(file, engine="torch")
    assert {"config", "depths", "core"} <= ModelFile.open(file).header.keys()
    text = TEXTS[0]
    found = run_without_torch(
        f"from anydepth import Classifier\nprint(Classifier.load({str(file)!r}).classify({text!r}).probability)",
        ("torch",),
    )
    assert float(found) == folder.classify(text).probability


def test_what_is_in_a_file(file, here):
    done = here("info", file)
    assert done.returncode == 0, done.stderr
    assert str(file) in done.stdout.decode()
    assert "MB in int8" in done.stdout.decode()
    assert "parameters" not in done.stdout.decode()
    assert_one_line(here("translate", file), "classifies texts")


def test_a_server_of_a_file(file):
    alone = Classifier.load(file)
    with serving(file, "--workers", 2) as served:
        answer = served.post("/classify", q=TEXTS[0]).json()
        assert (answer["label"], answer["probability"]) == (
            alone.classify(TEXTS[0]).label,
            alone.classify(TEXTS[0]).probability,
        )
        about = served.client.get("/model").json()
        assert (about["engine"], about["depths"][0]["parameters"]) == ("native", None)


def test_the_verb_says_what_int8_costs(by_mi_run, labelled_file, here, tmp_path):
    out = tmp_path / "mi.anydepth"
    done = here("export", by_mi_run, "--to", "runtime", "--out", out, "--source", labelled_file)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    (at, same, count), (before, after, change) = (
        re.findall(r"same labels at (\S+), the worst: (\d+) of (\d+) ", said)[0],
        re.findall(r"accuracy: (\S+) before, (\S+) exported \((\S+)\)", said)[0],
    )
    sample = find_texts(Classifier.load(by_mi_run, engine="torch"), by_mi_run, labelled_file)
    assert (int(count), len(sample.references)) == (90, 90)
    torch, native = (Classifier.load(by_mi_run, engine=name, device="cpu") for name in ("torch", "native"))
    one = compare_labels(torch, native, at, sample)
    assert int(same) == one.same
    assert (float(before), float(after)) == pytest.approx(one.accuracy, abs=0.01)
    assert float(change) == pytest.approx(one.accuracy[1] - one.accuracy[0], abs=0.01)
    worst = max(one.lost for one in (compare_labels(torch, native, depth, sample) for depth in torch.depths))
    assert one.lost == worst


def test_a_file_in_int4_is_smaller_and_says_what_it_costs(by_mi_run, labelled_file, here, tmp_path):
    files = {name: tmp_path / f"{name}.anydepth" for name in ("int8", "int4")}
    for name, file in files.items():
        options = ("--to", "runtime", "--quantize", name, "--out", file, "--source", labelled_file)
        done = here("export", by_mi_run, *options)
        assert done.returncode == 0, done.stderr
        assert re.search(r"accuracy: \S+ before, \S+ exported", done.stdout.decode())
    assert files["int4"].stat().st_size < files["int8"].stat().st_size
    small = Classifier.load(files["int4"], engine="native")
    assert small.classify(TEXTS) != Classifier.load(files["int8"], engine="native").classify(TEXTS)


def test_bench_times_both_engines_and_compares_their_labels(by_mi_run, labelled_file, here):
    options = ("--source", labelled_file, "--sentences", 4, "--batch-size", 2, "--repeats", 1)
    done = here("bench", by_mi_run, *options, "--depths", "2-0,3-0-words")
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    assert "native against torch" in said
    assert len(re.findall(r"^ *(?:2-0|3-0-words) .*\d\.\d\dx", said, re.MULTILINE)) == 4
    assert re.search(
        r"2-0 in int8: \d+ of 90 labels as in float32; accuracy \d+\.\d\d in float32, \d+\.\d\d in int8", said
    )
    assert_one_line(here("bench", by_mi_run, "--depths", "9-0"), "9-0")


def test_onnx_takes_the_ids_of_a_tokenizer_json(tmp_path):
    """Those of a pre-trained encoder are renumbered for our models."""
    tokenizer = PretrainedTokenizer.from_bytes(make_json(bert_tokenizer()))
    assert tokenizer.order != sorted(tokenizer.order)
    torch.manual_seed(1)
    sizes = {"width": 32, "heads": 2, "ffn": 48, "encoder_layers": 2, "decoder_layers": 0, "max_length": 24}
    config = ModelConfig(**sizes, norm="post", activation="gelu", positions="learned", token_types=2)
    model = Transformer(config, tokenizer.vocabulary_size, 3).eval()
    menu, labels = DepthMenu.of([SubNetwork.prefix(2, 0)]), ("no", "yes", 'per"haps')
    classifier, out = (
        Classifier(LoadedModel(model, tokenizer, menu, labels=labels), TorchEngine(model)),
        tmp_path / "out",
    )
    export_classifier(ClassifierExport(classifier, "2-0"), "onnx", out, SampleText(CHECKPOINT_TEXTS, None, "texts"))
    for text in CHECKPOINT_TEXTS:
        label, probability = read_program(out, text)
        expected = classifier.classify(text)
        assert (label, float(probability)) == (expected.label, pytest.approx(expected.probability, abs=1e-4))
    assert json.loads((out / "export.json").read_text("utf-8"))["labels"] == list(labels)

"""Exports: what is written translates as its source, with and without anydepth."""

import json
import re
import shutil

import pytest
from conftest import anydepth, assert_one_line, python, save_changed
from random_models import TEXTS, random_translator

import anydepth as package
from anydepth.artifact import saving
from anydepth.artifact.folder import read_config
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.onnx import OnnxEngine
from anydepth.errors import UserError
from anydepth.export.export import ExportRequest, check_export, export
from anydepth.export.sample import SampleText, find_sample
from anydepth.word_depths.table import TokenDepths, WordDepths

SENTENCE = "le petit chien voit un chat."


@pytest.fixture(scope="module")
def toy(toy_run):
    return package.load(toy_run, engine="torch")


@pytest.fixture(scope="module")
def sample(toy, toy_run):
    return find_sample(toy, toy_run, size=50)


def read_program(folder, text):
    """The program of the export's README, run by another process in that folder, where there is no anydepth."""
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    script = "import sys; sys.modules['anydepth'] = None\n" + program.replace('text = "..."', f"text = {text!r}")
    done = python(script, cwd=str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "int16", "int8_float16"])
@pytest.mark.slow
def test_every_type_can_be_written_whatever_this_machine_computes_in(toy, sample, tmp_path, stored):
    result = export(ExportRequest(toy, "2-1", stored), "ctranslate2", tmp_path / "out", sample)
    assert result.bleu[1] > 90
    assert read_program(tmp_path / "out", SENTENCE) == "the small dog sees a cat."


@pytest.mark.slow
def test_an_export_runs_without_anydepth(toy, sample, tmp_path):
    result = export(ExportRequest(toy, "2-1", "float32"), "ctranslate2", tmp_path / "out", sample)
    assert (result.same, result.wrong) == (50, [])
    assert result.bleu[0] == result.bleu[1] > 90
    assert read_program(tmp_path / "out", SENTENCE) == toy.translate([SENTENCE], depth="2-1")[0]
    assert json.loads((tmp_path / "out" / "export.json").read_text("utf-8"))["depth"] == "2-1"


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
@pytest.mark.slow
def test_a_tag_is_in_the_program(two_targets_run, sample, tmp_path, to):
    loud = package.load(two_targets_run, engine="torch").between(target="loud")
    capitals = SampleText(sample.sources, [text.upper() for text in sample.references], "capitals")
    result = export(ExportRequest(loud, "2-1", "float32"), to, tmp_path / "out", capitals)
    assert (result.same, result.wrong) == (50, [])
    assert result.bleu[0] == result.bleu[1] > 50
    assert read_program(tmp_path / "out", SENTENCE) == loud.translate([SENTENCE])[0] == "THE SMALL DOG SEES A CAT."
    assert json.loads((tmp_path / "out" / "export.json").read_text("utf-8"))["depth"] == "2-1"


ENDLESS = {"ctranslate2": ("3-2", {}), "onnx": ("3-2-soft", {"norm": "post", "activation": "gelu"})}


@pytest.fixture(scope="module", params=ENDLESS)
def endless(request, toy, tmp_path_factory):
    """A translator of random weights, which hardly ever ends a sentence, one of its depths, and that depth exported."""
    (depth, changes), out = ENDLESS[request.param], tmp_path_factory.mktemp("endless") / "out"
    translator = random_translator(toy.tokenizer, **changes)
    export(ExportRequest(translator, depth, "float32"), request.param, out, SampleText(TEXTS, None, "texts"))
    return translator, depth, out


@pytest.mark.slow
def test_a_program_stops_where_the_model_does(endless):
    """All of its 40 positions are filled."""
    translator, depth, out = endless
    text = TEXTS[2]
    (expected,) = translator.hypotheses([text], depth=depth)
    assert not expected[0].ended
    assert read_program(out, text) == expected[0].text.strip()


@pytest.mark.parametrize("endless", ["onnx"], indirect=True)
@pytest.mark.slow
def test_onnx_of_another_kind_of_model_with_a_beam(endless):
    translator, depth, out = endless
    theirs = translator.on(OnnxEngine(translator.menu[depth].subnetwork, out, 1))
    for beam in (1, 3):
        options = {"depth": depth, "beam": beam, "nbest": beam}
        expected, found = (one.hypotheses(TEXTS, **options) for one in (translator, theirs))
        assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in expected]
    with pytest.raises(UserError, match="this export has one depth"):
        theirs.translate(TEXTS, depth="1-1")


def test_a_plain_depth_leaves_the_depths_of_words_behind(toy, toy_run, tmp_path):
    tensors = {name: value.detach() for name, value in toy.model.named_parameters()}
    menu = DepthMenu.of([*(entry.subnetwork for entry in toy.menu), SubNetwork.words(2, 2)])
    depths = TokenDepths(WordDepths("mi", 2, {"chat": (1.0,)}), toy.tokenizer)
    source = tmp_path / "model"
    content = saving.ModelContent(toy.model.config, tensors, toy.tokenizer, menu, ("fr", "en"), token_depths=depths)
    saving.save(source, content, {})
    for depth, kept in (("1-1", False), ("2-1", False), ("2-2-words", True)):
        out = tmp_path / depth
        export(
            ExportRequest(package.load(source, engine="torch"), depth, "float32"),
            "anydepth",
            out,
            SampleText([SENTENCE], None, "one"),
        )
        assert (package.load(out, engine="torch").token_depths is not None) == kept


@pytest.mark.slow
def test_all_pairs_in_half_the_space(two_targets_run, here, tmp_path):
    several = here("export", two_targets_run, "--to", "ctranslate2", "--out", tmp_path / "out")
    assert_one_line(several, "several language pairs", "choose one with --pair")
    whole = ["--to", "anydepth", "--depth", "all", "--quantize", "float16", "--out", tmp_path / "all"]
    done = here("export", two_targets_run, *whole)
    assert done.returncode == 0, done.stderr
    assert b"the worst" in done.stdout
    half = package.load(tmp_path / "all", engine="torch")
    assert half.between(target="loud").translate([SENTENCE]) == ["THE SMALL DOG SEES A CAT."]
    assert half.between(target="en").translate([SENTENCE]) == ["the small dog sees a cat."]


def test_nothing_is_written_over_the_folder_one_is_in(here, toy_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out in (".", "..", tmp_path):
        assert_one_line(here("export", toy_run, "--to", "anydepth", "--out", out), "is the current folder")


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
def test_a_depth_of_its_own(toy, sample, tmp_path, stored):
    export(ExportRequest(toy, "1-2", stored), "anydepth", tmp_path / "out", sample)
    alone = package.load(tmp_path / "out", engine="torch")
    assert alone.menu.names == ["1-2"]
    assert (alone.model.config.encoder_layers, alone.model.config.decoder_layers) == (1, 2)
    assert alone.parameters() == toy.parameters("1-2")
    assert alone.translate([SENTENCE]) == toy.translate([SENTENCE], depth="1-2")
    assert read_config(tmp_path / "out").facts == read_config(toy.folder).facts


def test_all_depths_in_half_the_space(toy, sample, tmp_path):
    export(ExportRequest(toy, "all", "float16"), "anydepth", tmp_path / "out", sample)
    half = package.load(tmp_path / "out", engine="torch")
    assert half.menu.names == toy.menu.names
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tmp_path / "out", toy.folder)]
    assert sizes[0] < 0.55 * sizes[1]
    assert half.translate([SENTENCE], depth="1-1") == toy.translate([SENTENCE], depth="1-1")


def test_a_default_depth_holds_on_every_road(toy, toy_run, here, tmp_path):
    folder, file = tmp_path / "out", tmp_path / "toy.anydepth"
    done = here("export", toy_run, "--to", "anydepth", "--depth", "all", "--default-depth", "1-1", "--out", folder)
    assert done.returncode == 0, done.stderr
    assert here("export", folder, "--to", "runtime", "--out", file).returncode == 0
    shallow = toy.translate(TEXTS, depth="1-1")
    assert shallow != toy.translate(TEXTS)
    for engine in ("torch", "native"):
        assert package.load(folder, engine=engine).translate(TEXTS) == shallow
    assert package.load(file).translate(TEXTS) == shallow
    assert json.loads(here("info", folder, "--json").stdout)["default_depth"] == "1-1"


def test_a_file_in_int4_is_smaller_and_says_what_it_costs(toy, toy_run, here, tmp_path):
    files = {name: tmp_path / f"{name}.anydepth" for name in ("int8", "int4")}
    for name, file in files.items():
        done = here("export", toy_run, "--to", "runtime", "--quantize", name, "--out", file, "--sentences", 20)
        assert done.returncode == 0, done.stderr
        said = done.stdout.decode()
    at, same = re.findall(r"same tokens as int8 at (\S+), the worst: (\d+) of 20 ", said)[0]
    before, after, change = re.findall(r"BLEU: (\S+) in int8, (\S+) in int4 \((\S+)\)", said)[0]
    assert float(change) == pytest.approx(float(after) - float(before), abs=0.011)
    assert files["int4"].stat().st_size < files["int8"].stat().st_size
    texts = find_sample(toy, toy_run, size=20).sources
    large, small = (package.load(file, engine="native").translate(texts, depth=at) for file in files.values())
    assert sum(one == other for one, other in zip(large, small, strict=True)) >= int(same)


def test_int4_is_for_files_of_the_native_engine(here, toy_run, tmp_path):
    out = tmp_path / "out"
    for to in ("anydepth", "ctranslate2", "onnx"):
        done = here("export", toy_run, "--to", to, "--quantize", "int4", "--out", out)
        assert_one_line(done, "int4 is for --to runtime and web")
    done = here("export", toy_run, "--to", "runtime", "--quantize", "int16", "--out", out)
    assert_one_line(done, "in int8 or with --quantize int4")
    assert not out.exists()


@pytest.mark.slow
def test_a_pair_alone_keeps_its_tag(two_targets_run, tmp_path):
    loud = package.load(two_targets_run, engine="torch").between(target="loud")
    export(ExportRequest(loud, "2-2", "float32"), "anydepth", tmp_path / "out", SampleText([SENTENCE], None, "one"))
    assert package.load(tmp_path / "out", engine="torch").translate([SENTENCE]) == ["THE SMALL DOG SEES A CAT."]


def test_another_model_is_found_out(toy, toy_run, tmp_path):
    save_changed(toy_run, tmp_path / "changed")
    hard = find_sample(toy, toy.folder, size=50)
    found = check_export(toy, package.load(tmp_path / "changed", engine="torch"), "2-2", "2-2", hard)
    assert found.wrong
    assert all(one.gap > 1e-3 and one.expected != one.found for one in found.wrong)
    assert found.same + len(found.differences) == 50


def test_an_earlier_export_is_replaced_and_nothing_else(toy, sample, tmp_path):
    export(ExportRequest(toy, "2-1", "float32"), "ctranslate2", tmp_path / "out", sample)
    export(ExportRequest(toy, "1-1", "int8"), "ctranslate2", tmp_path / "out", sample)
    assert json.loads((tmp_path / "out" / "export.json").read_text("utf-8"))["quantization"] == "int8"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not an earlier export"):
        export(ExportRequest(toy, "1-1", "int8"), "ctranslate2", tmp_path / "mine", sample)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("out", ["model", "model/inside", "."])
def test_the_model_itself_is_never_written_over(toy_run, tmp_path, out):
    shutil.copytree(toy_run / "model", tmp_path / "model")
    own = package.load(tmp_path / "model", engine="torch")
    export(ExportRequest(own, "all", "float16"), "anydepth", tmp_path / "own", SampleText([SENTENCE], None, "one"))
    for translator in (own, package.load(tmp_path / "own", engine="torch")):
        folder = translator.folder / out.removeprefix("model").lstrip("/") if out != "." else tmp_path
        with pytest.raises(UserError, match="where the model itself is"):
            export(ExportRequest(translator, "1-1", "int8"), "ctranslate2", folder, SampleText([SENTENCE], None, "one"))
    assert package.load(tmp_path / "own", engine="torch").translate([SENTENCE])


def test_blank_lines_are_no_sample(toy, tmp_path):
    (tmp_path / "blank.fr").write_text("\n \n", "utf-8")
    with pytest.raises(UserError, match="no sentence"):
        find_sample(toy, toy.folder, tmp_path / "blank.fr")


def test_without_validation_text_sub_words_at_random_have_to_do(toy, sample):
    found = find_sample(toy, toy.folder, size=20)
    assert (len(found.sources), found.references, found.origin) == (20, None, "random subwords")
    assert sample.origin == "the run's validation text"


@pytest.mark.slow
def test_the_verb_tells_what_was_checked(toy_run, tmp_path):
    asked = ("--to", "ctranslate2", "--depth", "2-1", "--quantize", "int8", "--out", tmp_path / "out")
    done = anydepth("export", toy_run, *asked, fresh=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    assert re.search(r"same tokens: \d+ of 50 \(the run's validation text\)", said)
    assert re.search(r"BLEU: [\d.]+ before, [\d.]+ exported \([+-][\d.]+\)", said)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "tflite"], ["no format 'tflite'", "ctranslate2, onnx, anydepth"]),
        (["--to", "ctranslate2", "--depth", "9-9"], ["no depth 9-9"]),
        (["--to", "ctranslate2", "--depth", "all"], ["one depth per model"]),
        (["--to", "anydepth", "--depth", "all", "--default-depth", "9-9"], ["no depth 9-9"]),
        (["--to", "anydepth", "--default-depth", "1-1"], ["--to anydepth --depth all"]),
        (["--to", "onnx", "--quantize", "int8"], ["ONNX is exported in float32"]),
        (["--to", "anydepth", "--quantize", "int8"], ["float32, float16, bfloat16"]),
        (["--to", "ctranslate2", "--reference", "x"], ["a reference needs a source"]),
        (["--to", "ctranslate2", "--pair", "fr"], ["no language pair 'fr'; it has: fr-en"]),
        (["--to", "ctranslate2", "--source", "nowhere.fr"], ["nowhere.fr"]),
    ],
)
def test_bad_input_of_the_verb(here, toy_run, tmp_path, options, words):
    assert_one_line(here("export", toy_run, "--out", tmp_path / "out", *options), *words)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.iterdir())

"""The native engine needs no PyTorch: a model folder keeps its packed form, made at the first start; so does a file."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import anydepth as run_anydepth
from random_models import TEXTS
from running_server import Served
from without_imports import run_without_torch, without

import anydepth
from anydepth.artifact import bundled_model, saving
from anydepth.artifact import model as artifact
from anydepth.artifact.model_file import SINUSOIDAL, VERSION, FileSection, ModelFile, build_model_file
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.core import NativeModel
from anydepth.engines.packed import NAME, PACKING
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import calibrate
from anydepth.evaluate.experiment import RunOptions
from anydepth.export.runtime import build_runtime_file, export_runtime
from anydepth.export.sample import SampleText
from anydepth.selectors.calibration import save
from anydepth.word_depths.table import TokenDepths, WordDepths

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "model"


@pytest.fixture
def folder(toy_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(toy_run / "model", tmp_path / "model", ignore=shutil.ignore_patterns(NAME))
    return tmp_path / "model"


def test_text_in_capitals_is_read_in_lowercase_by_every_road(folder, tmp_path):
    texts = ["LE CHAT DORT.", "LE CHAT dort.", "CHAT"]
    before = anydepth.load(folder, engine="torch").translate(texts)
    record = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**record, "lowercase_capitals": True}), "utf-8")
    found = anydepth.load(folder, engine="torch")
    path = tmp_path / "toy.anydepth"
    export_runtime(found, path, SampleText(texts, None, "test"), 1)
    (lower,) = found.translate(["Le chat dort."])
    expected = [lower.upper(), *before[1:]]
    assert before[0] != expected[0]
    assert found.translate(texts) == expected
    assert [
        best.text for best, *_ in found.every_depth(texts, depths=[found.menu.default.name]).popitem()[1]
    ] == expected
    native = anydepth.load(folder, engine="native")
    assert native.translate(texts) == expected
    assert anydepth.load(path).translate(texts) == expected
    assert anydepth.load(path).engine.native.translate(texts, found.menu.default.name, None) == expected
    again = tmp_path / "again"
    assert run_anydepth("export", folder, "--to", "anydepth", "--depth", "all", "--out", again).returncode == 0
    assert anydepth.load(again, engine="torch").translate(texts) == expected


@pytest.fixture(scope="module")
def model_file(toy_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "toy.anydepth"
    export_runtime(anydepth.load(toy_run, engine="torch"), path, SampleText(TEXTS, None, "test"), 1)
    return path


def test_it_is_made_once_and_again_when_the_weights_change(folder, toy_run):
    expected = anydepth.load(folder, engine="native").translate(TEXTS)
    made = folder / NAME
    before = made.stat().st_mtime_ns
    assert anydepth.load(folder, engine="native").translate(TEXTS) == expected
    assert made.stat().st_mtime_ns == before
    record = json.loads((folder / "config.json").read_text())
    assert ModelFile.open(made).header["made_of"]["weights"] == record["files"]["model.safetensors"]
    for name in ("config.json", "depths.json", "model.safetensors", "tokenizer.model"):
        shutil.copy(GOLDEN / name, folder / name)
    changed = anydepth.load(folder, engine="native")
    assert changed.translate(TEXTS) == anydepth.load(GOLDEN, engine="native").translate(TEXTS)
    assert made.stat().st_mtime_ns != before


@pytest.mark.parametrize("damage", [lambda data: data[:-50], lambda data: data[:-50] + bytes(50), lambda data: b""])
def test_a_damaged_one_is_made_again(folder, damage):
    expected = anydepth.load(folder, engine="native").translate(TEXTS)
    data = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(damage(data))
    assert anydepth.load(folder, engine="native").translate(TEXTS) == expected
    assert (folder / NAME).read_bytes() == data


@pytest.mark.parametrize(("version", "packing"), [(SINUSOIDAL, PACKING - 1), (VERSION - 1, PACKING)])
def test_one_of_an_earlier_version_is_made_again(folder, version, packing):
    expected = anydepth.load(folder, engine="native").translate(TEXTS)
    made, data = ModelFile.open(folder / NAME), (folder / NAME).read_bytes()
    sections = [FileSection(place.kind, place.index, made.read_place(place)) for place in made.places]
    header = made.header | {"made_of": made.header["made_of"] | {"packing": packing}}
    (folder / NAME).write_bytes(build_model_file(header, sections, version))
    assert anydepth.load(folder, engine="native").translate(TEXTS) == expected
    assert (folder / NAME).read_bytes() == data


@pytest.mark.parametrize("damage", [lambda data: data[:-50], lambda data: data + b"0", lambda data: b"", None])
def test_weights_of_another_length_are_refused_though_the_packed_form_is_whole(folder, damage):
    anydepth.load(folder, engine="native")
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.unlink()
    if damage is not None:
        weights.write_bytes(damage(data))
    for verb in ("translate", "info"):
        done = run_anydepth(verb, folder, stdin=b"le chat dort.\n")
        assert (done.returncode, done.stdout) == (2, b"")
        said = done.stderr.decode()
        assert "is damaged (model.safetensors" in said
        assert len(said.splitlines()) == 1


def test_where_the_folder_is_read_only_it_goes_to_the_cache(folder, tmp_path, monkeypatch):
    (folder / NAME).mkdir()  # even root cannot replace a folder by a file
    expected = anydepth.load(folder, engine="torch").translate(TEXTS[0])
    assert anydepth.load(folder, engine="native").translate(TEXTS[0]) == expected
    (cached,) = (tmp_path / "cache").rglob("*.anydepth")
    before = cached.stat().st_mtime_ns
    assert anydepth.load(folder, engine="native").translate(TEXTS[0]) == expected
    assert cached.stat().st_mtime_ns == before
    cached.unlink()
    cached.parent.rmdir()
    cached.parent.write_text("")  # nowhere to write: it does without
    assert anydepth.load(folder, engine="native").translate(TEXTS[0]) == expected


def test_the_first_start_imports_no_torch(folder, toy_run):
    """When the model is packed, and the fingerprint computed."""
    toy = anydepth.load(toy_run, engine="native")
    found = run_without_torch(
        f"import anydepth\ntoy = anydepth.load({str(folder)!r})\n"
        "print(toy.engine.name, toy.fingerprint, toy.translate('le chat dort.'))",
        ("torch",),
    )
    assert found.strip() == f"native {toy.fingerprint} {toy.translate('le chat dort.')}"
    assert (folder / NAME).is_file()


def test_the_verb_imports_no_torch_at_the_first_start(folder, toy_run):
    expected = anydepth.load(toy_run, engine="native").translate("le chat dort.", depth="1-1")
    assert translate_without_torch(folder, "--depth", "1-1", modules=("torch",)) == expected


def test_the_export_of_a_file_imports_no_torch(folder, model_file, tmp_path):
    """Neither at the first start nor later."""
    source, out = tmp_path / "texts", tmp_path / "out.anydepth"
    source.write_text("".join(f"{text}\n" for text in TEXTS), "utf-8")
    argv = ["anydepth", "export", str(folder), "--to", "runtime", "--out", str(out), "--source", str(source)]
    for _ in range(2):
        run_without_torch(f"from anydepth.cli import main\nsys.argv = {argv!r}\nmain()", ("torch",))
        assert out.read_bytes() == model_file.read_bytes()
        out.unlink()


def test_the_native_engine_imports_no_torch(folder, model_file):
    expected = anydepth.load(folder, engine="native").translate("le chat dort.")
    for path in (folder, model_file):
        for engine in ("native", "auto"):
            found = run_without_torch(
                f"import anydepth\nprint(anydepth.load({str(path)!r}, engine={engine!r}).translate('le chat dort.'))"
            )
            assert found.strip() == expected


def translate_without_torch(path: Path, *options: str, modules: tuple[str, ...] = ("torch", "numpy")) -> str:
    """What the verb makes of a sentence."""
    return run_without_torch(
        "import io, os\nread, write = os.pipe()\nos.write(write, b'le chat dort.\\n')\nos.close(write)\n"
        "os.dup2(read, 0)\nfrom anydepth.cli import main\n"
        f"sys.argv = {['anydepth', 'translate', str(path), *options]!r}\nmain()",
        modules,
    ).strip()


def test_the_verb_imports_no_torch(folder, model_file):
    expected = anydepth.load(folder, engine="native").translate("le chat dort.", depth="1-1")
    for path in (folder, model_file):
        assert translate_without_torch(path, "--depth", "1-1") == expected


def test_a_budget_imports_no_torch(folder):
    """Nor numpy, whether it goes by a sweep or by a calibration."""
    content = json.loads((folder / "depths.json").read_text())
    content["measured_on"] = {"engine": "native", "device": "cpu", "batch_size": 32}
    for position, row in enumerate(content["depths"], 1):
        row["quality"], row["cost"] = {"bleu": float(position)}, {"seconds_per_sentence": 0.001 * position}
    (folder / "depths.json").write_text(json.dumps(content))
    toy = anydepth.load(folder, engine="native")
    best = toy.translate("le chat dort.", depth=toy.menu.names[-1])
    assert translate_without_torch(folder, "--budget", "10s", "--engine", "native") == best
    calibration = calibrate(toy, TEXTS, TEXTS, RunOptions(repeats=1), timing_sentences=2)
    save(calibration, folder, toy.fingerprint)
    found = translate_without_torch(folder, "--budget", "10s", "--engine", "native")
    assert found in {toy.translate("le chat dort.", depth=name) for name in toy.menu.names}


def test_the_fingerprint_is_kept_with_the_packed_form(folder):
    expected = anydepth.load(folder, engine="torch").fingerprint
    anydepth.load(folder, engine="native")  # packs it
    kept = run_without_torch(f"import anydepth\nprint(anydepth.load({str(folder)!r}, engine='native').fingerprint)")
    assert kept.strip() == expected
    loaded = anydepth.load(folder, engine="native").loaded
    other = replace(loaded, tokenizer=artifact.load_model(bundled_model()).tokenizer)
    assert other.fingerprint != expected


@pytest.mark.parametrize("kind", ["file", "folder", "packed folder"])
def test_a_server_imports_no_torch(folder, model_file, toy_run, kind):
    """Nor does the page, which gets the same model file from all of them."""
    packed = folder if kind == "packed folder" else toy_run
    expected = anydepth.load(packed, engine="native").translate("le chat dort.", depth="1-1")
    argv = ["anydepth", "serve", str(model_file if kind == "file" else folder), "--port", "0"]
    command = without(("torch",), f"from anydepth.cli import main\nsys.argv = {argv!r}\nmain()")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        served = Served(process, process.stderr)
        assert served.translate("le chat dort.", depth="1-1").json()["translatedText"] == expected
        about = served.client.get("/model.json").json()
        assert served.client.get(f"/{about['in_tab']['file']}").content == model_file.read_bytes()
        assert served.stop() == 0


def test_a_model_file_is_a_model(toy_run, model_file):
    folder, file = anydepth.load(toy_run, engine="native"), anydepth.load(model_file)
    assert file.menu.to_json() == folder.menu.to_json()
    assert (file.languages, file.pairs, file.fingerprint) == (folder.languages, folder.pairs, folder.fingerprint)
    assert file.engine.name == "native"
    for depth in folder.menu.names:
        options = {"depth": depth, "beam": 3, "nbest": 3}
        assert file.hypotheses(TEXTS, **options) == folder.hypotheses(TEXTS, **options)


def test_a_model_file_has_no_weights_for_torch(model_file):
    with pytest.raises(UserError, match=r"toy\.anydepth has the weights of the native engine only"):
        anydepth.load(model_file, engine="torch")
    with pytest.raises(UserError, match="on CPUs, not on cuda"):
        anydepth.load(model_file, device="cuda")


def test_the_core_translates_text_by_itself(toy_run, model_file):
    native, core = anydepth.load(toy_run, engine="native"), NativeModel(model_file)
    texts = [*TEXTS, "  Où\tça ? ", "\u2028", "😀 le chat"]
    for depth in native.menu.names:
        assert core.translate(texts, depth) == native.translate(texts, depth=depth)


def test_the_packed_form_of_a_folder_is_no_model_of_its_own(folder):
    anydepth.load(folder, engine="native")
    with pytest.raises(UserError, match="no tokenizer or menu: give its model folder"):
        anydepth.load(folder / NAME)


def test_the_same_model_gives_the_same_file(folder, model_file):
    """Packed here and now, taken from the packed form, and where that is damaged."""
    expected = model_file.read_bytes()
    assert build_runtime_file(anydepth.load(folder, engine="torch")) == expected
    native = anydepth.load(folder, engine="native")  # packs it
    assert build_runtime_file(native) == expected
    data = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(data[:-50] + bytes(50))
    assert build_runtime_file(native) == expected


@pytest.mark.parametrize(
    ("place", "reason"), [("folder", "is a folder"), ("other.txt", "not an earlier export"), ("no/file", "no folder")]
)
def test_an_export_replaces_only_an_export(toy_run, tmp_path, place, reason):
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.txt").write_text("mine")
    with pytest.raises(UserError, match=reason):
        export_runtime(anydepth.load(toy_run, engine="torch"), tmp_path / place, SampleText(TEXTS, None, "test"), 1)
    assert (tmp_path / "other.txt").read_text() == "mine"


def test_a_file_of_several_language_pairs(two_targets_run, tmp_path):
    """Export checks every pair at every depth, also in the core alone, where a pair is a tag before the source."""
    translator, path = anydepth.load(two_targets_run, engine="torch"), tmp_path / "two.anydepth"
    assert export_runtime(translator, path, SampleText(TEXTS, None, "test"), 1) == len(TEXTS)
    core, file = NativeModel(path), anydepth.load(path)
    with pytest.raises(UserError, match=r"several language pairs, fr-en, fr-loud: choose one"):
        core.translate(["le chat dort."], file.menu.names[0])
    for pair in file.pairs:
        chosen = file.between(pair.source, pair.target)
        for depth in chosen.menu.names:
            assert core.translate(TEXTS, depth, pair.name) == chosen.translate(TEXTS, depth=depth)


def test_a_file_has_the_depths_of_words(toy_run, tmp_path):
    """With the rules for what is no word and for words that are not in the table."""
    toy, folder, path = anydepth.load(toy_run, engine="torch"), tmp_path / "model", tmp_path / "words.anydepth"
    tensors = {name: value.detach() for name, value in toy.model.named_parameters()}
    menu = DepthMenu.of([*(entry.subnetwork for entry in toy.menu), SubNetwork.words(2, 2)])
    table = WordDepths("mi", 2, {"chat": (1.0,), "dort": (0.1,)})
    depths = TokenDepths(table, toy.tokenizer, special="mean", unseen="subword")
    content = saving.ModelContent(toy.model.config, tensors, toy.tokenizer, menu, ("fr", "en"), token_depths=depths)
    saving.save(folder, content, {})
    native = anydepth.load(folder, engine="native")
    export_runtime(anydepth.load(folder, engine="torch"), path, SampleText(TEXTS, None, "test"), 1)
    file = anydepth.load(path)
    assert file.token_depths.to_bytes() == depths.to_bytes()
    assert file.token_depths.of(file.as_read(file.tokenizer.encode(TEXTS[0]))) == depths.of(
        toy.as_read(toy.tokenizer.encode(TEXTS[0]))
    )
    assert file.translate(TEXTS, depth="2-2-words") == native.translate(TEXTS, depth="2-2-words")

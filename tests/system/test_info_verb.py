"""The verb `info`: as a user runs it, and what it says of unusual models."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import anydepth, assert_one_line, toy_pairs
from made_tables import COSTS, DEPTHS
from rich.console import Console
from typer.testing import CliRunner

from anydepth.artifact import model as artifact
from anydepth.artifact import saving
from anydepth.artifact.folder import LanguagePair
from anydepth.cli import build_app
from anydepth.cli.info import translator_facts
from anydepth.config import ModelConfig
from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import calibrate
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.sweep import record_sweep, sweep
from anydepth.export.runtime import build_runtime_file
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.selectors import calibration
from anydepth.selectors.learned import LearnedSelector, TradeoffPoint, save_selector
from anydepth.selectors.network import DepthPredictor, SelectorConfig, SelectorReader

QUIET = Console(quiet=True)
SIZES: dict[str, Any] = {"width": 16, "heads": 2, "ffn": 32, "max_length": 64}


def shown(model: Path, *options: str) -> str:
    done = CliRunner().invoke(build_app(), ["info", str(model), *options], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def read_rows(text: str) -> dict[str, str]:
    """What stands before the table of depths."""
    head, _ = text.split("\n\n")
    return dict(
        line.split(maxsplit=1) for line in head.replace("on disk", "disk").replace("in mem", "mem").splitlines()
    )


@pytest.fixture(autouse=True)
def _a_cache_without_calibrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def copy(toy_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(toy_run / "model", tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.slow
def test_what_a_model_is(toy_run: Path) -> None:
    done = anydepth("info", toy_run, fresh=True)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    translator = Translator.load(toy_run, engine="torch", device="cpu")
    rows = read_rows(text)
    assert rows["model"] == str(toy_run / "model")
    assert rows["languages"] == "fr to en"
    assert rows["vocabulary"].startswith("320 subwords")
    assert (rows["encoder"], rows["decoder"]) == ("2 layers", "2 layers")
    assert rows["parameters"].startswith(f"{translator.parameters():,},")
    assert rows["depths"] == "4; by default 2-2"
    assert rows["measured"].startswith("not yet")
    assert rows["selector"].startswith("none;")
    assert rows["calibration"].startswith("none for this machine")
    table = [line.split() for line in text.split("\n\n")[1].splitlines()]
    assert table[0] == ["depth", "parameters", *["MB", "in", "float32"], "BLEU", "chrF", "ms/sentence"]
    assert table[1:] == [
        [depth, f"{translator.parameters(depth):,}", f"{translator.bytes(depth) / 1e6:.1f}"]
        for depth in ("1-1", "1-2", "2-1", "2-2")
    ]


def test_a_model_file(copy: Path, tmp_path: Path) -> None:
    file, translator = tmp_path / "toy.anydepth", Translator.load(copy, engine="native")
    file.write_bytes(build_runtime_file(translator))
    rows = read_rows(shown(file))
    assert rows["model"] == str(file)
    assert rows["languages"] == read_rows(shown(copy))["languages"]
    assert "parameters" not in rows
    assert rows["memory"].endswith(" MB in int8")
    assert ": weights " in read_rows(shown(copy))["disk"]
    assert ", packed copy for the native engine " in read_rows(shown(copy))["disk"]
    facts, whole = (json.loads(shown(path, "--json")) for path in (file, copy))
    assert [one["depth"] for one in facts["depths"]] == [one["depth"] for one in whole["depths"]]
    sizes = [one["bytes"] for one in facts["depths"]]
    assert sizes[0] == min(sizes)
    assert sizes[-1] == max(sizes) < facts["bytes_in_memory"] < facts["bytes_on_disk"] == file.stat().st_size


def test_json_has_the_same(toy_run: Path) -> None:
    facts = json.loads(shown(toy_run, "--json"))
    translator = Translator.load(toy_run, engine="torch", device="cpu")
    assert facts == translator_facts(translator.loaded)
    assert facts["parameters"] == translator.parameters("2-2")
    assert facts["bytes_in_memory"] == 4 * facts["parameters"]
    assert facts["bytes_on_disk"] == sum(path.stat().st_size for path in (toy_run / "model").iterdir())
    assert facts["encoder_weights"] == facts["decoder_weights"] == [1, 2]
    assert [one["decoder"] for one in facts["depths"]] == [[1], [1, 2], [1], [1, 2]]
    assert facts["selector"] is None
    assert facts["calibrations"] == []


def test_figures_of_a_sweep_and_of_a_calibration(copy: Path) -> None:
    translator = Translator.load(copy, engine="torch", device="cpu")
    sources, references = zip(*toy_pairs(12, 5), strict=True)
    result = sweep({"toy": translator}, sources, references, RunOptions(repeats=1, source_name="test.fr"))
    assert record_sweep(translator, result)
    found = calibrate(translator, sources, references, RunOptions(repeats=1))
    calibration.save(found, copy, translator.fingerprint)
    text = shown(copy)
    rows = read_rows(text)
    assert rows["measured"].startswith("12 lines of test.fr, beam 1, batches of 32, cpu with 1 thread, ")
    assert rows["calibration"] == f"cpu, 1 thread, beam 1, {found.conditions.date[:10]}"
    last = text.splitlines()[-1].split()
    measured = result.models[0].depths[-1]
    assert last[0] == "2-2"
    figures = (measured.bleu, measured.quality.chrf, 1000 * measured.seconds_per_sentence)
    assert last[3:] == [f"{figure:.1f}" for figure in figures]


def test_a_selector_is_named(copy: Path) -> None:
    translator = Translator.load(copy, engine="torch", device="cpu")
    network = DepthPredictor(SelectorConfig(kind="values"), translator.model, 4)
    reader = SelectorReader(translator.model, translator.tokenizer, encoder=False)
    selector = LearnedSelector(network, reader, DEPTHS, COSTS, 8.0, threshold=2.5)
    selector = selector.with_points([TradeoffPoint(2.5, 0.5, 30.0, 50.0)])
    assert "anydepth select" in read_rows(shown(copy))["selector"]
    save_selector(copy, selector)
    assert read_rows(shown(copy))["selector"] == "by values, threshold 2.5"
    assert json.loads(shown(copy, "--json"))["selector"]["points"][0]["cost"] == 0.5


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        ("all", "4 layers, all with the same weights"),
        ((1, 2, 1, 3), "4 layers; those that share weights: 1=3"),
        ((1, 1, 2, 2), "4 layers; those that share weights: 1=2, 3=4"),
    ],
)
def test_layers_that_share_weights(toy_run: Path, tmp_path: Path, shared: object, said: str) -> None:
    config = ModelConfig.model_validate({**SIZES, "encoder_layers": 4, "decoder_layers": 1, "encoder_shared": shared})
    tokenizer = Translator.load(toy_run, engine="torch", device="cpu").tokenizer
    rows = read_rows(shown(save(tmp_path / "model", config, tokenizer, DepthMenu.every_prefix(4, 1))))
    assert rows["encoder"] == said
    assert rows["decoder"] == "1 layer"
    assert rows["parameters"].startswith(f"{artifact.load_model(tmp_path / 'model').parameters():,},")


def save(folder: Path, config: ModelConfig, tokenizer: Tokenizer, menu: DepthMenu, **more: Any) -> Path:
    torch.manual_seed(1)
    model = Transformer(config, tokenizer.vocabulary_size)
    tensors = {name: value.detach() for name, value in model.named_parameters()}
    content = saving.ModelContent(config, tensors, tokenizer, menu, **{"languages": ("fr", "en"), **more})
    saving.save(folder, content, {})
    return folder


def test_unusual_layers_are_named(toy_run: Path, tmp_path: Path) -> None:
    tokenizer = Translator.load(toy_run, engine="torch", device="cpu").tokenizer
    config = ModelConfig(**SIZES, encoder_layers=1, decoder_layers=1, norm="none", residual="rezero")
    rows = read_rows(shown(save(tmp_path / "model", config, tokenizer, DepthMenu.every_prefix(1, 1))))
    assert rows["layers"] == "norm none, residual rezero"
    assert rows["selector"] == "none; this model has one depth only, 1-1: there is nothing to choose"
    assert "layers" not in read_rows(shown(toy_run))


def test_an_encoder_alone(toy_run: Path, tmp_path: Path) -> None:
    tokenizer = Translator.load(toy_run, engine="torch", device="cpu").tokenizer
    config = ModelConfig(**SIZES, encoder_layers=2, decoder_layers=0)
    menu = DepthMenu.of([SubNetwork((0,), ()), SubNetwork((0, 1), ())])
    text = shown(save(tmp_path / "one", config, tokenizer, menu, languages=("fr", "fr")))
    rows = read_rows(text)
    assert (rows["language"], rows["encoder"], rows["decoder"]) == ("fr", "2 layers", "none")
    assert rows["measured"] == "not here; `anydepth perplexity` does it"
    assert not {"languages", "pairs", "selector", "calibration"} & rows.keys()
    assert text.split("\n\n")[1].splitlines()[0].split() == ["depth", "parameters", "MB", "in", "float32"]
    card = (tmp_path / "one" / "README.md").read_text("utf-8")
    assert "language:\n- fr\nlibrary_name" in card
    assert "of 2 encoder layers, width" in card
    assert "1-0, 2-0; `anydepth perplexity` measures them." in card
    pairs = [LanguagePair("fr", "fr"), LanguagePair("en", "en")]
    shared = {"languages": ("en, fr", "en, fr"), "pairs": pairs}
    text = shown(save(tmp_path / "two", config, tokenizer, menu, **shared))
    assert read_rows(text)["languages"] == "en, fr"
    assert "2-0" in text.splitlines()[-1]
    assert "pairs" not in read_rows(text)
    own = DepthMenu([*DepthMenu.of([SubNetwork((0,), ())], "fr-fr"), *DepthMenu.of([SubNetwork((1,), ())], "en-en")])
    text = shown(save(tmp_path / "own", config, tokenizer, own, **shared))
    assert read_rows(text)["depths"] == "2; by default fr-fr 1-0, en-en 1-0"
    with pytest.raises(UserError, match=r"choose one, for instance with source_language=.fr."):
        artifact.load_model(tmp_path / "own").choose_pair()
    assert artifact.load_model(tmp_path / "own").choose_pair("en").pair == "en-en"


@pytest.mark.slow
def test_what_is_no_model(toy_run: Path, tmp_path: Path) -> None:
    assert_one_line(anydepth("info", tmp_path), "not a model folder")
    for pair in ("en-fr", "en-cs"):
        shutil.copytree(toy_run / "model", tmp_path / "pruned" / pair)
    assert_one_line(anydepth("info", tmp_path / "pruned"), "choose one of en-cs, en-fr in it")

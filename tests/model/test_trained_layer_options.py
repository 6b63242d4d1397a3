"""Layer options from the recipe to the model folder."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import anydepth as command
from conftest import load_weights, run_recipe, toy_pairs

import anydepth
from anydepth.artifact import saving
from anydepth.artifact.model import load_model
from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.infer.translator import Translator
from anydepth.model import Transformer

GOLDEN = Path(__file__).parent.parent / "golden" / "model"
SHORT = ["train.steps=8", "train.checkpoint_every=4", "train.valid_every=8", "train.log_every=2", "train.warmup=2"]
REZERO = ["model.norm=none", "model.residual=rezero"]
DLCL = ["model.residual=dlcl"]
ALL_AT_ONCE = ["model.norm=none", *DLCL, "model.init=depth-scaled", "model.encoder_shared=all"]
OBJECTIVES = [
    "{name: vanilla}",
    "{name: tied-multi, mode: exact}",
    "{name: tied-multi, mode: sampled}",
    "{name: flexible, encoder_tasks: 1}",
    "{name: layerdrop, encoder_p: 0.5, decoder_p: 0.5}",
]


@pytest.mark.parametrize(
    ("objective", "options"),
    [*((objective, ALL_AT_ONCE) for objective in OBJECTIVES), (OBJECTIVES[1], REZERO), (OBJECTIVES[4], REZERO)],
    ids=str,
)
@pytest.mark.slow
def test_every_objective_trains_them(toy_recipe, tmp_path, objective, options):
    run_recipe(toy_recipe, tmp_path / "run", *SHORT, *options, f"objective={objective}")
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if record["kind"] == "train"]
    assert losses[-1] < losses[0]
    translator = anydepth.load(tmp_path / "run", engine="torch")
    each = translator.every_depth(["le chat dort."], beam=2)
    for entry in translator.menu:
        (alone,) = translator.hypotheses(["le chat dort."], depth=entry.name, beam=2)
        assert alone[0].tokens == each[entry.name][0][0].tokens


@pytest.mark.parametrize("options", [REZERO, DLCL], ids=str)
def test_a_resumed_run_is_the_uninterrupted_one(toy_recipe, tmp_path, options):
    changes = [*SHORT, *options, "train.schedule=inverse-sqrt"]
    run_recipe(toy_recipe, tmp_path / "parts", *changes, "train.steps=4")
    run_recipe(toy_recipe, tmp_path / "parts", *changes)
    run_recipe(toy_recipe, tmp_path / "again", *changes)
    parts, again = load_weights(tmp_path / "parts"), load_weights(tmp_path / "again")
    assert parts.keys() == again.keys()
    for name, value in again.items():
        assert torch.equal(parts[name], value), name


@pytest.mark.parametrize("options", [REZERO, DLCL], ids=str)
@pytest.mark.slow
def test_they_learn_the_toy_language(toy_recipe, tmp_path, options):
    """Not all of it in so few steps; a model that has not learnt gets none of them right."""
    run_recipe(toy_recipe, tmp_path / "run", "model.dropout=0", "train.steps=250", *options)
    translator, pairs = anydepth.load(tmp_path / "run", engine="torch"), toy_pairs(40, seed=77)
    outputs = translator.translate([source for source, _ in pairs], beam=2)
    assert sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True)) >= 10


def saved(toy_run: Path, folder: Path, **options: object) -> Transformer:
    """A model folder of random weights with the toy tokenizer."""
    sizes = {"width": 16, "heads": 2, "ffn": 32, "encoder_layers": 3, "decoder_layers": 2, "max_length": 64}
    config, tokenizer = (
        ModelConfig(**sizes, **options),
        Translator.load(toy_run, engine="torch", device="cpu").tokenizer,
    )
    torch.manual_seed(1)
    model = Transformer(config, tokenizer.vocabulary_size).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "scales" in name or "rows" in name:
                value.uniform_(0.2, 0.8)
    tensors = {name: value.detach() for name, value in model.named_parameters()}
    content = saving.ModelContent(config, tensors, tokenizer, DepthMenu.every_prefix(3, 2), ("fr", "en"))
    saving.save(folder, content, {})
    return model


OPTIONS = [
    {"norm": "none"},
    {"residual": "rezero"},
    {"residual": "dlcl"},
    {"init": "depth-scaled"},
    {"norm": "none", "residual": "rezero", "encoder_shared": "all"},
    {"residual": "dlcl", "decoder_shared": "all"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_a_folder_keeps_them_and_is_called_newer_by_older_versions(toy_run, tmp_path, options):
    model = saved(toy_run, tmp_path / "model", **options)
    record = json.loads((tmp_path / "model" / "config.json").read_text())
    later = ("norm", "residual", "init", "encoder_shared", "decoder_shared")
    assert {key: value for key, value in record["model"].items() if key in later} == options
    assert record["format"] == 2
    there = anydepth.load(tmp_path / "model", engine="torch").model
    assert there.config == model.config
    inputs = (torch.tensor([[5, 6, 7, 3]]), torch.tensor([[2, 8, 9]]), model.full)
    torch.testing.assert_close(there(*inputs), model(*inputs), atol=1e-5, rtol=1e-5)


def test_a_folder_without_them_is_written_as_ever(tmp_path):
    golden, record = anydepth.load(GOLDEN, engine="torch"), json.loads((GOLDEN / "config.json").read_text())
    tensors = {name: value.detach().contiguous() for name, value in golden.model.named_parameters()}
    config, languages = golden.model.config, golden.languages
    content = saving.ModelContent(config, tensors, golden.tokenizer, golden.menu, languages)
    saving.save(tmp_path / "model", content, record["facts"])
    for name in ("config.json", "depths.json", "model.safetensors", "tokenizer.model"):  # the card shows today's API
        assert (tmp_path / "model" / name).read_bytes() == (GOLDEN / name).read_bytes(), name


def test_shared_layers_alone_need_no_newer_version(toy_run, tmp_path):
    saved(toy_run, tmp_path / "model", encoder_shared="all")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["format"] == 1


def test_fingerprints_tell_them_apart(toy_run, tmp_path):
    for number, options in enumerate([{}, *OPTIONS]):
        saved(toy_run, tmp_path / str(number), **options)
    found = [anydepth.load(tmp_path / str(number), engine="torch").fingerprint for number in range(len(OPTIONS) + 1)]
    assert len(set(found)) == len(found)


def test_a_folder_whose_weights_are_of_other_options_is_damaged(toy_run, tmp_path):
    saved(toy_run, tmp_path / "model", residual="rezero")
    path = tmp_path / "model" / "config.json"
    path.write_text(path.read_text().replace('"rezero"', '"dlcl"'))
    with pytest.raises(UserError, match=r"does not fit config\.json"):
        anydepth.load(tmp_path / "model", engine="torch")


def test_info_counts_their_parameters(toy_run, tmp_path):
    model = saved(toy_run, tmp_path / "model", residual="dlcl", decoder_shared="all")
    done = command("info", tmp_path / "model", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    assert {one["depth"]: one["parameters"] for one in facts["depths"]}["3-2"] == facts["parameters"]


def test_parameters_are_counted_without_reading_the_weights(toy_run, tmp_path):
    for number, options in enumerate([{}, *OPTIONS]):
        saved(toy_run, tmp_path / str(number), **options)
        loaded = load_model(tmp_path / str(number), defer=True)
        for entry in loaded.menu:
            expected = sum(one.numel() for one in loaded.model.used_parameters(entry.subnetwork))
            assert loaded.parameters(entry.name) == expected


def test_a_model_to_start_from_has_its_layers_but_not_its_initial_values(toy_recipe, toy_run, tmp_path):
    shutil.copytree(toy_run / "model", tmp_path / "start")
    start = f"init_from={tmp_path / 'start'}"
    for change in ("model.norm=none", "model.residual=dlcl"):
        with pytest.raises(UserError, match=f"{change.split('=')[0]} is {change.split('=')[1]} but that of"):
            run_recipe(toy_recipe, tmp_path / "run", start, change)
    run_recipe(toy_recipe, tmp_path / "run", *SHORT, start, "model.init=depth-scaled", "train.steps=1")

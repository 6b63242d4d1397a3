"""Every shipped recipe is read and runs two steps; the documented keys are the real ones."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import assert_one_line, write_corpus
from jsonschema import Draft202012Validator
from made_translators import make_marian

import anydepth
from anydepth.config import keys_as_markdown, keys_as_schema
from anydepth.config.reading import read_recipe
from anydepth.data.words import split_words
from anydepth.errors import UserError
from anydepth.export.importing import import_model
from anydepth.training.run import train
from anydepth.word_depths.reconstruction import Averager, Occurrences

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
STUDIES = sorted((ROOT / "recipes" / "studies").glob("*.yaml"))
SCHEMA = Draft202012Validator(json.loads(keys_as_schema()))


def settings_for(path, folder, teacher):
    """A toy corpus in the place of the recipe's: as many pairs, or text, or two files."""
    recipe = yaml.safe_load(path.read_text("utf-8"))
    source, target = write_corpus(folder, 300)
    files = {"source": str(source), "target": str(target)}
    if "pairs" in recipe["data"]:
        others = dict(zip(files, map(str, write_corpus(folder, 20, "valid", seed=2)), strict=True))
        pairs = [{**pair, "train": files, "valid": others} for pair in recipe["data"]["pairs"]]
        return [f"data.pairs={json.dumps(pairs)}", "data.decontaminate=[]"]
    if "labelled" in recipe["data"]["train"]:
        return _labelled(recipe, folder, source)
    corpus = json.dumps({"text": str(source)} if "text" in recipe["data"]["train"] else files)
    taught = [f"teacher.model={teacher}", "data.max_tokens=40"] if "teacher" in recipe else []
    return [f"data.train={corpus}", f"data.valid={corpus}", *taught]


def _sizes_for(path, folder):
    """A small model, or for a recipe that starts from an imported one, such a model."""
    if "init_from" in yaml.safe_load(path.read_text("utf-8")):
        make_marian(folder / "theirs")
        import_model(str(folder / "theirs"), folder / "opus", ["fr-en"])
        return [f"init_from={folder / 'opus'}", "train.valid_depths=[3-2,1-1]", "data.max_tokens=40"]
    vocabulary = ["data.vocabulary=380", "data.required_characters=''"] if path.stem == "pt-en" else []
    return ["data.vocabulary=290", *vocabulary, "model.width=64", "model.ffn=128"]  # else it takes a minute


def _labelled(recipe, folder, source):
    """The same lines, with labels, and if need be a table of word depths."""
    lines = source.read_text("utf-8").splitlines()
    path, table = folder / "labelled.tsv", folder / "word-depths.json"
    path.write_text("".join(f"{'cat' if 'chat' in line else 'none'}\t{line}\n" for line in lines), "utf-8")
    _by_reconstruction(lines, recipe["model"]["encoder_layers"]).save(table)
    corpus = json.dumps({"labelled": str(path)})
    from_file = recipe["objective"].get("depths", "mi") != "mi"
    return [
        f"data.train={corpus}",
        f"data.valid={corpus}",
        *([f"objective.depths={table}"] if from_file else []),
    ]


def _by_reconstruction(lines, layers):
    """Word depths as from a model that fills in, of which the losses are made up."""
    averager, rng = Averager(layers, 0.1), np.random.default_rng(1)
    for words in map(split_words, lines):
        averager.add(Occurrences(words, rng.normal(2, 0.3, (len(words), layers)).astype(np.float32)))
    return averager.table({}, {})


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_runs_two_steps(path, tmp_path, toy_run):
    """And the model that comes of it is used for what it is for."""
    recipe = read_recipe(
        path,
        [
            *settings_for(path, tmp_path, toy_run),
            *_sizes_for(path, tmp_path),
            "train.steps=2",
            "train.batch_tokens=60",
            "train.valid_sentences=2",
            "train.threads=1",
        ],
    )
    model = train(recipe, tmp_path / "run")
    if recipe.data.is_text:
        with pytest.raises(UserError, match="does not translate"):
            anydepth.load(model, engine="torch")
        return
    translator = anydepth.load(model, engine="torch")
    if recipe.data.is_labelled:
        assert translator.classify(["le chat dort."])[0].label in ("cat", "none")
        return
    if recipe.data.pairs:
        translator = translator.between(target=recipe.data.pairs[-1].target_language)
    assert len(translator.translate(["le chat dort."], depth=translator.menu.names[0], max_length=3)) == 1


def test_a_recipe_names_its_schema_and_says_what_it_is_for():
    assert len(RECIPES) >= 3
    for path in RECIPES + STUDIES:
        schema, about, *_ = path.read_text("utf-8").splitlines()
        assert schema.startswith("# yaml-language-server: $schema="), path.name
        assert (path.parent / schema.partition("=")[2]).resolve() == ROOT / "recipes" / "recipe.schema.json"
        assert about.startswith("# "), path.name


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_recipe_of_a_study_is_one(path):
    read_recipe(path)


@pytest.mark.parametrize(
    "path", [one for one in STUDIES if one.with_suffix(".sh").exists()], ids=lambda path: path.stem
)
def test_the_script_of_a_study_says_how_it_is_used(path):
    done = subprocess.run(["bash", path.with_suffix(".sh")], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_settings_of_the_study_of_word_depths_are_possible():
    study = ROOT / "recipes" / "studies" / "depth-adaptive.sh"
    script = study.read_text("utf-8")
    for variable, value in {"$out/words/${set%-folds}.json": "t.json", "$n": "2"}.items():
        assert variable in script
        script = script.replace(variable, value)
    settings = re.findall(r"""["']((?:objective|model|data\.\w+)=\{[^}]*\})["']""", script)
    assert "objective={name: word-depths, depths: t.json}" in settings
    for setting in settings:
        read_recipe(study.with_suffix(".yaml"), [setting])


def test_documented_keys_make_one_table():
    lines = keys_as_markdown().splitlines()
    start = lines.index("| --- | --- | --- |")
    assert all(line.startswith("| `") and line.endswith(" |") for line in lines[start + 1 :])


def test_documented_keys_are_current():
    """If this fails: python -m anydepth.config > docs/recipe-keys.md"""
    assert (ROOT / "docs" / "recipe-keys.md").read_text("utf-8") == keys_as_markdown()


def test_the_schema_is_current():
    """If this fails: anydepth schema > recipes/recipe.schema.json"""
    assert (ROOT / "recipes" / "recipe.schema.json").read_text("utf-8") == keys_as_schema()


def test_a_verb_prints_the_schema(here):
    done = here("schema")
    assert done.returncode == 0
    assert done.stdout.decode() == keys_as_schema()


@pytest.mark.parametrize("path", RECIPES + STUDIES, ids=lambda path: path.stem)
def test_the_schema_accepts_shipped_recipes(path):
    errors = SCHEMA.iter_errors(yaml.safe_load(path.read_text("utf-8")))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_the_schema_finds_mistakes_and_knows_the_keys_of_each_objective():
    data = {"train": {"tsv": "x.tsv"}}
    assert SCHEMA.is_valid({"data": data, "objective": {"name": "tied-multi", "mode": "exact"}})
    for wrong in ({"stpes": 3}, {"steps": 0}, {"schedule": "linaer"}):
        assert not SCHEMA.is_valid({"data": data, "train": wrong})
    assert not SCHEMA.is_valid({"data": data, "objective": {"name": "vanilla", "mode": "exact"}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train.stpes=3", "there is no key train.stpes; did you mean `steps`?"),
        ("trian.steps=3", "there is no key trian; did you mean `train`?"),
        ("steps=3", "there is no key steps; did you mean `train.steps`?"),
        ("train.width=64", "there is no key train.width; did you mean `model.width`?"),
        ("train.colour=3", "there is no key train.colour; docs/recipe-keys.md lists them all"),
        ("data.train={tsw: x}", "there is no key data.train.tsw; did you mean `tsv`?"),
        ("data.train=[{tsv: x, wight: 2}]", "data.train.1.wight (counted from 1); did you mean `weight`?"),
        ("data.augment={tipos: 0.1}", "there is no key data.augment.tipos; did you mean `typos`?"),
        (
            "data={pairs: [{source_langage: fr, target_language: en, train: {tsv: x}}]}",
            "data.pairs.1.source_langage (counted from 1); did you mean `source_language`?",
        ),
        ("objective={name: latent, lamda: 1}", "did you mean `lambda`?"),
        ("objective={name: tied-multi, mod: exact}", "tied-multi has no key objective.mod, it has mode, "),
        ("objective={name: tied-mutli}", "there is no objective 'tied-mutli': choose from vanilla, "),
        ("objective={name: tied-mutli}", "did you mean `tied-multi`?"),
        ("objective={mode: exact}", "objective has no name: choose from vanilla, "),
        ("train.schedule=linaer", "input should be 'inverse-sqrt', 'linear' or 'wsd'; did you mean `linear`?"),
        ("model.encoder_shared=al", "did you mean `all`?"),
        ("teacher={model: self, map: regulr}", "did you mean `regular`?"),
    ],
)
def test_misspelt_keys_and_values_get_a_suggestion(tmp_path, change, words):
    """From the command line and, being read the same way, in the file."""
    path = tmp_path / "recipe.yaml"
    path.write_text("data: {train: {tsv: x}}")
    with pytest.raises(UserError, match=re.escape(words)):
        read_recipe(path, [change])


def test_a_misspelt_key_is_one_line_on_the_command_line(tmp_path, here):
    path = tmp_path / "recipe.yaml"
    path.write_text("data: {train: {tsv: x}}")
    done = here("train", path, "--out", tmp_path / "run", "--set", "train.stpes=3")
    assert_one_line(done, "there is no key train.stpes; did you mean `steps`?")


def test_settings_replace_and_add_keys(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"data": {"train": {"tsv": "x.tsv"}}, "train": {"steps": 5}}))
    recipe = read_recipe(path, ["train.steps=7", "model.width=64", "objective={name: tied-multi, weights: linear}"])
    assert recipe.train.steps == 7
    assert recipe.model.width == 64
    assert recipe.objective.name == "tied-multi"


def test_a_key_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("data: {train: {tsv: x}}\ntrain:\n  steps: 1\n  steps: 2\n")
    with pytest.raises(UserError, match="'steps' appears twice"):
        read_recipe(path)


def test_an_objective_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("data: {train: {tsv: x}}\nobjective: {name: flexibel}\n")
    with pytest.raises(UserError, match="there is no objective 'flexibel': choose from vanilla, tied-multi, flexible"):
        read_recipe(path)


def test_an_option_of_another_objective_is_explained(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("data: {train: {tsv: x}}\nobjective: {name: tied-multi, mode: exact}\n")
    with pytest.raises(UserError, match=r"vanilla has no key objective\.mode, it has none: for another"):
        read_recipe(path, ["objective.name=vanilla"])


@pytest.mark.parametrize(
    ("train_section", "words"),
    [
        ({}, "exactly one of"),
        ({"source": "a"}, "both source and target"),
        ({"tsv": "a", "source": "a", "target": "b"}, "exactly one of"),
        ({"tsv": "a", "source_column": "fr"}, "numbers, counted from 1"),
    ],
)
def test_a_corpus_must_be_of_one_kind(tmp_path, train_section, words):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"data": {"train": train_section}}))
    with pytest.raises(UserError, match=words):
        read_recipe(path)

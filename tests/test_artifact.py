import json
import shutil

import pytest
import torch
from conftest import run_recipe
from safetensors.torch import load_file, save_file

import anydepth
from anydepth.artifact.saving import record_measurements
from anydepth.errors import UserError
from anydepth.files import file_sha256

TEXTS = ["le chat dort.", "un grand chien rouge voit le petit oiseau ici.", "", "le chat."]


@pytest.fixture
def folder(toy_run, tmp_path):
    return shutil.copytree(toy_run / "model", tmp_path / "model")


def test_run_and_model_folder_load_the_same(toy_run):
    one, other = anydepth.load(toy_run, engine="torch"), anydepth.load(str(toy_run / "model"), engine="torch")
    assert one.translate(TEXTS) == other.translate(TEXTS)
    assert one.languages == ("fr", "en")


def test_translations_are_in_order_and_empty_lines_stay_empty(toy_run):
    translator = anydepth.load(toy_run, engine="torch")
    found = translator.translate(TEXTS, batch_size=2)
    assert found[2] == ""
    assert found == [translator.translate([text])[0] for text in TEXTS]
    assert found[0] == "the cat sleeps."


def test_layout_does_not_change_values(toy_run):
    saved = load_file(toy_run / "model" / "model.safetensors")
    for name, parameter in anydepth.load(toy_run, engine="torch").model.named_parameters():
        assert torch.equal(parameter, saved[name])


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model", "depths.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "garbage"])
def test_a_damaged_folder_is_refused_in_one_line(folder, name, damage):
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"empty": b"", "truncated": content[: len(content) // 2], "garbage": b"\xff\x00{]"}[damage])
    with pytest.raises(UserError) as caught:
        anydepth.load(folder, engine="torch")
    assert "\n" not in str(caught.value)
    assert "model" in str(caught.value)
    if name.endswith(".json"):
        assert name in str(caught.value)


def test_a_flipped_bit_is_noticed(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not what was saved"):
        anydepth.load(folder, engine="torch")


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_newer_folder_is_refused(folder):
    change_config(folder, format=99)
    with pytest.raises(UserError, match="newer anydepth: upgrade"):
        anydepth.load(folder, engine="torch")


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": {}},
        {"files": {"/dev/zero": "0" * 64}},
        {"format": 0},
        {"format": "1"},
        {"languages": ["fr"]},
        {"facts": []},
        {"vocabulary": -1},
        {"vocabulary": 10**9},
        {"model": {"encoder_layers": 10**7}},
        {"model": {"encoder_layers": 900}},
        {"model": {"width": 60_000}},
        {"model": {"unheard_of": 1}},
    ],
    ids=str,
)
def test_a_hostile_config_is_refused(folder, change):
    record = json.loads((folder / "config.json").read_text())
    if isinstance(change.get("model"), dict):
        change = {"model": record["model"] | change["model"]}
    change_config(folder, **change)
    with pytest.raises(UserError):
        anydepth.load(folder, engine="torch")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder", [7]),
        ("encoder", [0.5]),
        ("encoder", []),
        ("encoder", "01"),
        ("decoder_weights", ["x"]),
        ("depth", 1),
    ],
)
def test_a_hostile_menu_is_refused(folder, key, value):
    path = folder / "depths.json"
    record = json.loads(path.read_text())
    record["depths"][0]["subnetwork"][key] = value
    path.write_text(json.dumps(record))
    with pytest.raises(UserError):
        anydepth.load(folder, engine="torch")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder, value):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["encoder.norm.bias"][3] = value
    save_file(tensors, path)
    change_config(
        folder,
        files={"model.safetensors": file_sha256(path), "tokenizer.model": file_sha256(folder / "tokenizer.model")},
    )
    with pytest.raises(UserError, match=r"encoder.norm.bias has values that are not finite"):
        anydepth.load(folder, engine="torch")


def test_sizes_that_do_not_fit_are_refused(folder):
    change_config(folder, vocabulary=77)
    with pytest.raises(UserError, match=r"does not fit config\.json"):
        anydepth.load(folder, engine="torch")


def test_what_is_no_model_is_explained(tmp_path):
    with pytest.raises(UserError, match="there is no model at"):
        anydepth.load(tmp_path / "nowhere", engine="torch")
    with pytest.raises(UserError, match="is not a model folder"):
        anydepth.load(tmp_path, engine="torch")
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(UserError, match="has not finished"):
        anydepth.load(tmp_path, engine="torch")


def test_measurements_reach_menu_and_card(folder):
    translator = anydepth.load(folder, engine="torch")
    cost = {"seconds_per_sentence": 0.004, "parameters": 12_340_000}
    translator.menu.measured("1-1", cost, {"bleu": 31.25, "chrf": 50.0})
    translator.menu.measured_on = {"device": "cpu"}
    record_measurements(folder, translator.menu)
    assert anydepth.load(folder, engine="torch").menu["1-1"].quality["bleu"] == 31.25
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlanguage:\n- fr\n- en\n")
    assert "| 1-1 | 31.2 | 50.0 | 4.0 | 12.34 M |" in card
    assert "pairs trained on" in card
    assert "tied-multi" in card


def test_whoever_may_read_the_folder_may_read_all_of_it(toy_run):
    modes = {path.stat().st_mode & 0o777 for path in (toy_run / "model").iterdir()}
    assert len(modes) == 1


def test_no_pickle_in_a_model_folder(folder):
    assert {path.name for path in folder.iterdir()} - {"packed.anydepth"} == {
        "config.json", "model.safetensors", "tokenizer.model", "depths.json", "README.md",
    }  # fmt: skip


def test_options_are_checked(toy_run):
    translator = anydepth.load(toy_run, engine="torch")
    with pytest.raises(UserError, match="nbest is 3 but the beam is 2"):
        translator.hypotheses(["le chat."], beam=2, nbest=3)
    with pytest.raises(UserError, match=r"give a list of texts"):
        translator.hypotheses("le chat.")
    with pytest.raises(UserError, match=r"line 2 has [\d,]+ subwords, the limit is 63"):
        translator.translate(["le chat.", "chat " * 700])
    assert translator.translate(["chat " * 700], cut_long=True)[0].startswith("cat")
    assert translator.translate([]) == []
    for options, words in (
        ({"length_penalty": 1e6}, "out of range"),
        ({"length_penalty": float("nan")}, "out of range"),
        ({"max_length": -3}, "at least 1"),
        ({"depth": 6}, "is not a depth"),
    ):
        with pytest.raises(UserError, match=words):
            translator.translate(["le chat."], **options)
    assert translator.translate(["le chat."], depth=" 2-2 ") == ["the cat."]
    with pytest.raises(UserError, match="there is no device"):
        anydepth.load(toy_run, device="meta", engine="torch")


def test_source_prefix_and_length_limits(toy_run):
    translator = anydepth.load(toy_run, engine="torch")
    assert translator.translate(["dort."], source_prefix="le chat ") == translator.translate(["le chat dort."])
    short = translator.hypotheses(["le chat dort ici."], max_length=2)[0][0]
    assert len(short.tokens) <= 2


def test_a_stream_gives_out_everything_before_a_line_that_is_too_long(toy_run):
    translator = anydepth.load(toy_run, engine="torch")
    stream = translator.stream(["le chat.", "un chien.", "le chien.", "chat " * 700, "le chat."], chunk=2)
    given = []
    with pytest.raises(UserError, match="line 4 has"):
        given.extend(found[0].text for found in stream)
    assert given == translator.translate(["le chat.", "un chien.", "le chien."])


def test_what_people_should_know_is_on_the_card(toy_recipe, tmp_path):
    told = "Sentences by kind people, CC-BY."
    run_recipe(toy_recipe, tmp_path / "run", f"about={told}", "train.steps=2", "train.warmup=1", "train.average=1")
    card = (tmp_path / "run" / "model" / "README.md").read_text("utf-8")
    assert told in card.partition("## Depths")[0]
    assert told not in card.partition("## Recipe")[2]
    run_recipe(toy_recipe, tmp_path / "run", "about=Other words.", "train.steps=2", "train.warmup=1", "train.average=1")

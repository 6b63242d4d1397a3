"""The verb word-depths reconstruction, and a model that translates with a depth for each source word."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import WORDS, anydepth, assert_one_line, run_recipe, toy_pairs, write_corpus
from made_checkpoints import make_checkpoint

from anydepth.artifact.model import load_model
from anydepth.errors import UserError
from anydepth.evaluate.perplexity import likelihood_every_depth
from anydepth.infer.translator import Translator
from anydepth.word_depths.reconstruction import LAMBDAS, reconstruct
from anydepth.word_depths.table import WordDepths, text_key

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent.parent / "golden" / "model"
TEXTS = ["the film was good", "the film was not bad", "a good film", "not bad, not good", "the bad film was the film"]
RECONSTRUCTION = ("word-depths", "reconstruction")
SIZES = ("--steps", 3, "--max-tokens", 20, "--batch-tokens", 64, "--threads", 1, "--device", "cpu")


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS * 6), "utf-8")
    return path


@pytest.fixture
def table(texts, tmp_path, here) -> Path:
    """Made by a tiny BERT that was trained for three steps."""
    make_checkpoint(tmp_path / "bert")
    out = tmp_path / "depths.json"
    asked = ("--train", texts, "--plain", "--encoder", tmp_path / "bert", "--sample", 5, "--out", out)
    done = here(*RECONSTRUCTION, *asked, *SIZES, "--occurrences", texts)
    assert done.returncode == 0, done.stderr
    assert "the masked language model has not converged" in " ".join(done.stderr.decode().split())
    return out


def test_from_texts_to_a_table(table):
    found = WordDepths.load(table)
    assert (found.kind, found.layers, found.lambda_, found.lambdas) == ("reconstruction", 3, 0.1, LAMBDAS)
    told = {"texts": 30, "sampled": 5, "steps": 3, "max_tokens": 20, "encoder": "bert", "converged": False}
    assert found.facts == told
    assert {"film", "good", "the"} <= found.values.keys()
    assert all(1 <= value <= 3 for values in found.values.values() for value in values)
    assert table.with_suffix(".png").exists()


def test_a_model_that_fills_in_is_used_as_it_is(table, texts, tmp_path, here):
    run = table.with_name("depths.json.run")
    asked = ("--train", texts, "--plain", "--encoder", run, "--sample", 5, "--occurrences", texts)
    done = here(*RECONSTRUCTION, *asked, *SIZES, "--out", tmp_path / "again.json")
    assert done.returncode == 0, done.stderr
    assert "it is used as it is" in " ".join(done.stderr.decode().split())
    assert not (tmp_path / "again.json.run").exists()
    first, again = WordDepths.load(table), WordDepths.load(tmp_path / "again.json")
    assert (first.values, first.texts) == (again.values, again.texts)
    assert again.facts["steps"] == 0
    # and each occurrence has what the model says of it
    filler = load_model(run)
    (one,) = reconstruct(filler.model, filler.tokenizer, [filler.as_read(filler.tokenizer.encode(TEXTS[4]))])
    assert one.words == TEXTS[4].split()
    assert first.texts[text_key(one.words)] == tuple(one.depths(0.1).tolist())


def test_a_run_goes_on_with_its_own_texts_alone(table, texts, tmp_path, here):
    other = tmp_path / "other.txt"
    other.write_text("".join(f"{text} indeed\n" for text in TEXTS * 6), "utf-8")
    before = table.read_bytes()
    asked = ("--plain", "--encoder", tmp_path / "bert", "--sample", 5, "--out", table)
    assert_one_line(here(*RECONSTRUCTION, "--train", other, *asked, *SIZES), "other texts", "--work")
    assert table.read_bytes() == before
    done = here(*RECONSTRUCTION, "--train", texts, *asked, *SIZES)
    assert done.returncode == 0, done.stderr


def test_layers_spread_over_the_stack_are_no_exits(texts, tmp_path, here):
    """LayerDrop has a depth for each number of layers, too, which are not the first ones."""
    make_checkpoint(tmp_path / "bert", num_hidden_layers=4)
    recipe = {
        "init_from": str(tmp_path / "bert"),
        "data": {"train": {"text": str(texts)}, "hold_out": 2, "max_tokens": 20, "deduplicate": False},
        "model": {"decoder_layers": 0, "head": "transform"},
        "objective": {"name": "layerdrop"},
        "train": {"steps": 2, "batch_tokens": 64, "threads": 1, "valid_every": 2, "checkpoint_every": 2, "average": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), "utf-8")
    run_recipe(tmp_path / "recipe.yaml", tmp_path / "dropped")
    assert len(load_model(tmp_path / "dropped").menu) == 4
    asked = ("--train", texts, "--plain", "--encoder", tmp_path / "dropped", "--sample", 2)
    done = here(*RECONSTRUCTION, *asked, *SIZES, "--out", tmp_path / "d.json")
    assert done.returncode == 0, done.stderr
    assert b"used as it is" not in done.stderr
    assert WordDepths.load(tmp_path / "d.json").facts["steps"] == 3


def test_occurrences_are_of_texts_cut_alike(table, tmp_path):
    labelled = tmp_path / "train.tsv"
    labelled.write_text("".join(f"{'ab'[i % 2]}\t{text}\n" for i, text in enumerate(TEXTS * 6)), "utf-8")
    recipe = {
        "init_from": str(tmp_path / "bert"),
        "data": {"train": {"labelled": str(labelled)}, "hold_out": 2, "max_tokens": 19, "deduplicate": False},
        "objective": {"name": "word-depths", "depths": str(table)},
        "train": {"steps": 1, "threads": 1, "valid_every": 1, "checkpoint_every": 1, "average": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), "utf-8")
    with pytest.raises(UserError, match=r"cut at 20 subwords, .* data\.max_tokens is 19"):
        run_recipe(tmp_path / "recipe.yaml", tmp_path / "run")
    run_recipe(tmp_path / "recipe.yaml", tmp_path / "run", "data.max_tokens=20")


def test_long_texts_are_learnt_from_in_parts(tmp_path, here):
    make_checkpoint(tmp_path / "bert")
    path = tmp_path / "long.txt"
    path.write_text("".join(f"{' '.join(TEXTS * 4)}\n" for _ in range(3)), "utf-8")
    asked = ("--train", path, "--plain", "--encoder", tmp_path / "bert", "--sample", 2, "--out", tmp_path / "d.json")
    done = here(*RECONSTRUCTION, *asked, *SIZES)
    assert done.returncode == 0, done.stderr
    parts = (tmp_path / "d.json.run.text.txt").read_text("utf-8").splitlines()
    assert {len(part.split()) for part in parts[:-1]} == {10, len(" ".join(TEXTS * 4).split()) % 10}
    assert " ".join(parts).split() == path.read_text("utf-8").split()


def test_from_scratch(tmp_path, here):
    """Two layers of the usual width."""
    rng, words = random.Random(1), [first + rest for first in "bdfgklm" for rest in ("ab", "ec", "id", "of", "ash")]
    path, out = tmp_path / "labelled.tsv", tmp_path / "depths.json"
    path.write_text("".join(f"pos\t{' '.join(rng.choices(words, k=6))}\n" for _ in range(60)), "utf-8")
    asked = ("--train", path, "--layers", 2, "--sample", 4, "--out", out)
    assert_one_line(here(*RECONSTRUCTION, *asked, *SIZES), "too small for 8000 subwords", "set --vocabulary to at most")
    done = here(*RECONSTRUCTION, *asked, *SIZES, "--vocabulary", 300)
    assert done.returncode == 0, done.stderr
    found = WordDepths.load(out)
    assert (found.layers, found.facts["encoder"]) == (2, None)
    assert 5 < len(found.values) <= 24
    assert found.values.keys() <= set(words)
    again = here(*RECONSTRUCTION, *asked, *SIZES, "--vocabulary", 300, "--lambda", 0.2)
    assert "this run has finished" in " ".join(again.stderr.decode().split())
    other = WordDepths.load(out)
    assert (other.values, other.lambda_) == (found.values, 0.2)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--encoder", GOLDEN, "--layers", 2), "leave out --layers"),
        (("--encoder", GOLDEN, "--vocabulary", 300), "leave out --vocabulary"),
        (("--encoder", "no/such/folder"), "no/such/folder"),
        (("--encoder", GOLDEN), "give an encoder-only model"),
        (("--lambda", -1), "--lambda"),
        (("--lambda", "inf"), "--lambda"),
        (("--steps", 0), "--steps"),
    ],
)
def test_refusals(texts, tmp_path, here, asked, words):
    done = here(*RECONSTRUCTION, "--train", texts, "--plain", "--out", tmp_path / "d.json", *asked)
    assert_one_line(done, words)
    assert not (tmp_path / "d.json").exists()


def test_files_that_are_not_as_said(texts, tmp_path, here):
    out = ("--out", tmp_path / "d.json")
    assert_one_line(here(*RECONSTRUCTION, "--train", texts, *out), "line 1", "no tab")
    assert_one_line(here(*RECONSTRUCTION, "--train", tmp_path / "none", "--plain", *out), "does not exist")
    assert not (tmp_path / "d.json.run").exists()


@pytest.fixture(scope="module")
def by_word_run(tmp_path_factory) -> Path:
    """A finished run that translates with a depth for each source word, by turns 1 and 2. Do not write to it."""
    folder = tmp_path_factory.mktemp("by-word")
    source, target = write_corpus(folder, 1000)
    values = {word: (1.0 + number % 2,) for number, word in enumerate(WORDS)}
    WordDepths("mi", 2, values).save(folder / "depths.json")
    recipe = {
        "init_from": str(GOLDEN),
        "data": {
            "source_language": "fr",
            "target_language": "en",
            "train": {"source": str(source), "target": str(target)},
            "hold_out": 20,
            "max_tokens": 40,
        },
        "objective": {"name": "word-depths", "depths": str(folder / "depths.json")},
        "train": {"steps": 30, "batch_tokens": 600, "learning_rate": 3e-3, "warmup": 5, "threads": 1, "average": 1},
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe), "utf-8")
    run_recipe(folder / "recipe.yaml", folder / "run", "train.valid_every=30", "train.checkpoint_every=30")
    return folder / "run"


@pytest.fixture(scope="module")
def translator(by_word_run) -> Translator:
    return Translator.load(by_word_run, engine="torch", device="cpu")


def test_it_translates(translator):
    sources, references = (list(side) for side in zip(*toy_pairs(40, seed=9), strict=True))
    assert translator.menu.names == ["2-2-words"]
    for beam in (1, 3):
        found = translator.translate(sources, beam=beam)
        right = sum(one == other for one, other in zip(found, references, strict=True))
        assert right >= 36
        assert [translator.translate([source], beam=beam)[0] for source in sources[:10]] == found[:10]
    (every,) = translator.every_depth(sources[:5]).values()
    assert [best.text for best, *_ in every] == translator.translate(sources[:5])
    assert translator.translate([""]) == [""]


def test_words_at_their_own_depth_are_not_words_at_all_layers(translator):
    ids = torch.tensor([translator.as_read(translator.tokenizer.encode("le chat mange un oiseau."))])
    depths_bs = translator.token_depths.tensor(ids)
    assert set(depths_bs.flatten().tolist()) == {1, 2}
    with torch.inference_mode():
        own = translator.model.encode(ids, translator.menu.default.subnetwork, depths=depths_bs)[-1]
        full = translator.model.encode(ids, translator.model.full)[-1]
    assert (own - full).abs().max() > 1e-3


def test_words_go_deeper_or_shallower(translator):
    text = "le chat mange un oiseau."
    scores = {scale: translator.hypotheses([text], scale=scale)[0][0].score for scale in (None, 1.0, 0.1, 10.0)}
    assert scores[None] == scores[1.0]
    assert len({round(score, 6) for score in scores.values()}) == 3
    with pytest.raises(UserError, match="cannot be scaled by 0"):
        translator.translate([text], scale=0.0)
    with pytest.raises(UserError, match="no depths of words"):
        Translator.load(GOLDEN, engine="torch", device="cpu").translate([text], scale=2.0)


def test_the_table_is_part_of_what_a_model_is_known_by(translator):
    other = Translator.load(translator.folder, engine="torch", device="cpu")
    assert other.fingerprint == translator.fingerprint
    changed = replace(translator.loaded, token_depths=translator.token_depths.changed(scale=2.0))
    assert changed.fingerprint != translator.fingerprint


def test_what_is_for_plain_depths_is_refused(translator):
    with pytest.raises(UserError, match="one depth only"):
        translator.translate(["le chat"], depth="auto")
    with pytest.raises(UserError, match="a depth for each word, cannot be scored"):
        likelihood_every_depth(translator, ["le chat"], ["the cat"], ["2-2-words"])


def test_teachers(by_word_run, tmp_path):
    recipe = by_word_run.with_name("recipe.yaml")
    settings = ["train.steps=2", "train.valid_every=2", "train.checkpoint_every=2"]
    for teacher, words in (
        (f"{{model: {by_word_run}, method: rkd}}", "cannot teach"),
        (f"{{model: {GOLDEN}, method: ckd, attention: true}}", "teacher.method=rkd"),
    ):
        with pytest.raises(UserError, match=words):
            run_recipe(recipe, tmp_path / "run", f"teacher={teacher}", *settings)
    run_recipe(recipe, tmp_path / "run", f"teacher={{model: {GOLDEN}, method: rkd}}", *settings)
    assert Translator.load(tmp_path / "run", engine="torch", device="cpu").menu.names == ["2-2-words"]


def test_verbs_of_models_that_translate(by_word_run, tmp_path, here):
    model = shutil.copytree(by_word_run / "model", tmp_path / "model")
    source, target = write_corpus(tmp_path, 12, "test", seed=3)
    text = ("--source", source, "--reference", target)
    for verb in (
        ("info",),
        ("sweep", *text, "--out", tmp_path / "report", "--repeats", 1),
        ("calibrate", *text, "--repeats", 1),
    ):
        done = here(verb[0], model, *verb[1:])
        assert done.returncode == 0, done.stderr
        assert b"2-2-words" in done.stdout
    assert (tmp_path / "report" / "index.html").exists()
    assert_one_line(here("select", model, *text), "one depth only")


def test_the_verb_translate(by_word_run, translator):
    done = anydepth("translate", by_word_run, stdin=b"le chat dort.\n\nun oiseau.\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == translator.translate(["le chat dort.", "", "un oiseau."])


def test_depths_come_from_the_run_when_it_goes_on(by_word_run):
    kept = WordDepths.load(by_word_run / "word-depths.json")
    assert kept == WordDepths.load(by_word_run / "model" / "word-depths.json")
    np.testing.assert_array_equal(kept.depths(["le", "un", "inconnu"]), [1, 2, 2])

"""Models that classify, trained for real: from labelled texts to a model folder that classifies."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from conftest import assert_one_line, load_weights, made_once, python, run_recipe
from labelled_texts import write_labelled
from made_checkpoints import make_checkpoint

import anydepth
from anydepth.data.corpus import read_labelled
from anydepth.errors import UserError
from anydepth.files import file_sha256
from anydepth.infer.classifier import Classifier
from anydepth.infer.translator import Translator
from anydepth.model import Transformer
from anydepth.training.base_models import StartModel
from anydepth.training.run_log import read_log
from anydepth.word_depths.table import WordDepths

pytestmark = pytest.mark.slow

PLAIN = ["the", "film", "was", "a", "story", "of", "two", "dogs", "and", "it"]
TELLING = {"bad": ["awful", "dull"], "good": ["great", "lovely"], "mixed": ["odd", "uneven"]}
RECIPE = """\
data:
  train: {{labelled: {train}}}
  hold_out: 60
  vocabulary: 290
  max_tokens: 30
  deduplicate: false
model: {{width: 32, heads: 2, ffn: 64, encoder_layers: 3, decoder_layers: 0, max_length: 48, dropout: 0.0}}
objective: {{name: vanilla}}
train: {{steps: 120, batch_tokens: 300, learning_rate: 1.0e-2, warmup: 10, label_smoothing: 0.0, threads: 1, average: 1,
  valid_every: 120, checkpoint_every: 120}}
"""
SHORT = ["train.steps=2", "train.valid_every=2", "train.checkpoint_every=2"]
GOLDEN = Path(__file__).parent.parent / "golden" / "model"  # which translates
BY_WORD = "objective={name: word-depths}"


def made_texts(count: int, labels: tuple[str, ...] = tuple(TELLING), seed: int = 1) -> list[tuple[str, str]]:
    """Random words, one of which tells the label."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        label = rng.choice(labels)
        words = [rng.choice(PLAIN) for _ in range(rng.randint(2, 7))]
        words.insert(rng.randrange(len(words) + 1), rng.choice(TELLING[label]))
        made.append((" ".join(words), label))
    return made


@pytest.fixture(scope="session")
def labelled_recipe(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("classifiers")
    train = write_labelled(folder / "train.tsv", made_texts(500))
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(train=train), "utf-8")
    return path


@pytest.fixture(scope="session")
def runs(labelled_recipe, tmp_path_factory) -> dict[str, Path]:
    """Finished runs, by objective. Do not write to them."""
    names = ("vanilla", "word-depths", "halting", "tied-multi")

    def make(folder: Path) -> None:
        for name in names:
            run_recipe(labelled_recipe, folder / name, f"objective={{name: {name}}}")

    folder = made_once(tmp_path_factory, "classifiers", make)
    return {name: folder / name for name in names}


def accuracy(run: Path, **options: object) -> float:
    texts, labels = zip(*made_texts(100, seed=2), strict=True)
    found = anydepth.load(run, engine="torch").classify(texts, **options)
    return sum(one.label == label for one, label in zip(found, labels, strict=True)) / len(labels)


@pytest.mark.parametrize(
    ("name", "depths"),
    [
        ("vanilla", ["3-0"]),
        ("word-depths", ["3-0-words"]),
        ("halting", ["1-0", "2-0", "3-0", "3-0-words"]),
        ("tied-multi", ["1-0", "2-0", "3-0"]),
    ],
)
def test_each_learns_to_tell_the_label_at_each_of_its_depths(runs, name, depths):
    assert anydepth.load(runs[name], engine="torch").menu.names == depths
    for depth in depths:
        assert accuracy(runs[name], depth=depth) >= 0.95
    *_, last = (one for one in read_log(runs[name]) if one["kind"] == "valid")
    assert min(last["accuracy"].values()) >= 90


def test_words_that_tell_the_label_run_fewer_layers(runs):
    model = anydepth.load(runs["word-depths"], engine="torch")
    found, words = model.explain("the film was great and it was awful")
    depths = {word.text.strip(): word.depth for word in words}
    assert max(depths["great"], depths["awful"]) < min(depths["film"], depths["it"])
    assert 1 < found.depth < 3
    assert found.computed < 3 * 10


def test_the_unit_ends_early_where_one_layer_is_enough(runs):
    found = anydepth.load(runs["halting"], engine="torch").classify([text for text, _ in made_texts(50, seed=3)])
    assert sum(one.depth for one in found) / 50 < 2


def test_results_do_not_depend_on_batches(runs):
    texts = [text for text, _ in made_texts(40, seed=4)] + ["", "unheard-of words 日本", "great " * 100]
    for name in ("word-depths", "halting", "vanilla"):
        model = anydepth.load(runs[name], engine="torch")
        together = model.classify(texts)
        for text, one in zip(texts, together, strict=True):
            (alone,) = model.classify([text])
            assert (alone.label, alone.depth, alone.computed) == (one.label, one.depth, one.computed)
            assert alone.probabilities == pytest.approx(one.probabilities, abs=1e-5)
            assert sum(one.probabilities) == pytest.approx(1, abs=1e-5)
        streamed = list(model.stream(iter(texts), chunk=7))
        assert [(one.label, one.computed) for one in streamed] == [(one.label, one.computed) for one in together]
        assert model.classify([]) == []


def test_scale_makes_words_deeper_or_shallower(runs):
    texts = [text for text, _ in made_texts(20, seed=5)]
    for name in ("word-depths", "halting"):
        model = anydepth.load(runs[name], engine="torch")
        shallow, own, deep = ([one.computed for one in model.classify(texts, scale=by)] for by in (0.01, None, 100))
        tokens = [len(source) for source in model.read(texts)]
        assert shallow == tokens
        assert deep == [3 * count for count in tokens]
        assert sum(shallow) <= sum(own) < sum(deep)
    plain = anydepth.load(runs["vanilla"], engine="torch").classify(texts)
    assert [one.computed for one in plain] == [3 * count for count in tokens]


def test_what_has_no_effect_is_refused(runs):
    by_word, halting, plain = (
        anydepth.load(runs[name], engine="torch") for name in ("word-depths", "halting", "vanilla")
    )
    for model, options, words in (
        (plain, {"scale": 2.0}, "all words run all layers"),
        (halting, {"scale": 2.0, "depth": "3-0"}, "all words run all layers"),
        (halting, {"lambda_": 0.1}, "and no lambda"),
        (by_word, {"lambda_": 0.1}, "have no lambda"),
        (by_word, {"scale": -1.0}, "cannot be scaled by"),
        (halting, {"scale": 0.0}, "cannot be scaled by"),
        (plain, {"batch_size": 0}, "batch_size is 0"),
        (plain, {"depth": "2-0"}, "no depth 2-0"),
    ):
        with pytest.raises(UserError, match=words):
            model.classify(["a film"], **options)
    assert plain.classify("a film") == plain.classify(["a film"])[0]


def test_lambda_of_a_reconstructed_table(labelled_recipe, tmp_path):
    values = {word: (3.0, 1.0) for words in (PLAIN, *TELLING.values()) for word in words}
    WordDepths("reconstruction", 3, values, (0.0, 0.2), 0.0).save(tmp_path / "depths.json")
    objective = f"objective={{name: word-depths, depths: {tmp_path / 'depths.json'}, lambda: 0.2}}"
    run_recipe(labelled_recipe, tmp_path / "run", objective, *SHORT)
    (tmp_path / "depths.json").unlink()  # the run has its own
    run_recipe(labelled_recipe, tmp_path / "run", objective, *SHORT, "train.steps=3")
    model = anydepth.load(tmp_path / "run", engine="torch")
    depths = [model.classify(["the film was great"], lambda_=by)[0].depth for by in (None, 0.0, 0.1, 0.2)]
    assert depths == [1.0, 3.0, 2.0, 1.0]


def test_the_folder(runs):
    folder = runs["word-depths"] / "model"
    record = json.loads((folder / "config.json").read_text("utf-8"))
    assert record["format"] == 3
    assert record["labels"] == ["bad", "good", "mixed"]
    assert record["words"] == {"special": "deepest", "scale": 1.0, "lambda": None, "unseen": "frequency"}
    assert record["files"]["word-depths.json"] == file_sha256(folder / "word-depths.json")
    assert WordDepths.load(folder / "word-depths.json") == WordDepths.load(runs["word-depths"] / "word-depths.json")
    plain = json.loads((runs["vanilla"] / "model" / "config.json").read_text("utf-8"))
    assert plain["format"] == 3
    assert "words" not in plain
    assert json.loads((runs["halting"] / "model" / "config.json").read_text("utf-8"))["model"]["halting"] is True


def test_it_classifies_with_objectives_and_training_unimportable(runs):
    texts = ["the film was great", "an awful story of two dogs"]
    folders = [str(runs["word-depths"]), str(runs["halting"])]
    ways = [(folder, engine) for folder in folders for engine in ("torch", "auto")]
    script = f"""
import sys
rooms = ["objectives", "training", "selectors.training", "selectors.select", "selectors.data"]
for room in (*rooms, "word_depths.reconstruction"):
    sys.modules["anydepth." + room] = None
import anydepth
for folder, engine in {ways}:
    for one in anydepth.load(folder, engine=engine).classify({texts}):
        print(one.label, f"{{one.probability:.4f}}", one.computed)
"""
    done = python(script)
    found = [one for folder, engine in ways for one in anydepth.load(folder, engine=engine).classify(texts)]
    expected = [f"{one.label} {one.probability:.4f} {one.computed}" for one in found]
    assert done.stdout.splitlines() == expected, done.stderr


def damaged(run: Path, folder: Path, change: str) -> Path:
    shutil.copytree(run / "model", folder)
    table, config = folder / "word-depths.json", folder / "config.json"
    record = json.loads(config.read_text("utf-8"))
    if change == "missing":
        table.unlink()
    elif change == "torn":
        table.write_bytes(table.read_bytes()[:-20])
    elif change == "label":
        record["labels"] = record["labels"][:-1]
    elif change == "rule":
        del record["words"]
    elif change == "layers":
        content = json.loads(table.read_text("utf-8")) | {"layers": 5}
        table.write_text(json.dumps(content), "utf-8")
        record["files"]["word-depths.json"] = file_sha256(table)
    elif change == "nothing says":
        table.unlink()
        del record["words"], record["files"]["word-depths.json"]
    config.write_text(json.dumps(record), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("missing", "word-depths.json"),
        ("torn", "word-depths.json is not what was saved"),
        ("label", "does not fit config.json"),
        ("rule", "do not come together"),
        ("layers", "for 5 layers"),
        ("nothing says", "nothing says how deep each word goes"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(runs, tmp_path, change, words):
    folder = damaged(runs["word-depths"], tmp_path / "model", change)
    with pytest.raises(UserError, match=words) as refused:
        anydepth.load(folder, engine="torch")
    assert len(str(refused.value).splitlines()) == 1


def test_each_kind_is_refused_where_the_other_is_wanted(runs):
    with pytest.raises(UserError, match="classifies texts"):
        Translator.load(runs["vanilla"], engine="torch", device="cpu")
    with pytest.raises(UserError, match="does not classify"):
        Classifier.load(GOLDEN, device="cpu")


def test_interrupted_and_resumed_equals_uninterrupted(labelled_recipe, tmp_path):
    settings = [BY_WORD, "model.dropout=0.1", "train.schedule=inverse-sqrt", "train.checkpoint_every=2"]
    run_recipe(labelled_recipe, tmp_path / "whole", *settings, "train.steps=6")
    run_recipe(labelled_recipe, tmp_path / "parts", *settings, "train.steps=2")
    run_recipe(labelled_recipe, tmp_path / "parts", *settings, "train.steps=6")
    one, other = load_weights(tmp_path / "whole"), load_weights(tmp_path / "parts")
    assert all(torch.equal(one[name], other[name]) for name in one)
    tables = [(tmp_path / run / "model" / "word-depths.json").read_bytes() for run in ("whole", "parts")]
    assert tables[0] == tables[1]
    with pytest.raises(UserError, match=r"started with another objective\.scale"):
        run_recipe(labelled_recipe, tmp_path / "parts", *settings, "train.steps=8", "objective.scale=2.0")


def build_start(run: Path, labels: tuple[str, ...]) -> tuple[StartModel, Transformer]:
    start = StartModel.load(run)
    torch.manual_seed(5)
    model = Transformer(start.config, start.tokenizer.vocabulary_size, len(labels))
    start.copy_to(model, labels)
    return start, model


def test_the_head_stays_for_the_same_labels_alone(runs):
    for labels, stays in (
        (("bad", "good", "mixed"), True),
        (("ham", "news", "spam"), False),  # as many, which mean something else
        (("bad", "good"), False),
    ):
        start, model = build_start(runs["vanilla"], labels)
        given = dict(model.named_parameters())
        assert torch.equal(given["encoder.layers.2.ffn_up.weight"], start.tensors["encoder.layers.2.ffn_up.weight"])
        assert torch.equal(given["target_embedding.weight"], start.tensors["target_embedding.weight"])
        head, before = given["output.weight"], start.tensors["output.weight"]
        assert (head.shape == before.shape and torch.equal(head, before)) == stays


def test_starting_from_another_classifier(runs, labelled_recipe, tmp_path):
    other = write_labelled(tmp_path / "other.tsv", made_texts(300, ("bad", "good")))
    settings = [f"init_from={runs['vanilla']}", f"data.train={{labelled: {other}}}", "model={}", *SHORT]
    run_recipe(labelled_recipe, tmp_path / "run", *settings, BY_WORD)
    model = anydepth.load(tmp_path / "run", engine="torch")
    assert model.labels == ("bad", "good")
    assert model.menu.names == ["3-0-words"]
    run_recipe(labelled_recipe, tmp_path / "unit", *settings, "objective={name: halting}")
    assert anydepth.load(tmp_path / "unit", engine="torch").model.halting is not None
    settings[2] = "model={encoder_layers: 2}"
    run_recipe(labelled_recipe, tmp_path / "fewer", *settings, "train.learning_rate=1.0e-7")
    begun, fewer = load_weights(runs["vanilla"]), load_weights(tmp_path / "fewer")
    assert anydepth.load(tmp_path / "fewer", engine="torch").menu.names == ["2-0"]
    name = "encoder.layers.1.attention_qkv.weight"
    torch.testing.assert_close(fewer[name], begun[name], atol=1e-5, rtol=0)
    assert not any(name.startswith("encoder.layers.2.") for name in fewer)
    settings[2] = "model={encoder_layers: 4}"
    with pytest.raises(UserError, match="encoder_layers is 4 but that of"):
        run_recipe(labelled_recipe, tmp_path / "more", *settings)


def test_starting_from_a_pre_trained_encoder(labelled_recipe, tmp_path):
    make_checkpoint(tmp_path / "bert")
    settings = [f"init_from={tmp_path / 'bert'}", "model={dropout: 0.0}", "data.max_tokens=20", BY_WORD]
    settings += ["train.learning_rate=1.0e-3", "train.checkpoint_every=10", "train.log_every=10"]
    run_recipe(labelled_recipe, tmp_path / "run", *settings, "train.steps=10")
    shutil.rmtree(tmp_path / "bert")  # a run that is under way needs it no more
    run_recipe(labelled_recipe, tmp_path / "run", *settings, "train.steps=40")
    losses = [one["loss"] for one in read_log(tmp_path / "run") if one["kind"] == "train"]
    assert losses[-1] < losses[0]
    folder = tmp_path / "run" / "model"
    assert (folder / "tokenizer.json").exists()
    assert not (folder / "tokenizer.model").exists()
    model = anydepth.load(folder, engine="torch")
    found, words = model.explain("The film was GREAT!")
    assert [word.text.strip().lower() for word in words] == ["the", "film", "was", "great", "!"]
    assert found.label in model.labels
    assert model.model.config.norm == "post"


def test_a_wrong_table_does_not_spoil_the_run(labelled_recipe, tmp_path):
    WordDepths("mi", 5, {"the": (1.0,)}).save(tmp_path / "five.json")
    for name, words in (("nowhere.json", "there are no word depths"), ("five.json", "for 5 layers")):
        objective = f"objective={{name: word-depths, depths: {tmp_path / name}}}"
        with pytest.raises(UserError, match=words):
            run_recipe(labelled_recipe, tmp_path / "run", objective, *SHORT)
    WordDepths("mi", 3, {"the": (1.0,)}).save(tmp_path / "three.json")
    objective = f"objective={{name: word-depths, depths: {tmp_path / 'three.json'}}}"
    run_recipe(labelled_recipe, tmp_path / "run", objective, *SHORT)
    assert anydepth.load(tmp_path / "run", engine="torch").explain("the film")[1][0].depth == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model.decoder_layers=2"], "labelled texts are for an encoder-only model"),
        (["objective={name: flexible}"], "flexible needs a decoder"),
        (["model.residual=dlcl", BY_WORD], "dense connections"),
        (["model.residual=dlcl", "objective={name: halting}"], "dense connections"),
        ([f"teacher={{model: {GOLDEN}, method: rkd}}"], "teacher.model=self"),
        (["train.valid_depths=['2-0']"], "no depth 2-0"),
        (["data.max_tokens=48"], "model.max_length"),
    ],
)
def test_what_does_not_fit_is_refused(labelled_recipe, tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        run_recipe(labelled_recipe, tmp_path / "run", *changes)
    assert not (tmp_path / "run" / "recipe.json").exists()


def test_masked_text_has_no_words_of_their_own_depth(labelled_recipe, tmp_path):
    WordDepths("mi", 3, {"the": (1.0,)}).save(depths := tmp_path / "depths.json")
    text = f"data={{train: {{text: {labelled_recipe.parent / 'train.tsv'}}}, max_tokens: 30}}"
    with pytest.raises(UserError, match="not for masked text"):
        run_recipe(labelled_recipe, tmp_path / "run", text, f"objective={{name: word-depths, depths: {depths}}}")


def test_several_seeds(labelled_recipe, tmp_path, here):
    settings = [word for change in SHORT for word in ("--set", change)]
    out = tmp_path / "runs"
    done = here("train", labelled_recipe, "--out", out, "--seeds", 2, *settings)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["seed-1", "seed-2"]
    one, other = load_weights(out / "seed-1"), load_weights(out / "seed-2")
    assert not torch.equal(one["output.weight"], other["output.weight"])
    assert_one_line(here("train", labelled_recipe, "--out", out, *settings), "not empty and not a run")
    single = here("train", labelled_recipe, "--out", out / "seed-1", "--seeds", 2, *settings)
    assert_one_line(single, "is a run of its own")
    again = here("train", labelled_recipe, "--out", out, "--seeds", 2, *settings)
    assert again.stderr.decode().count("this run has finished") == 2


def test_several_folds(labelled_recipe, toy_recipe, tmp_path, here):
    settings = [word for change in SHORT for word in ("--set", change)]
    done = here("train", labelled_recipe, "--out", tmp_path / "runs", "--folds", 2, *settings)
    assert done.returncode == 0, done.stderr
    tests = [list(read_labelled(tmp_path / "runs" / fold / "data" / "test.tsv")) for fold in ("fold-1", "fold-2")]
    assert sorted(tests[0] + tests[1]) == sorted(made_texts(500))
    assert not set(tests[0]) & set(tests[1])
    refused = here("train", toy_recipe, "--out", tmp_path / "other", "--folds", 2)
    assert_one_line(refused, "folds", "without labelled texts")
    assert not (tmp_path / "other").exists()


def test_a_text_is_cut_where_it_was_cut_in_training(runs):
    classifier = anydepth.load(runs["vanilla"], engine="torch")
    record = json.loads((runs["vanilla"] / "model" / "config.json").read_text("utf-8"))
    assert classifier.longest_source == record["max_tokens"] < record["model"]["max_length"] - 1
    long = " ".join(["film"] * 500)
    assert classifier.classify([long])[0].tokens == record["max_tokens"] + 1  # and the end of the text

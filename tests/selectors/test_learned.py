"""The learnt selector: how it decides, how it is kept in a model folder, and that translation follows it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import python, save_changed, toy_pairs
from made_tables import COSTS, DEPTHS

import anydepth
from anydepth.errors import UserError
from anydepth.infer.translator import Translator
from anydepth.selectors import Selector
from anydepth.selectors.calibration import LengthCost
from anydepth.selectors.learned import LearnedSelector, TradeoffPoint, deepest_index, load_selector, save_selector
from anydepth.selectors.network import DepthPredictor, SelectorConfig, SelectorReader

TEXTS = ["", *(source for source, _ in toy_pairs(40, seed=5)), "  "]
POINTS = (TradeoffPoint(0.0, 0.9, 40.25, 60.5), TradeoffPoint(2.5, 0.5, 39.0, 59.0))
LABELS = SelectorConfig(kind="labels", reads="embeddings", layers=1, ffn=16)
ENCODER = SelectorConfig(kind="values", reads="encoder", layers=0, ffn=16)


@pytest.fixture(scope="module")
def translator(toy_run):
    return anydepth.load(toy_run, engine="torch")


@pytest.fixture
def model(toy_run, tmp_path) -> Path:
    """A copy of the model folder that a test may write to."""
    return Path(shutil.copytree(toy_run / "model", tmp_path / "model"))


def selector_for(translator, config: SelectorConfig = SelectorConfig(), spread: float = 1.0) -> LearnedSelector:  # noqa: B008
    """Untrained, but with opinions that differ from sentence to sentence."""
    torch.manual_seed(3)
    network = DepthPredictor(config, translator.model, 4)
    torch.nn.init.normal_(network.read_out.weight, std=spread)
    read = SelectorReader(translator.model, translator.tokenizer, config.reads == "encoder")
    with torch.no_grad():
        network.offset_k.copy_(-network.eval()(read(tokens(translator))).mean(0))
    return LearnedSelector(network, read, DEPTHS, COSTS, mean_length=10.0).with_points(POINTS)


def tokens(translator) -> list[list[int]]:
    return [[*ids, 3] for ids in translator.tokenizer.encode_many([text for text in TEXTS if text.strip()])]


def test_labels_take_the_likeliest_depth_and_back_off_to_the_deepest(translator):
    selector = selector_for(translator, LABELS)
    scores = np.array([[0.9, 0.2, 0.9, 0.1], [0.1, 0.6, 0.2, 0.3], [0.4, 0.49, 0.3, 0.2], [0.1, 0.5, 0.2, 0.3]])
    assert selector.threshold == 0.5
    assert selector.pick(scores, [5, 5, 5, 5], 0.5).tolist() == [0, 1, 3, 1]
    assert selector.pick(scores, [5, 5, 5, 5], 0.7).tolist() == [0, 3, 3, 3]
    assert selector.pick(scores, [5, 5, 5, 5], 0.0).tolist() == [0, 1, 1, 1]


def test_values_weigh_chrf_against_time_by_hand(translator):
    """1-1 takes 0.05 + 0.02 x length, 2-2 four times that; the mean length is 10."""
    selector = selector_for(translator)
    scores = np.array([[50.0, 40, 40, 53.0], [50.0, 40, 40, 50.0]])
    # Of 10 subwords 1-1 takes 0.25 and 2-2 1.0: 0.75 of the time is worth the 3 points at a threshold of 4.
    assert selector.pick(scores, [10, 10], 0.0).tolist() == [3, 0]
    assert selector.pick(scores, [10, 10], 3.99).tolist() == [3, 0]
    assert selector.pick(scores, [10, 10], 4.01).tolist() == [0, 0]
    # Of 20 the points count double, and the times are 0.45 and 1.8: it turns at 6 / 1.35.
    assert selector.pick(scores, [20, 20], 4.43).tolist() == [3, 0]
    assert selector.pick(scores, [20, 20], 4.46).tolist() == [0, 0]


def test_the_deepest_need_not_be_the_last():
    assert deepest_index(("1-1", "6-2", "1-4")) == 1


def test_a_threshold_is_changed_on_a_copy(translator):
    selector = selector_for(translator)
    sources = tokens(translator)
    faster = selector.with_threshold(1e6)
    assert selector.threshold == 1.0
    assert faster.points == POINTS
    assert set(faster.choose(sources)) == {"1-1"}
    assert len(set(selector.with_threshold(0.0).choose(sources))) > 1
    assert isinstance(selector, Selector)


@pytest.mark.parametrize("config", [SelectorConfig(), ENCODER, LABELS], ids=["values", "encoder", "labels"])
def test_the_choice_does_not_depend_on_the_batch(translator, config):
    selector = selector_for(translator, config)
    sources = tokens(translator) * 3
    alone = [selector.choose([source])[0] for source in sources]
    assert selector.choose(sources) == alone
    assert selector.choose(sources[::-1]) == alone[::-1]
    assert len(set(alone)) > 1
    assert selector.choose([]) == []


@pytest.mark.parametrize("config", [SelectorConfig(), ENCODER, LABELS], ids=["values", "encoder", "labels"])
def test_a_saved_selector_comes_back_with_the_model(translator, model, config):
    selector = selector_for(translator, config).with_threshold(0.75)
    save_selector(model, selector)
    found = Translator.load(model, engine="torch", device="cpu").selector
    assert isinstance(found, LearnedSelector)
    assert (found.depths, found.threshold, found.points) == (DEPTHS, 0.75, POINTS)
    assert (found.config, found.relative_cost_k, found.mean_length) == (config, COSTS, 10.0)
    sources = tokens(translator)
    np.testing.assert_array_equal(found.scores(sources), selector.scores(sources))
    assert found.choose(sources) == selector.choose(sources)
    assert Translator.load(model, engine="torch", device="cpu").translate(["le chat."], depth="1-1")


def test_a_model_without_a_selector_has_none(translator, toy_run):
    assert translator.selector is None
    assert load_selector(toy_run / "model", translator.model, translator.tokenizer, translator.menu) is None


def test_auto_translates_each_sentence_at_its_depth(translator, model):
    selector = selector_for(translator)
    save_selector(model, selector)
    chooser = anydepth.load(model, engine="torch")
    chosen = iter(selector.choose(tokens(translator)))
    names = [next(chosen) if text.strip() else "2-2" for text in TEXTS]
    assert len(set(names)) > 1
    one_by_one = [translator.translate([text], depth=name)[0] for text, name in zip(TEXTS, names, strict=True)]
    assert chooser.translate(TEXTS, depth="auto") == one_by_one
    found = chooser.hypotheses(TEXTS, depth="auto", beam=2, batch_size=5)
    assert [best[0].depth for best in found] == [n if t.strip() else "" for n, t in zip(names, TEXTS, strict=True)]


@pytest.mark.slow
def test_it_chooses_with_objectives_and_training_unimportable(translator, model):
    save_selector(model, selector_for(translator).with_threshold(1e6))
    script = f"""
import sys
rooms = ["objectives", "training", "selectors.training", "selectors.select", "selectors.data", "evaluate"]
for room in (*rooms, "word_depths.reconstruction"):
    sys.modules["anydepth." + room] = None
import anydepth
print(anydepth.load({str(model)!r}, engine="torch").hypotheses(["le chat dort."], depth="auto")[0][0])
"""
    done = python(script)
    assert "text='the cat sleeps.'" in done.stdout, done.stderr
    assert "depth='1-1'" in done.stdout


def test_a_selector_of_another_model_is_refused(translator, toy_run, model, tmp_path):
    save_selector(model, selector_for(translator))
    save_changed(toy_run, tmp_path / "other")
    shutil.copytree(model / "selector", tmp_path / "other" / "selector")
    with pytest.raises(UserError, match=r"trained for another model: train it again .*anydepth select"):
        _ = Translator.load(tmp_path / "other", engine="torch", device="cpu").selector
    assert Translator.load(tmp_path / "other", engine="torch", device="cpu").translate(["le chat."])


def edit(model: Path, **changes: object) -> None:
    path = model / "selector" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda there: (there / "selector.safetensors").write_bytes(b"abc"), "is not what was saved"),
        (lambda there: (there / "selector.safetensors").unlink(), "is damaged"),
        (lambda there: (there / "config.json").unlink(), "is damaged"),
        (lambda there: (there / "config.json").write_text("{"), "is damaged"),
        (lambda there: (there / "config.json").write_text("[]"), "is damaged"),
        (lambda there: edit(there.parent, format=2), "newer anydepth"),
        (lambda there: edit(there.parent, depths=["1-1", "2-1", "1-2", "7-7"]), "the depths do not fit"),
        (lambda there: edit(there.parent, relative_costs=[]), "the depths do not fit"),
        (lambda there: edit(there.parent, threshold="often"), "threshold"),
        (lambda there: edit(there.parent, threshold=float("nan")), "threshold"),
        (lambda there: edit(there.parent, config={"layers": 3}), "is damaged"),
        (lambda there: edit(there.parent, config={"layers": 1, "heads": 7}), "is damaged"),
        (lambda there: edit(there.parent, config={"layers": 100, "ffn": 262_144}), "does not fit config.json"),
    ],
)
def test_a_damaged_selector_is_refused_in_one_line(translator, model, damage, message):
    save_selector(model, selector_for(translator))
    damage(model / "selector")
    with pytest.raises(UserError, match=message) as caught:
        _ = Translator.load(model, engine="torch", device="cpu").selector
    assert "anydepth select" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_saving_again_replaces_it_and_leaves_nothing_behind(translator, model):
    save_selector(model, selector_for(translator))
    before = sorted(path.name for path in model.iterdir())
    save_selector(model, selector_for(translator, LABELS))
    assert sorted(path.name for path in model.iterdir()) == before
    assert Translator.load(model, engine="torch", device="cpu").selector.kind == "labels"


def test_costs_come_back_as_they_were(translator, model):
    selector = selector_for(translator)
    save_selector(model, selector)
    assert Translator.load(model, engine="torch", device="cpu").selector.relative_cost_k[3] == LengthCost(0.2, 0.08)

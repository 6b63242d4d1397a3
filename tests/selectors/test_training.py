"""Selectors trained for real, by the one trainer, on tables whose answer is known."""

import io
import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import toy_pairs
from made_tables import COSTS, DEPTHS, is_long, made_table
from rich.console import Console

import anydepth
from anydepth import progress
from anydepth.errors import UserError
from anydepth.evaluate.every_depth import translate_every_depth
from anydepth.infer.translator import Translator
from anydepth.selectors.calibration import LengthCost
from anydepth.selectors.learned import save_selector
from anydepth.selectors.network import DEFAULTS, PAPER, SelectorConfig
from anydepth.selectors.training import candidates, fine_tune, fit_selector, search_selector

pytestmark = pytest.mark.slow

SMALL = {"batch_tokens": 256, "ffn": 64}
VALUES = DEFAULTS["values"].model_copy(update={"steps": 100, **SMALL})
LIKELIHOOD = VALUES.model_copy(update={"kind": "likelihood"})
LABELS = PAPER.model_copy(update={"steps": 250, "layers": 1, "heads": 2, **SMALL})


@pytest.fixture(scope="module")
def translator(toy_run):
    return anydepth.load(toy_run, engine="torch")


@pytest.fixture(scope="module")
def tables(translator):
    return made_table(translator, 800, seed=1), made_table(translator, 150, seed=2)


@pytest.fixture(scope="module")
def fitted(translator, tables, tmp_path_factory):
    """A trained selector, its loss and its folder. Do not write to it."""
    folder = tmp_path_factory.mktemp("fitted")
    return (*fit_selector(translator, tables[0], COSTS, VALUES, folder, tables[1]), folder)


@pytest.fixture
def shown(monkeypatch):
    """What a program that asked for progress shows."""
    monkeypatch.setattr(progress, "_given", None)
    monkeypatch.setattr(progress, "_shown", False)
    log = logging.getLogger("anydepth")
    handlers, level, propagate = log.handlers[:], log.level, log.propagate
    progress.show_progress(Console(file=io.StringIO(), width=300))
    yield progress.progress_console().file
    log.handlers[:], log.propagate = handlers, propagate
    log.setLevel(level)


def share_right(translator, selector) -> float:
    unseen = made_table(translator, 300, seed=3)
    chosen = selector.choose([[*ids, 3] for ids in translator.tokenizer.encode_many(unseen.sources)])
    wanted = np.where(is_long(translator, unseen.sources), "2-2", "1-1")
    return float(np.mean(np.array(chosen) == wanted))


@pytest.mark.parametrize(
    "config",
    [LIKELIHOOD, VALUES, VALUES.model_copy(update={"reads": "encoder"}), LABELS],
    ids=["likelihood", "values", "encoder", "labels"],
)
def test_it_learns_which_depth_suits_a_sentence(translator, tables, config, tmp_path, shown):
    selector, loss = fit_selector(translator, tables[0], COSTS, config, tmp_path, tables[1])
    assert selector.depths == DEPTHS
    assert selector.relative_cost_k == COSTS
    assert share_right(translator, selector) > 0.8
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    best = min(record["loss"] for record in records if record["kind"] == "valid")
    assert loss == pytest.approx(best, rel=1e-4 if config.kind == "labels" else 0.1)  # the others are shrunk at the end
    parts = {"bce", "f_beta"} if config.kind == "labels" else {"difference", "level"}
    assert all(parts <= record.keys() for record in records)
    said = shown.getvalue()
    assert ("finds a best depth of" if config.kind == "labels" else "of the differences between depths") in said


def test_where_nothing_can_be_foreseen_all_get_one_depth(translator, tables, tmp_path):
    """What the network takes for a pattern in noise is shrunk away on the validation set."""
    rng = np.random.default_rng(1)
    noise = [replace(t, chrf_nk=rng.uniform(0, 100, t.chrf_nk.shape).astype(np.float32)) for t in tables]
    config = VALUES.model_copy(update={"learning_rate": 0.01})
    free = [LengthCost(0.0, 0.0)] * 4
    selector, loss = fit_selector(translator, noise[0], free, config, tmp_path, noise[1])
    scores = selector.scores([[*ids, 3] for ids in translator.tokenizer.encode_many(noise[1].sources)])
    differences = scores - scores[:, 3:]
    assert differences.std(0).max() < 3  # of noise with a spread of 40
    assert loss == pytest.approx(1, abs=0.1)


@pytest.mark.usefixtures("fitted")
def test_the_model_itself_is_not_trained(translator, toy_run):
    loaded = translator.loaded
    assert Translator.load(toy_run, engine="torch", device="cpu").fingerprint == type(loaded).fingerprint.func(loaded)
    assert all(p.grad is None for p in translator.model.parameters())


def checkpoint_times(run: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (run / "checkpoints").iterdir()}


def test_the_same_again_trains_no_more_and_another_config_starts_over(translator, tables, fitted, tmp_path):
    first, loss, folder = fitted
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    before = checkpoint_times(tmp_path)
    again, same_loss = fit_selector(translator, tables[0], COSTS, VALUES, tmp_path, tables[1])
    assert checkpoint_times(tmp_path) == before
    assert same_loss == loss
    sources = [[5, 6, 7, 3], [270, 271, 3]]
    np.testing.assert_array_equal(first.scores(sources), again.scores(sources))
    other = VALUES.model_copy(update={"steps": 20})
    fit_selector(translator, tables[0], COSTS, other, tmp_path, tables[1])
    assert set(checkpoint_times(tmp_path).values()).isdisjoint(before.values())
    assert max(checkpoint_times(tmp_path)) == "step-000000020"


def test_a_killed_run_goes_on_to_the_same_weights(translator, tables, fitted, tmp_path, monkeypatch):
    from anydepth.training.trainer import Trainer

    whole, _, _ = fitted
    update = Trainer._update

    def die_at_25(self: Trainer) -> None:
        if self.state.step == 25:
            raise KeyboardInterrupt
        update(self)

    monkeypatch.setattr(Trainer, "_update", die_at_25)
    with pytest.raises(KeyboardInterrupt):
        fit_selector(translator, tables[0], COSTS, VALUES, tmp_path / "killed", tables[1])
    monkeypatch.undo()
    resumed, _ = fit_selector(translator, tables[0], COSTS, VALUES, tmp_path / "killed", tables[1])
    for name, value in whole.network.state_dict().items():
        np.testing.assert_array_equal(resumed.network.state_dict()[name].numpy(), value.numpy(), err_msg=name)


@pytest.mark.parametrize("kind", ["values", "labels"])
def test_a_search_takes_the_best_on_validation_and_reuses_its_trials(translator, tables, tmp_path, kind, shown):
    base = (VALUES if kind == "values" else LABELS).model_copy(update={"steps": 30, "seed": 4})
    config, selector = search_selector(translator, *tables, COSTS, base, tmp_path, trials=2)
    assert selector.config == config
    losses = []
    for run in sorted((tmp_path / "search").iterdir()):
        rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        losses.append((min(row["loss"] for row in rows if row["kind"] == "valid"), run))
    assert len(losses) == 2
    assert json.loads((min(losses)[1] / "selector.json").read_text())["config"] == config.model_dump()
    before = [checkpoint_times(run) for _, run in losses]
    assert search_selector(translator, *tables, COSTS, base, tmp_path, trials=2)[0] == config
    assert [checkpoint_times(run) for _, run in losses] == before
    lines = shown.getvalue().splitlines()
    assert [line for line in lines if line.startswith("best of 2: ")] == lines[-1:] * 2
    assert not [line for line in lines if "step" in line]  # the trainer of each trial is quiet


@pytest.mark.parametrize("base", [DEFAULTS["values"], PAPER])
def test_candidates_begin_with_the_base_and_are_all_different(base):
    found = candidates(base, width=512, trials=6)
    assert found[0] == base
    assert len(set(found)) == 6
    assert found[:3] == candidates(base, width=512, trials=3)
    assert found != candidates(base.model_copy(update={"seed": 2}), width=512, trials=6)
    assert {config.kind for config in found} == {base.kind}


def test_candidates_fit_a_narrow_model():
    found = candidates(DEFAULTS["labels"].model_copy(update={"ffn": 1024}), width=6, trials=8)
    assert all(6 % config.heads == 0 and config.ffn <= 24 for config in found)


def test_fine_tuning_starts_from_the_selector_and_moves_to_the_dev_set(translator, tables, fitted, tmp_path):
    valid, (selector, _, _) = tables[1], fitted
    before = {name: value.clone() for name, value in selector.network.state_dict().items()}
    tuned, loss = fine_tune(translator, selector.with_threshold(0.5), valid, tmp_path / "tune", valid, epochs=5)
    assert tuned.threshold == 0.5
    _, gentle_loss = fine_tune(translator, selector, valid, tmp_path / "less", valid, epochs=1)
    assert loss < gentle_loss
    assert all((selector.network.state_dict()[name] == value).all() for name, value in before.items())
    assert share_right(translator, tuned) > 0.8


def test_a_table_of_real_translations_to_auto(translator, toy_run, tmp_path):
    """End to end: translate at every depth, train, save, load, translate at the chosen depths."""
    pairs = [*toy_pairs(60, seed=11), ("", "")]
    table = translate_every_depth([translator], *zip(*pairs, strict=True))
    config = SelectorConfig(kind="values", steps=20, **SMALL)
    selector, _ = fit_selector(translator, table, COSTS, config, tmp_path / "run", table)
    model = Path(shutil.copytree(toy_run / "model", tmp_path / "model"))
    save_selector(model, selector)
    found = anydepth.load(model, engine="torch").hypotheses(table.sources, depth="auto")
    assert {best[0].depth for best in found} <= {*table.depths, ""}
    for row, (best, *_) in enumerate(found):
        if best.depth:
            assert best.text == table.outputs[table.depths.index(best.depth)][row]


def test_what_does_not_fit_together_is_refused(translator, tables, tmp_path):
    train, valid = tables
    with pytest.raises(UserError, match="4 depths but 3 costs"):
        fit_selector(translator, train, COSTS[:3], VALUES, tmp_path / "a", valid)
    other = type(train)(("1-1", "2-1", "1-2", "9-9"), *(getattr(train, n) for n in list(vars(train))[1:]))
    with pytest.raises(UserError, match="not of this model"):
        fit_selector(translator, other, COSTS, VALUES, tmp_path / "b", other)
    (tmp_path / "c" / "checkpoints").mkdir(parents=True)
    with pytest.raises(UserError, match="the run of something else"):
        fit_selector(translator, train, COSTS, VALUES, tmp_path / "c", valid)


def test_a_table_without_text_is_refused(translator, tmp_path):
    table = replace(made_table(translator, 2, seed=1), sources=("", " "))
    with pytest.raises(UserError, match="no sentences to learn from"):
        fit_selector(translator, table, COSTS, VALUES, tmp_path, table)


def test_networks_by_labels_may_be_as_large_as_the_papers():
    """Its feed-forward size whatever the width of the model, and its numbers of layers in the search."""
    found = candidates(PAPER, 32, 60)
    assert {config.ffn for config in found} == {2048}
    assert {config.layers for config in found} == {2, 4, 8}
    assert {config.ffn for config in candidates(DEFAULTS["labels"], 32, 60)} == {128}

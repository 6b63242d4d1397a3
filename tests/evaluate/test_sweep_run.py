"""Sweeps of real, untrained models: the numbers are poor but the way they come about is the real one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from saved_models import REFERENCES, SOURCES, save_model

from anydepth.errors import UserError
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.sweep import SweepResult, record_sweep, sweep
from anydepth.export.runtime import build_runtime_file
from anydepth.infer.translator import Translator, on_engine


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads that wait for each other on a busy machine make a tiny model slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def translator(tmp_path: Path) -> Translator:
    return save_model(tmp_path / "model", layers=2)


def run(translator: Translator, depths: list[str] | None = None, batch_size: int = 4, repeats: int = 1) -> SweepResult:
    return sweep(
        {"small": translator},
        SOURCES,
        REFERENCES,
        RunOptions(batch_size=batch_size, source_name="/home/someone/test.en", repeats=repeats),
        depths=depths,
    )


def test_sweep_measures_every_depth_as_the_translator_translates(translator: Translator) -> None:
    result = run(translator, repeats=3)
    (model,) = result.models
    assert [one.depth for one in model.depths] == ["1-1", "1-2", "2-1", "2-2"]
    for one in model.depths:
        assert list(one.outputs) == translator.translate(SOURCES, depth=one.depth, batch_size=4)
        assert one.seconds == sorted(one.seconds_of_passes)[1]
        assert one.parameters == translator.parameters(one.depth)
    assert "/home" not in json.dumps(result.to_json())
    assert result.conditions.source_file == "test.en"


def test_sweep_measures_the_engine_it_is_given(translator: Translator) -> None:
    native = on_engine(translator, "native", threads=1)
    result = run(native)
    assert result.conditions.engine == "native"
    for one in result.models[0].depths:
        assert list(one.outputs) == native.translate(SOURCES, depth=one.depth, batch_size=4)
    assert record_sweep(native, result)
    assert translator.folder is not None
    assert Translator.load(translator.folder, engine="torch", device="cpu").menu.measured_on["engine"] == "native"


def test_sweep_of_tokens_that_leave_early(translator: Translator) -> None:
    native = on_engine(translator, "native", threads=1)
    options = RunOptions(repeats=1)
    result = sweep({"small": native}, SOURCES, REFERENCES, options, depths=["1-1"], exits=["margin:0.5", "margin:inf"])
    (model,) = result.models
    assert [one.depth for one in model.depths] == ["1-1"]
    assert [one.depth for one in model.exits] == ["2-2 margin:0.5", "2-2 margin:inf"]
    for rule, one in zip(("margin:0.5", None), model.exits, strict=True):
        assert list(one.outputs) == native.translate(SOURCES, depth="2-2", exit=rule)
    assert model.exits[1].mean_decoder_layers == 2 > (model.exits[0].mean_decoder_layers or 0) >= 1
    assert [one["depth"] for one in result.to_json()["models"][0]["exits"]] == [one.depth for one in model.exits]
    with pytest.raises(UserError, match="is not an early-exit rule"):
        sweep({"small": native}, SOURCES, REFERENCES, options, exits=["soon"])
    with pytest.raises(UserError, match="cannot leave early"):
        sweep({"small": on_engine(translator, "ctranslate2")}, SOURCES, REFERENCES, options, exits=["margin:1"])


def test_sweep_of_a_model_file(translator: Translator, tmp_path: Path) -> None:
    file = tmp_path / "small.anydepth"
    file.write_bytes(build_runtime_file(translator))
    (alone,) = run(Translator.load(file, threads=1)).models
    (of_folder,) = run(on_engine(translator, "native", threads=1)).models
    assert [one.outputs for one in alone.depths] == [one.outputs for one in of_folder.depths]
    assert [one.bytes for one in alone.depths] == [one.bytes for one in of_folder.depths]
    assert [one.parameters for one in alone.depths] == [None] * 4


def test_sweep_of_models_of_two_sizes_compares_what_they_share(translator: Translator, tmp_path: Path) -> None:
    other = save_model(tmp_path / "other", layers=1)
    result = sweep({"two": translator, "one": other}, SOURCES, REFERENCES, RunOptions(repeats=1, samples=20))
    assert result.comparison is not None
    assert [row.depth for row in result.comparison.shared] == ["1-1"]


def test_wanted_depths_only_where_a_model_has_them(translator: Translator, tmp_path: Path) -> None:
    other = save_model(tmp_path / "other", layers=1)
    both = {"two": translator, "one": other}
    result = sweep(both, SOURCES, REFERENCES, RunOptions(repeats=1, samples=20), depths=["2-2", "1-1"])
    assert [[one.depth for one in model.depths] for model in result.models] == [["2-2", "1-1"], ["1-1"]]
    with pytest.raises(UserError, match="no depth 2-2"):
        sweep(both, SOURCES, REFERENCES, RunOptions(repeats=1), depths=["2-2"])
    with pytest.raises(UserError, match="no depth 3-1"):
        sweep(both, SOURCES, REFERENCES, RunOptions(repeats=1), depths=["1-1", "3-1"])


@pytest.mark.parametrize(
    ("sources", "references", "message"),
    [(["a", "b"], ["a"], "source has 2 lines but the reference has 1"), ([], [], "no lines")],
)
def test_bad_test_sets(translator: Translator, sources: list[str], references: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        sweep({"small": translator}, sources, references)


def test_measurements_go_into_the_model_folder(translator: Translator) -> None:
    result = run(translator)
    assert translator.folder is not None
    assert record_sweep(translator, result)
    menu = Translator.load(translator.folder, engine="torch", device="cpu").menu
    for one in result.models[0].depths:
        assert menu[one.depth].quality["bleu"] == one.bleu
        assert menu[one.depth].cost["seconds_per_sentence"] == one.seconds_per_sentence
    assert menu.measured_on["test_set"] == "test.en"
    assert menu.measured_on["batch_size"] == 4


def test_a_partial_sweep_joins_only_measurements_made_alike(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    record_sweep(translator, run(translator))
    again = run(translator, ["1-1"])
    assert record_sweep(translator, again)
    assert translator.menu["1-1"].cost["seconds_per_sentence"] == again.models[0].depths[0].seconds_per_sentence
    caplog.clear()
    assert not record_sweep(translator, run(translator, ["1-1"], batch_size=2))
    assert len(caplog.messages) == 1
    assert translator.menu.measured_on["batch_size"] == 4


def test_a_folder_that_cannot_be_written_is_one_warning(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    result = run(translator)
    assert translator.folder is not None
    # A folder in the file's place fails for every user, root included, whom a read-only folder would not stop.
    (translator.folder / "depths.json").unlink()
    (translator.folder / "depths.json").mkdir()
    assert not record_sweep(translator, result)
    (message,) = caplog.messages
    assert message.startswith("warning: ")

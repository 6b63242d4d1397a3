"""Several models under one label, and models at depths that they were not trained for."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from saved_models import REFERENCES, SOURCES, save_model

from anydepth.cli.options import families
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.render import to_html
from anydepth.evaluate.sweep import record_sweep, sweep
from anydepth.evaluate.sweep_report import sweep_report
from anydepth.infer.translator import Translator
from anydepth.progress import show_progress

FULL_1, FULL_2 = DepthMenu.of([SubNetwork.prefix(1, 1)]), DepthMenu.of([SubNetwork.prefix(2, 2)])


def test_a_family_has_the_depths_of_its_members_shallow_to_deep(tmp_path: Path) -> None:
    one, two = save_model(tmp_path / "1-1", 1, FULL_1), save_model(tmp_path / "2-2", 2, FULL_2)
    everything = save_model(tmp_path / "all", 2)
    result = sweep(
        {"individual": [two, one], "flexible": everything}, SOURCES, REFERENCES, RunOptions(repeats=1, samples=20)
    )
    family = result.model("individual").depths
    assert [cell.depth for cell in family] == ["1-1", "2-2"]
    assert [cell.parameters for cell in family] == [one.parameters(), two.parameters()]
    assert list(family[0].outputs) == one.translate(SOURCES)
    assert list(family[1].outputs) == two.translate(SOURCES)
    assert result.comparison is not None
    assert [row.depth for row in result.comparison.shared] == ["1-1", "2-2"]


def test_each_member_remembers_its_own(tmp_path: Path) -> None:
    members = [save_model(tmp_path / "1-1", 1, FULL_1), save_model(tmp_path / "2-2", 2, FULL_2)]
    result = sweep({"individual": members}, SOURCES, REFERENCES, RunOptions(repeats=1))
    assert all(record_sweep(member, result, "individual") for member in members)
    for member, cell in zip(members, result.models[0].depths, strict=True):
        assert member.folder is not None
        menu = Translator.load(member.folder, engine="torch", device="cpu").menu
        assert menu.names == [cell.depth]
        assert menu[cell.depth].cost["seconds_per_sentence"] == cell.seconds_per_sentence


def test_a_member_that_was_not_measured_remembers_nothing(tmp_path: Path) -> None:
    one, two = save_model(tmp_path / "1-1", 1, FULL_1), save_model(tmp_path / "2-2", 2, FULL_2)
    result = sweep({"individual": [one, two]}, SOURCES, REFERENCES, RunOptions(repeats=1), depths=["2-2"])
    assert not record_sweep(one, result, "individual")
    assert record_sweep(two, result, "individual")
    assert one.menu.measured_on == {}


def test_two_members_of_one_depth_are_refused(tmp_path: Path) -> None:
    one, two = save_model(tmp_path / "one", 1), save_model(tmp_path / "two", 2)
    with pytest.raises(UserError, match=r"family: .*one and .*two both have depth 1-1: keep one"):
        sweep({"family": [one, two]}, SOURCES, REFERENCES)
    result = sweep({"family": [one, two]}, SOURCES, REFERENCES, RunOptions(repeats=1), depths=["2-2"])
    assert [cell.depth for cell in result.models[0].depths] == ["2-2"]


def test_forced_depths_replace_the_menu_and_are_not_remembered(tmp_path: Path) -> None:
    vanilla = save_model(tmp_path / "vanilla", 4, DepthMenu.of([SubNetwork.prefix(4, 4)]))
    result = sweep({"vanilla": vanilla}, SOURCES, REFERENCES, RunOptions(repeats=1), force="left")
    assert result.labels == ["vanilla (forced left)"]
    assert [cell.depth for cell in result.models[0].depths] == [f"{n}-{m}" for n in (1, 2, 4) for m in (1, 2, 4)]
    vanilla_alone = sweep({"vanilla": vanilla}, SOURCES, REFERENCES, RunOptions(repeats=1))
    assert result.models[0].depths[-1].outputs == vanilla_alone.models[0].depths[0].outputs
    assert vanilla.menu.names == ["4-4"]
    assert not record_sweep(vanilla, result)
    assert "forced: the models ran at the depths of the strategy left" in to_html(sweep_report(result))


def test_what_cannot_be_forced(tmp_path: Path) -> None:
    one = save_model(tmp_path / "one", 1)
    with pytest.raises(UserError, match="no strategy 'best'"):
        sweep({"one": one}, SOURCES, REFERENCES, force="best")
    with pytest.raises(UserError, match="force single models"):
        sweep({"family": [one, one]}, SOURCES, REFERENCES, force="left")
    with pytest.raises(UserError, match="at least one model"):
        sweep({"family": []}, SOURCES, REFERENCES)


def test_without_a_terminal_progress_is_a_line_for_each_tenth(tmp_path: Path) -> None:
    said = io.StringIO()
    model = save_model(tmp_path / "two", 2)
    show_progress(Console(file=said))
    try:
        sweep({"two": model}, SOURCES, REFERENCES, RunOptions(repeats=2), depths=["1-1", "2-2"])
    finally:
        show_progress(Console(quiet=True))
    lines = said.getvalue().splitlines()
    assert lines[-1] == "sweep of 2 depths: 24 of 24"
    assert 1 < len(lines) <= 10


def test_arguments_name_models_and_families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rate=3,seed=1").mkdir()
    run = tmp_path / "runs" / "flexible" / "model"
    run.mkdir(parents=True)
    (run.parent / "recipe.json").touch()
    assert families(["individual=a/1-1,a/2-2", f"{run}", "rate=3,seed=1", "named=rate=3,seed=1"]) == {
        "individual": [Path("a/1-1"), Path("a/2-2")],
        "flexible": [run],
        "rate=3,seed=1": [Path("rate=3,seed=1")],
        "named": [Path("rate=3,seed=1")],
    }
    assert list(families(["x/run", "run=y"])) == ["run (1)", "run (2)"]
    assert len(families(["long=" + ",".join(f"folder-number-{i}" for i in range(40))])["long"]) == 40


@pytest.mark.parametrize("argument", ["name=", "=path", "name=a,,b", "name=a,"])
def test_arguments_that_name_no_model(argument: str) -> None:
    with pytest.raises(UserError, match="write NAME=PATH"):
        families([argument])

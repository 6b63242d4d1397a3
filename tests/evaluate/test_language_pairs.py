"""What is measured of one language pair stays apart from what is measured of another."""

import json
import shutil

import pytest
from conftest import toy_pairs

import anydepth
from anydepth.artifact.card import model_card
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import calibrate
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.kept_outputs import outputs_key
from anydepth.evaluate.sweep import record_sweep, sweep
from anydepth.infer.distill import DistillOptions, distill
from anydepth.selectors import calibration

SOURCES, ENGLISH = map(list, zip(*toy_pairs(12, 5), strict=True))
LOUD = [line.upper() for line in ENGLISH]


@pytest.fixture
def folder(two_targets_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return shutil.copytree(two_targets_run / "model", tmp_path / "model")


def sweep_pair(folder, target, references, depths=None):
    translator = anydepth.load(folder, engine="torch").between(target=target)
    options = RunOptions(source_name=target, repeats=1)
    result = sweep({"toy": translator}, SOURCES, references, options, depths=depths)
    assert record_sweep(translator, result)
    return result.models[0].depths


@pytest.mark.slow
def test_a_sweep_of_one_pair_does_not_erase_the_other(folder):
    whole = anydepth.load(folder, engine="torch").menu.names
    quiet = sweep_pair(folder, "en", ENGLISH)
    loud = sweep_pair(folder, "loud", LOUD, ["2-2"])
    menu = anydepth.load(folder, engine="torch").menu
    assert menu.names == whole == ["1-1", "1-2", "2-1", "2-2"]
    assert [entry.quality["bleu"] for entry in menu.of_pair("fr-en")] == [one.bleu for one in quiet]
    assert menu.of_pair("fr-loud")["2-2"].quality["bleu"] == loud[0].bleu > 50
    assert not menu.of_pair("fr-loud")["1-1"].quality
    assert (menu.of_pair("fr-en").measured_on["test_set"], menu.of_pair("fr-loud").measured_on["test_set"]) == (
        "en",
        "loud",
    )
    assert not menu["2-2"].quality


@pytest.mark.slow
def test_the_card_has_a_table_for_each_pair(folder):
    quiet = sweep_pair(folder, "en", ENGLISH)
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlanguage:\n- fr\n- en\n- loud\n")
    assert "# fr to en, loud, any depth" in card
    assert "for 2 language pairs" in card
    assert '"this folder", source_language="fr", target_language="en")\nt.translate("...", depth="1-1")' in card
    of_english, of_loud = card.split("### fr to en\n")[1].split("### fr to loud\n")
    assert f"| 2-2 | {quiet[-1].bleu:.1f} |" in of_english
    assert "1-1, 1-2, 2-1, 2-2 (encoder-decoder). Not measured yet" in of_loud
    record = json.loads((folder / "config.json").read_text())
    assert model_card(record, anydepth.load(folder, engine="torch").menu) == card


@pytest.mark.slow
def test_calibrations_of_two_pairs_stand_side_by_side(folder):
    both = anydepth.load(folder, engine="torch")
    for target, references in (("en", ENGLISH), ("loud", LOUD)):
        one = both.between(target=target)
        found = calibrate(one, SOURCES, references, RunOptions(repeats=1, reference_name=target))
        calibration.save(found, folder, one.fingerprint)
    for target in ("en", "loud"):
        one = both.between(target=target)
        selector = one.within_budget("1000s")
        assert selector.measured_on == target
        assert min(selector.usual_lengths) == 1 + min(len(ids) for ids in both.tokenizer.encode_many(SOURCES)) + 1
    assert [one.conditions.pair for one in calibration.of_machine(folder, both.fingerprint)] in (
        ["fr-en", "fr-loud"],
        ["fr-loud", "fr-en"],
    )


@pytest.mark.slow
def test_how_to_calibrate_names_the_pair(folder):
    with pytest.raises(UserError, match=r"anydepth calibrate .* --from fr --to loud --engine torch`"):
        anydepth.load(folder, engine="torch").between(target="loud").within_budget("20ms")


def test_a_calibration_of_one_pair_says_nothing_of_pairs(toy_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain = anydepth.load(toy_run, engine="torch")
    found = calibrate(plain, SOURCES[:4], ENGLISH[:4], RunOptions(repeats=1))
    path = calibration.save(found, tmp_path, plain.fingerprint)
    assert "pair" not in json.loads(path.read_text())["records"][0]["calibration"]["conditions"]


@pytest.mark.slow
def test_kept_outputs_of_two_pairs_have_two_keys(folder):
    both = anydepth.load(folder, engine="torch")
    keys = {outputs_key(both.between(target=target), "2-2", SOURCES, {"beam": 1}) for target in ("en", "loud")}
    assert len(keys) == 2


@pytest.mark.slow
def test_distilling_into_another_language_is_other_work(folder, tmp_path):
    both, out = anydepth.load(folder, engine="torch"), tmp_path / "out"
    source = tmp_path / "source"
    source.write_text("".join(f"{line}\n" for line in SOURCES))
    options = DistillOptions(beam=1)
    counts = distill(both.between(target="loud"), source, out, options, None)
    assert counts.kept > 0
    lines = (out / "distilled.loud").read_text().splitlines()
    assert lines == [line.upper() for line in lines]
    with pytest.raises(UserError, match="begun with other languages: give the same"):
        distill(both.between(target="en"), source, out, options, None)

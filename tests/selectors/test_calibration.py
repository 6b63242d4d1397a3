import io
import json
import os
import platform
import shutil
from dataclasses import replace

import pytest
from conftest import save_changed, toy_pairs
from rich.console import Console
from watched_engine import WatchedEngine

import anydepth
from anydepth.errors import UserError
from anydepth.evaluate.calibrate import calibrate, spread
from anydepth.evaluate.experiment import RunOptions
from anydepth.evaluate.metrics import score
from anydepth.selectors.calibration import (
    NAME,
    Calibration,
    CalibrationConditions,
    DepthCost,
    LengthCost,
    find,
    machine_key,
    of_machine,
    refuse_newer,
    save,
)

FINGERPRINT, OTHER_WEIGHTS = "a" * 64, "b" * 64
HERE = {"device": "cpu", "threads": 2, "beam": 1}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def made(base=0.01, **conditions):
    known = CalibrationConditions(
        machine_key(), "cpu", 2, 1, 0.6, 32, 31.5, 3, 200, 500, "dev.fr", "dev.en", "2026-01-01T00:00:00+00:00"
    )
    depth = DepthCost(LengthCost(base, 0.001), LengthCost(base / 10, 0.0001), {"bleu": 30.5, "chrf": 50.0})
    return Calibration(replace(known, **conditions), {3: 2, 9: 1}, {"1-1": depth, "2-2": depth})


# the file


def test_what_is_saved_is_found(folder):
    path = save(made(), folder, FINGERPRINT)
    assert path == folder / NAME
    assert find(folder, FINGERPRINT, **HERE) == made()
    assert made().mean_length == 5


def test_it_does_not_tell_which_machine_it_was(folder):
    text = save(made(), folder, FINGERPRINT).read_text("utf-8")
    assert platform.node() not in text
    assert machine_key() == machine_key()
    assert len(machine_key()) == 16


def test_records_of_other_machines_and_conditions_stay_and_do_not_count(folder):
    others = [made(machine="f" * 16), made(beam=4), made(threads=1), made(device="cuda:0")]
    for one in [made(), *others, made(base=0.5)]:
        save(one, folder, FINGERPRINT)
    assert find(folder, FINGERPRINT, **HERE) == made(base=0.5)
    assert find(folder, FINGERPRINT, **HERE | {"beam": 4}) == others[1]
    assert find(folder, FINGERPRINT, **HERE | {"threads": 3}) is None
    records = json.loads((folder / NAME).read_text("utf-8"))["records"]
    assert [one["calibration"]["conditions"]["machine"] == "f" * 16 for one in records] == [True, *[False] * 4]


def test_a_calibration_of_other_weights_does_not_count(folder):
    save(made(), folder, OTHER_WEIGHTS)
    assert find(folder, FINGERPRINT, **HERE) is None
    save(made(), folder, FINGERPRINT)
    assert find(folder, OTHER_WEIGHTS, **HERE) is None  # those weights are gone from this folder


def test_the_newest_of_folder_and_cache(folder):
    old, new = (made(date=f"{year}-01-01T00:00:00+00:00") for year in (2026, 2027))
    save(old, folder, FINGERPRINT)
    cached = save(new, None, FINGERPRINT)
    assert cached.parent.parent.name == "anydepth"
    assert cached.name == f"{FINGERPRINT}.json"
    assert find(folder, FINGERPRINT, **HERE) == new
    save(replace(new, conditions=replace(new.conditions, date="2028-01-01T00:00:00+00:00")), folder, FINGERPRINT)
    assert [one.conditions.date[:4] for one in of_machine(folder, FINGERPRINT)] == ["2028", "2027"]


def test_nothing_there(folder):
    assert find(folder, FINGERPRINT, **HERE) is None
    assert find(None, FINGERPRINT, **HERE) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"format": 1}',
        '{"records": []}',
        '{"format": "1", "records": []}',
        '{"format": 1, "records": [{}]}',
    ],
)
def test_a_damaged_file_is_one_line_and_the_next_calibration_mends_it(folder, text):
    (folder / NAME).write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"calibration\.json is damaged: run `anydepth calibrate` again"):
        find(folder, FINGERPRINT, **HERE)
    refuse_newer(folder, FINGERPRINT)
    save(made(), folder, FINGERPRINT)
    assert find(folder, FINGERPRINT, **HERE) == made()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("depths", "1-1", "single", "base"), -1),
        (("depths", "1-1", "single", "per_token"), float("nan")),
        (("depths", "1-1", "quality"), {"chrf": 1.0}),
        (("depths", "1-1", "quality", "bleu"), "high"),
        (("conditions", "sentences_per_batch"), 0),
        (("lengths", "3"), -2),
    ],
)
def test_figures_that_cannot_be_are_damage(folder, keys, value):
    path = save(made(), folder, FINGERPRINT)
    content = json.loads(path.read_text("utf-8"))
    *parents, last = keys
    place = content["records"][0]["calibration"]
    for key in parents:
        place = place[key]
    assert last in place
    place[last] = value
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(UserError, match="damaged"):
        find(folder, FINGERPRINT, **HERE)


def test_a_file_of_a_newer_version_is_left_alone(folder):
    text = json.dumps({"format": 2, "records": "who knows"})
    (folder / NAME).write_text(text, "utf-8")
    for attempt in (
        lambda: find(folder, FINGERPRINT, **HERE),
        lambda: save(made(), folder, FINGERPRINT),
        lambda: refuse_newer(folder, FINGERPRINT),
    ):
        with pytest.raises(UserError, match="newer anydepth"):
            attempt()
    assert (folder / NAME).read_text("utf-8") == text


def test_only_a_lack_of_permission_leads_to_the_cache(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="File exists"):
        save(made(), tmp_path / "file", FINGERPRINT)
    assert find(None, FINGERPRINT, **HERE) is None


# measuring


@pytest.fixture
def translator(toy_run):
    return anydepth.load(toy_run, engine="torch")


def measured(translator, sources, references, timing_sentences=200, **options):
    run = RunOptions(**{"repeats": 2, **options})
    return calibrate(translator, sources, references, run, timing_sentences=timing_sentences)


def test_every_depth_is_timed_and_scored_on_all_lines(translator, monkeypatch):
    said = Console(file=io.StringIO(), width=200)
    monkeypatch.setattr("anydepth.progress._given", said)
    monkeypatch.setattr("anydepth.progress._shown", True)
    sources, references = map(list, zip(*toy_pairs(20, seed=3), strict=True))
    sources[4] = references[4] = ""
    found = measured(
        translator, sources, references, batch_size=4, timing_sentences=5, source_name=f"{os.sep}x{os.sep}dev.fr"
    )
    assert list(found.depths) == translator.menu.names
    for name, one in found.depths.items():
        quality = score(translator.translate(sources, depth=name), references)
        assert one.quality == {"bleu": quality.bleu, "chrf": quality.chrf}
        assert one.single.at(found.mean_length) > 0
        assert one.batched.at(found.mean_length) > 0
    lengths = [len(translator.tokenizer.encode(source)) + 1 for source in sources if source]
    assert found.lengths == {length: lengths.count(length) for length in sorted(set(lengths))}
    assert found.mean_length == pytest.approx(sum(lengths) / 19)
    conditions = found.conditions
    assert (conditions.lines, conditions.timed_sentences, conditions.source_file) == (20, 5, "dev.fr")
    assert conditions.sentences_per_batch == pytest.approx(19 / 5)
    assert conditions.machine == machine_key()
    assert said.file.getvalue().splitlines()[-1] == "calibrate: 192 of 192"


def test_a_pass_goes_round_all_depths_before_the_next(translator):
    depths = []
    watched = translator.on(WatchedEngine(translator.engine, lambda depth, size: depths.append((depth, size))))
    measured(watched, ["le chat.", "un chien."], ["the cat.", "a dog."], batch_size=2, timing_sentences=1)
    one_by_one, batches = ([(name, size) for name in translator.menu.names] for size in (1, 2))
    warm_up = [call for pair in zip(batches, one_by_one, strict=True) for call in pair]
    assert depths == [*warm_up, *one_by_one, *batches, *one_by_one, *batches]


def test_weights_decide_which_calibration_is_whose(toy_run, tmp_path):
    save_changed(toy_run, tmp_path / "changed")
    shutil.copytree(toy_run / "model", tmp_path / "same")
    fingerprints = [
        anydepth.load(path, engine="torch").fingerprint for path in (toy_run, tmp_path / "same", tmp_path / "changed")
    ]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    save(made(), tmp_path / "same", fingerprints[0])
    shutil.copy(tmp_path / "same" / NAME, tmp_path / "changed" / NAME)
    assert find(tmp_path / "same", fingerprints[1], **HERE) == made()
    assert find(tmp_path / "changed", fingerprints[2], **HERE) is None


@pytest.mark.parametrize(
    ("sources", "references", "message"),
    [
        (["a", "b"], ["a"], "source has 2 lines but the reference has 1"),
        ([], [], "no lines"),
        (["", " "], ["", ""], "no lines"),
        (["le chat.", "le " * 90], ["", ""], r"line 2 of the source has \d+ subwords, the limit is 63"),
    ],
)
def test_bad_calibration_sets(translator, sources, references, message):
    with pytest.raises(UserError, match=message):
        measured(translator, sources, references)


@pytest.mark.parametrize("options", [{"beam": 0}, {"batch_size": 0}, {"length_penalty": 99.0}, {"timing_sentences": 0}])
def test_bad_options(translator, options):
    with pytest.raises(UserError):
        measured(translator, ["le chat."], ["the cat."], **options)


def test_a_sample_is_spread_over_all_lengths():
    by_length = list(range(1000))
    assert spread(by_length, 5) == [0, 250, 500, 749, 999]
    assert spread(by_length, 1) == [500]
    assert spread(by_length, 2) == [0, 999]
    assert spread(by_length, 1000) == spread(by_length, 5000) == by_length
    assert len(set(spread(by_length, 999))) == 999

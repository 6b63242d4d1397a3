"""The studies: every arm can be read, the runner goes on where it stopped, and the page says how far arms have come."""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import forked
import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "studies"))

import claims  # noqa: E402
import records  # noqa: E402
import run  # noqa: E402
import tables  # noqa: E402

from anydepth.config.reading import check_sections, read_recipe  # noqa: E402
from anydepth.training.build import make_recipe_objective  # noqa: E402

FOLDERS = run.Folders(Path("/runs"), Path("/data"), Path("/records"))


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.key)
def test_every_arm_is_a_recipe(claim):
    for arm in claim.arms:
        changes = [FOLDERS.fill(run.BEST.sub("0.5", change), claim) for change in arm.changes]
        found = read_recipe(ROOT / arm.recipe, changes)
        assert "{" not in json.dumps([str(found.data.tokenizer), str(found.init_from)])
        assert found.train.valid_every * 4 <= found.train.steps, arm.name  # or nothing is known of the last quarter
        assert found.train.warmup < found.train.steps / 2
        assert found.teacher is None or not found.teacher.idle_keys()
        if found.init_from is None:  # which has a model of its own
            check_sections(found)
            assert make_recipe_objective(found).warnings(found.train.steps) == [], arm.name


def test_what_is_needed_comes_before_and_names_are_unique():
    for claim in claims.CLAIMS:
        names = [item.name for item in claim.work]
        assert len(set(names)) == len(names)
        for place, item in enumerate(claim.work):
            before = set(names[:place])
            if isinstance(item, claims.Comparison):
                assert set(item.arms) <= before, (claim.key, item.name)
            else:
                assert set(item.needs) <= before, (claim.key, item.name)
                assert isinstance(item, claims.Step) or set(item.after) <= before, (claim.key, item.name)


def test_claims_that_share_a_folder_have_the_same_arms_in_it():
    arms = {}
    for claim in claims.CLAIMS:
        for arm in claim.arms:
            assert arms.setdefault((claim.folder, arm.name), arm) == arm


def test_the_page_has_every_claim_and_what_counts_as_shown():
    page = (ROOT / "docs" / "studies.md").read_text("utf-8")
    for claim in claims.CLAIMS:
        assert claim.title in page
        assert claim.shown in page
    assert tables.studies_page(claims.CLAIMS, ROOT / "nowhere", ROOT / "nowhere").count("**open**") >= len(
        claims.CLAIMS
    )


def test_when_a_run_is_at_its_plateau():
    assert records.last_fall([100, 200, 300, 400], [5.0, 4.0, 3.0, 2.97]) == pytest.approx(0.01)
    assert records.last_fall([400], [2.0]) is None
    flat, falling = (records.RunState(400, 2.97, fall, finished=True) for fall in (0.01, 0.03))
    assert (flat.words, flat.is_conclusive) == ("plateau", True)
    assert (falling.words, falling.is_conclusive) == ("still falling", False)
    stuck = replace(falling, on_unigram_plateau=True)
    assert (stuck.words, stuck.is_conclusive) == ("unigram plateau", True)
    assert records.RunState(12).words == "at update 12"
    assert records.RunState().words == "not begun"
    assert records.RunState(12, diverged=True).is_conclusive


PROGRAM = """\
import sys
sys.path[:0] = [{studies!r}]
from claims import Arm, Claim, Comparison, TestSet
import run
work = (
    Arm("one", {recipe!r}, {changes!r}, 2),
    Arm("taught", {recipe!r}, (*{changes!r}, "teacher={{model: {{out}}/one/seed-1, method: rkd}}"), 1, ("one",)),
    Comparison("both", ("one", "taught"), "2-2"),
)
test = TestSet({source!r}, {target!r})
claim = Claim("toy", "Toys learn", "a paper", "a setting", "Something.", work, test=test)
waits = Claim("waits", "Others wait", "a paper", "a setting", "Nothing.", work, ("{{data}}/not-there.txt",))
if __name__ == "__main__":
    sys.exit(run.main(sys.argv[1:], (claim, waits)))
"""


@pytest.fixture
def in_this_process(monkeypatch, capsys):
    """The runner without a process of its own, its jobs in processes that are forked: to start one takes seconds."""

    def start(words, stdout, stderr, **how):
        assert words[:3] == [sys.executable, "-m", "anydepth"]
        with open(os.devnull, "rb") as nothing:
            return forked.start(words[3:], nothing.fileno(), stdout.fileno(), stderr.fileno())

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(run, "subprocess", SimpleNamespace(Popen=start))

    def call(program, *arguments):
        found = runpy.run_path(str(program))
        capsys.readouterr()
        assert run.main(arguments, (found["claim"], found["waits"])) == 0
        return capsys.readouterr().out

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.slow
def test_the_runner_stops_and_goes_on(toy_recipe, tmp_path, in_this_process):
    """Interrupted while the first arm trains, then carried to its end; a third time there is nothing left to do."""
    recipe = yaml.safe_load(Path(toy_recipe).read_text("utf-8"))
    files = {side: str(Path(recipe["data"]["train"][side]).resolve()) for side in ("source", "target")}
    lines = {side: Path(path).read_text("utf-8").splitlines()[:20] for side, path in files.items()}
    for side, few in lines.items():
        (tmp_path / side).write_text("".join(f"{line}\n" for line in few), "utf-8")
    changes = ("train.steps=40", "train.valid_every=10", "train.checkpoint_every=10", "train.log_every=5")
    program = tmp_path / "toys.py"
    known = {"source": str(tmp_path / "source"), "target": str(tmp_path / "target"), "recipe": str(toy_recipe)}
    program.write_text(PROGRAM.format(studies=str(ROOT / "studies"), changes=(*changes, "train.warmup=5"), **known))
    out, page = tmp_path / "out", tmp_path / "page.md"
    kept = tmp_path / "records"
    options = ["--out", str(out), "--page", str(page), "--jobs", "1", "--records", str(kept)]

    first = subprocess.Popen([sys.executable, str(program), *options], stdout=subprocess.PIPE, text=True)
    while not list(out.glob("toy/one/seed-*/checkpoints/step-*/state.json")):
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    said = first.communicate()[0]
    assert first.returncode == 130
    assert "stopped toy/one/seed-" in said
    assert "the same command goes on" in said
    assert "waits waits for 1 files such as" in said
    assert "**open**: 0 of 3 runs" in page.read_text("utf-8")

    done = in_this_process(program, *options)
    assert "finished toy/taught/seed-1/test" in done
    logs = "".join(path.read_text("utf-8") for path in (out / "toy" / "logs").glob("one-*.txt"))
    assert "resuming from step" in logs
    written = page.read_text("utf-8")
    assert "| `one` | 2 of 2 | 40 |" in written
    assert "`both`: test set at 2-2" in written
    assert "| `taught` | 1 |" in written
    again = in_this_process(program, *options, "toy")
    assert "begins" not in again
    shutil.rmtree(out)  # as on another machine: the records are all that is needed
    elsewhere = in_this_process(program, *options, "toy")
    assert "begins" not in elsewhere
    assert page.read_text("utf-8") == written
    (kept / "toy" / "taught" / "seed-1.json.gz").unlink()  # and what one needs is trained again
    once_more = in_this_process(program, *options, "toy")
    assert "finished toy/one/seed-1\n" in once_more
    assert "toy/one/seed-2" not in once_more
    assert "finished toy/taught/seed-1/test" in once_more


def test_the_best_setting_is_that_of_the_lowest_validation_loss(tmp_path):
    for value, loss in (("0.1", 2.0), ("0.3", 1.5), ("0.7", 1.7)):
        record = records.RunRecord(records.RunState(nll=loss, finished=True), {"deepest": [value]})
        record.save(records.record_path(tmp_path / "ckd", f"pkd-lambda-{value}", 1))
    claim = next(one for one in claims.CLAIMS if one.key == "ckd")
    folders = run.Folders(Path("/runs"), Path("/data"), tmp_path)
    assert folders.fill("lambda: {best pkd-lambda}", claim) == "lambda: 0.3"
    assert folders.fill("lambda: {best rkd-lambda}", claim) == "lambda: ?"
    kept = records.RunRecord.load(records.record_path(tmp_path / "ckd", "pkd-lambda-0.3", 1))
    assert kept.outputs == {"deepest": ["0.3"]}

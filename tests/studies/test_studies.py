"""The studies: every arm can be read, the runner goes on where it stopped, and the page says how far arms have come."""

import json
import os
import runpy
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
import run  # noqa: E402
import tables  # noqa: E402

from anydepth.config.reading import check_sections, read_recipe  # noqa: E402
from anydepth.training.build import make_recipe_objective  # noqa: E402

FOLDERS = run.Folders(Path("/runs"), Path("/data"))


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.key)
def test_every_arm_is_a_recipe(claim):
    for arm in (item for item in claim.work if isinstance(item, claims.Arm)):
        found = read_recipe(ROOT / arm.recipe, [FOLDERS.fill(change, claim) for change in arm.changes])
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
            assert set(item.needs) <= set(names[:place]), (claim.key, item.name)


def test_the_page_has_every_claim_and_what_counts_as_shown():
    page = (ROOT / "docs" / "studies.md").read_text("utf-8")
    for claim in claims.CLAIMS:
        assert claim.title in page
        assert claim.shown in page
    assert tables.studies_page(claims.CLAIMS, ROOT / "nowhere").count("**open**") >= len(claims.CLAIMS)


def test_when_a_run_is_at_its_plateau():
    assert tables.last_fall([100, 200, 300, 400], [5.0, 4.0, 3.0, 2.97]) == pytest.approx(0.01)
    assert tables.last_fall([400], [2.0]) is None
    flat, falling = (tables.RunState(400, 2.97, fall, finished=True) for fall in (0.01, 0.03))
    assert (flat.words, flat.is_conclusive) == ("plateau", True)
    assert (falling.words, falling.is_conclusive) == ("still falling", False)
    stuck = replace(falling, on_unigram_plateau=True)
    assert (stuck.words, stuck.is_conclusive) == ("unigram plateau", True)
    assert tables.RunState(12).words == "at update 12"
    assert tables.RunState().words == "not begun"
    assert tables.RunState(12, diverged=True).is_conclusive


PROGRAM = """\
import sys
sys.path[:0] = [{studies!r}]
from claims import Arm, Claim, Step
import run
test = ("--source", {source!r}, "--reference", {target!r})
work = (
    Arm("one", {recipe!r}, {changes!r}, 2),
    Arm("taught", {recipe!r}, (*{changes!r}, "teacher={{model: {{out}}/one/seed-1, method: rkd}}"), 1, ("one",)),
    Step("both", ("compare", "one={{out}}/one/seed-1,{{out}}/one/seed-2", "taught={{out}}/taught/seed-1", *test,
         "--over-seeds", "--out", "{{out}}/report"), "{{out}}/report/compare.json", ("one", "taught")),
)
claim = Claim("toy", "Toys learn", "a paper", "a setting", "Something.", work)
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
    options = ["--out", str(out), "--page", str(page), "--jobs", "1"]

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
    assert "finished toy/both" in done
    logs = "".join(path.read_text("utf-8") for path in (out / "toy" / "logs").glob("one-*.txt"))
    assert "resuming from step" in logs
    written = page.read_text("utf-8")
    assert "| `one` | 2 of 2 | 40 |" in written
    assert "| taught |" in written
    again = in_this_process(program, *options, "toy")
    assert "begins" not in again

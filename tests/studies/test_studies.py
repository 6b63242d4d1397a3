"""The studies: every arm can be read, a study goes on where it stopped, and the page says how far arms have come."""

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
import typer
import yaml

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "studies"))

import claims  # noqa: E402
import comparisons  # noqa: E402
import plan  # noqa: E402
import records  # noqa: E402
import run  # noqa: E402
import step_tables  # noqa: E402
import study  # noqa: E402
import tables  # noqa: E402
import timing  # noqa: E402

from anydepth.cli import build_app  # noqa: E402
from anydepth.config.reading import check_sections, read_recipe  # noqa: E402
from anydepth.training.build import make_recipe_objective  # noqa: E402

FOLDERS = study.Folders(Path("/runs"), Path("/data"), Path("/records"))


def make_study(claim, folders=FOLDERS, among=claims.CLAIMS):
    return study.Study(claim, folders, among)


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.key)
def test_every_arm_is_a_recipe(claim):
    for arm in claim.arms:
        changes = [FOLDERS.fill(study.BEST.sub("0.5", change), claim) for change in arm.changes]
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
            if isinstance(item, plan.PlannedComparison):
                assert set(item.arms) <= before, (claim.key, item.name)
            else:
                assert set(item.needs) <= before, (claim.key, item.name)
                assert isinstance(item, plan.Step) or set(item.after) <= before, (claim.key, item.name)


def test_claims_that_share_a_folder_have_the_same_arms_in_it_and_nothing_shares_a_folder_else():
    arms, folders = {}, {}
    for claim in claims.CLAIMS:
        one = make_study(claim)
        for arm in claim.arms:
            assert arms.setdefault((claim.folder, arm.name), one.identity(arm)) == one.identity(arm)
            assert folders.setdefault(one.run(arm, 1).parent, arm.name) == arm.name
        for step in (item for item in claim.items if isinstance(item, plan.Step) and item.needs):
            assert folders.setdefault(one._makes(step), step) is step


def test_every_step_is_a_command_and_names_its_systems_once():
    known = {"": build_app(), "studies/timing.py": None}
    for step in {item for claim in claims.CLAIMS for item in claim.items if isinstance(item, plan.Step)}:
        if step.result:
            assert Path(step.makes).name in step_tables.TABLES
        named = [part.partition("=")[0] for part in step.command if "=" in part]
        assert len(set(named)) == len(named), step.name
        if (app := known[step.script]) is not None:
            group, words = typer.main.get_command(app), list(step.command)
            while hasattr(group, "commands"):
                group = group.commands[words.pop(0)]
            group.make_context(step.name, words)  # parses, and runs nothing


def test_every_arm_is_compared_at_depths_that_its_model_has():
    """Those that are not train to the plateau or not, teach, or are tried for the best lambda."""
    for claim in claims.CLAIMS:
        for arm in claim.arms if claim.test else ():
            changes = [FOLDERS.fill(study.BEST.sub("0.5", change), claim) for change in arm.changes]
            found = read_recipe(ROOT / arm.recipe, changes)
            tests = make_study(claim).tests(arm)
            alone = "lambda" in arm.name or arm.name.startswith(("teacher", "static-", "latent-", "fixed-"))
            assert bool(tests) != alone, (claim.key, arm.name)
            for depths in tests.values():
                if plan.ONLY in depths:
                    is_one = found.objective.name == "vanilla" or getattr(found.objective, "finish", "both") != "both"
                    assert (depths, is_one) == ([plan.ONLY], True), (claim.key, arm.name)
                else:
                    assert set(depths) <= set(make_recipe_objective(found).menu().names), (claim.key, arm.name)


def test_the_page_has_every_claim_and_what_counts_as_shown():
    page = (ROOT / "docs" / "studies.md").read_text("utf-8")
    for claim in claims.CLAIMS:
        assert claim.title in page
        assert claim.shown in page
    assert claims.COST in page
    empty = tables.studies_page([make_study(claim) for claim in claims.CLAIMS], claims.COST)
    assert empty.count("**open**") >= len(claims.CLAIMS)


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
from plan import Arm, Claim, Step, TestSet, compare_at
import run
test = TestSet({source!r}, {target!r})
timed = ("beam={{out}}/one/seed-1,2-2,2", "greedy={{out}}/one/seed-1,1-1,1", *test.options, "--out", "{{out}}/report")
work = (
    Arm("one", {recipe!r}, {changes!r}, 2),
    Arm("taught", {recipe!r}, (*{changes!r}, "teacher={{model: {{out}}/one/seed-1, method: rkd}}"), 1, ("one",)),
    compare_at("both", "2-2", ("one", "taught")),
    Step("time", timed, "{{out}}/report/timing.json", ("one",), True, alone=True, script="studies/timing.py"),
)
claim = Claim("toy", "Toys learn", "a paper", "a setting", "Something.", work, test=test)
waits = Claim("waits", "Others wait", "a paper", "a setting", "Nothing.", work, ("{{data}}/not-there.txt",))
if __name__ == "__main__":
    sys.exit(run.main(sys.argv[1:], (claim, waits)))
"""


@pytest.fixture
def in_this_process(monkeypatch, capsys):
    """The scheduler without a process of its own, its jobs in processes that are forked: to start one takes seconds."""

    def start(words, stdout, stderr, **how):
        if words[1] == str(ROOT / "studies" / "timing.py"):
            return subprocess.Popen(words, stdout=stdout, stderr=stderr)
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
    # Far more steps than any machine takes between the first checkpoint and the signal that follows it.
    changes = ("train.steps=240", "train.valid_every=60", "train.checkpoint_every=20", "train.log_every=60")
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
    assert "| `one` | 2 of 2 | 240 |" in written
    assert "`both`: test set at 2-2" in written
    assert "| `taught` | 2-2 | 1 |" in written
    assert "| `greedy` | 1-1 | 1 |" in written
    again = in_this_process(program, *options, "toy")
    assert "begins" not in again
    shutil.rmtree(out)  # as on another machine: the records are all that is needed
    elsewhere = in_this_process(program, *options, "toy")
    assert "begins" not in elsewhere
    assert page.read_text("utf-8") == written
    record = kept / "toy" / "taught" / "seed-1.json.gz"
    found = records.RunRecord.load(record)
    other = {key: replace(one, lines=["other", *one.lines[1:]]) for key, one in found.outputs.items()}
    replace(found, outputs=other).save(record)
    in_this_process(program, *options, "toy")
    compared = (kept / "toy" / "both.json").read_text("utf-8")
    record.unlink()  # and what one needs is trained again
    once_more = in_this_process(program, *options, "toy")
    assert "finished toy/one/seed-1\n" in once_more
    assert "toy/one/seed-2" not in once_more
    assert "finished toy/taught/seed-1/test" in once_more
    assert (kept / "toy" / "both.json").read_text("utf-8") != compared  # of the outputs of today
    assert page.read_text("utf-8") == written
    program.write_text(program.read_text().replace("train.warmup=5", "train.warmup=6"))
    changed = runpy.run_path(str(program))["claim"]
    folders = study.Folders(out, out / "data", kept)
    assert len(make_study(changed, folders, [changed]).outdated()) == 3


ARM = plan.Arm("plain", "recipes/studies/ckd.yaml", ("data.train={source: {data}/a, target: {data}/b}",))


def save(one, arm, seed, outputs, **state):
    made = {key: records.Outputs(key, one._checksum(one.claim.test), lines) for key, lines in outputs.items()}
    known = records.RunState(**{"step": 40, "nll": 2.0, "fall": 0.0, "finished": True, **state})
    records.RunRecord(one.identity(arm, seed), known, made).save(one._record_path(arm, seed))


@pytest.fixture
def compared(tmp_path):
    """Two arms with three seeds each, of which nothing is there yet."""
    for name, lines in (("source", ["eins zwei drei vier"] * 5), ("reference", ["one two three four"] * 5)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    test = plan.TestSet(str(tmp_path / "source"), str(tmp_path / "reference"))
    arms = ARM, replace(ARM, name="better", changes=(*ARM.changes, "train.learning_rate=1.0e-3"))
    work = (*arms, plan.compare_at("both", "2-2", ("plain", "better")))
    claim = plan.Claim("toy", "Toys learn", "a paper", "a setting", "Something.", work, test=test)
    return make_study(claim, study.Folders(tmp_path / "out", tmp_path / "data", tmp_path / "records"), [claim])


def test_a_record_counts_only_for_the_arm_that_made_it(compared, tmp_path):
    save(compared, ARM, 1, {"2-2": ["one two three four"] * 5})
    assert compared.record(ARM, 1) is not None
    moved = replace(compared, folders=replace(compared.folders, out=Path("/elsewhere"), data=Path("/other")))
    assert moved.record(ARM, 1) is not None
    changed = replace(ARM, changes=(*ARM.changes, "train.steps=7"))
    assert compared.record(changed, 1) is None
    assert compared.identity(ARM, 1) != compared.identity(ARM, 2)
    assert compared.outdated() == []
    deeper = replace(compared.claim, work=(*compared.claim.work, plan.compare_at("at", "1-1", ("plain", "better"))))
    incomplete = replace(compared, claim=deeper, claims=[deeper])
    assert incomplete.outdated() == ["toy/plain/seed-1"]  # it lacks a depth
    (tmp_path / "source").write_text("anders\n" * 5, "utf-8")
    assert compared.outdated() == ["toy/plain/seed-1"]
    (tmp_path / "source").unlink()  # where there is nothing to compare it with
    assert compared.record(ARM, 1) is not None


def test_what_an_arm_needs_is_part_of_what_it_is_made_by():
    def identity(steps):
        teacher = replace(ARM, name="teacher", changes=(*ARM.changes, f"train.steps={steps}"))
        taught = replace(ARM, name="taught", needs=("teacher",))
        claim = plan.Claim("toy", "Toys learn", "a paper", "a setting", "Something.", (teacher, taught))
        return make_study(claim, among=[claim]).identity(taught)

    assert identity(10) == identity(10) != identity(20)


def test_a_run_of_other_settings_is_set_aside(tmp_path):
    made = tmp_path / "seed-1"
    made.mkdir()
    (made / "weights").touch()
    run.set_aside(made, "now")
    assert not made.exists()
    assert (tmp_path / "seed-1.old" / "weights").exists()
    made.mkdir()
    run.set_aside(made, "now")
    assert made.exists()


GOOD, BAD = ["one two three four"] * 5, ["one two three five"] * 5


def test_seeds_that_diverged_are_counted_and_are_no_baseline(compared):
    better = compared.claim.arms[1]
    for seed in (1, 2, 3):
        save(compared, ARM, seed, {"2-2": BAD})
        diverged = {"finished": False, "diverged": True} if seed == 3 else {}
        save(compared, better, seed, {} if diverged else {"2-2": GOOD}, **diverged)
    comparisons.compare(compared)
    page = tables.studies_page([compared], "")
    assert "| `better` | 2-2 | 2 of 3, 1 diverged | 100.00 ± 0.00 | +" in page
    assert "nrefs:1|case:mixed" in page
    for seed in (1, 2, 3):
        save(compared, ARM, seed, {}, finished=False, diverged=True)
    assert comparisons.read_comparison(compared, compared.claim.comparisons[0]) is None  # of other outputs
    comparisons.compare(compared)
    page = tables.studies_page([compared], "")
    assert "| `plain` |  | 0 of 3, 3 diverged |  |  |  |" in page
    assert "There are no differences: all seeds of an arm of `plain`" in page


def test_a_mean_over_depths_is_compared_with_models_of_one_depth_each(compared):
    arms = [replace(ARM, name=name, changes=(*ARM.changes, name)) for name in ("one", "two", "all")]
    points = (plan.PlannedSystem("each", (("one", "1-1"), ("two", "2-2"))), plan.mean_over(("1-1", "2-2"), "all"))
    claim = replace(compared.claim, work=(*arms, plan.PlannedComparison("mean", points)))
    one = replace(compared, claim=claim, claims=[claim])
    for seed in (1, 2, 3):
        save(one, arms[0], seed, {"1-1": BAD})
        save(one, arms[1], seed, {"2-2": GOOD})
        save(one, arms[2], seed, {"1-1": GOOD, "2-2": GOOD})
    comparisons.compare(one)
    each, every = comparisons.read_comparison(one, claim.comparisons[0])["systems"]
    assert (each["seeds"], every["seeds"], every["bleu"]) == (6, 3, pytest.approx(100))
    assert every["difference"]["bleu"] == pytest.approx(100 - each["bleu"])
    assert "`mean`: test set mean over 1-1, 2-2" in tables.studies_page([one], "")


def test_a_diverged_seed_does_not_block_what_needs_all_and_diverged_ones_block_for_a_reason(compared):
    step = plan.Step("all", ("evaluate", "x={runs plain}"), "{out}/r/x.json", ("plain",), True, True, True)
    taught = replace(ARM, name="taught", changes=(*ARM.changes, "teacher={out}/plain/seed-1"), needs=("plain",))
    claim = replace(compared.claim, work=(*compared.claim.work, step, taught))
    one = replace(compared, claim=claim, claims=[claim])
    runs = {seed: one.run(ARM, seed) for seed in (1, 2, 3)}
    for seed, path in runs.items():
        save(one, ARM, seed, {}, finished=False, diverged=True) if seed == 1 else save(one, ARM, seed, {"2-2": GOOD})
        path.mkdir(parents=True)
        study.mark_path(path).write_text(one.identity(ARM, seed), "utf-8")
    assert one.blocked() == {"taught": "plain diverged"}
    labels = [job.label for job in one.jobs()]
    assert [label for label in labels if "plain" in label] == ["toy/plain/seed-2", "toy/plain/seed-3"]
    for seed in (2, 3):
        (runs[seed] / "finished.json").write_text('{"step": 40}', "utf-8")
    (job,) = (job for job in one.jobs() if job.label == "toy/all")
    assert job.arguments[-1] == f"x={runs[2]},{runs[3]}"
    assert job.alone
    assert "`taught` cannot run: plain diverged." in tables.studies_page([one], "")


def test_what_takes_times_runs_alone():
    scheduler = run.Scheduler([], 2)
    plain, timed = (study.Job(name, (), Path(name), alone=name == "timed") for name in ("plain", "timed"))
    assert [scheduler._has_room(job) for job in (plain, timed)] == [True, True]
    scheduler.running["plain"] = plain, None
    assert [scheduler._has_room(job) for job in (plain, timed)] == [True, False]
    scheduler.running = {"timed": (timed, None)}
    assert not scheduler._has_room(plain)


def test_a_training_that_diverged_is_no_failure(tmp_path, capsys):
    scheduler, log = run.Scheduler([], 1), tmp_path / "log.txt"
    log.write_text("bad\n", "utf-8")
    (tmp_path / "log.jsonl").write_text('{"kind": "train", "step": 1, "loss": 2.0}\n{"kind": "diverged", "step": 2}\n')
    scheduler._report(study.Job("one", (), log, run=tmp_path), 2)
    assert scheduler.failed == []
    scheduler._report(study.Job("two", (), log), 2)
    assert scheduler.failed == ["two"]
    assert "failed two: bad" in capsys.readouterr().out


def test_the_best_setting_is_that_of_the_lowest_validation_loss(tmp_path):
    claim = next(one for one in claims.CLAIMS if one.key == "ckd")
    one = make_study(claim, study.Folders(Path("/runs"), Path("/data"), tmp_path))
    for value, loss in (("0.1", 2.0), ("0.3", 1.5), ("0.7", 1.4)):
        arm = next(arm for arm in claim.arms if arm.name == f"post-all-pkd-lambda-{value}")
        save(one, arm, 1, {}, nll=loss, diverged=value == "0.7")
    assert one.choose("lambda: {best post-all-pkd-lambda}") == "lambda: 0.3"
    assert one.choose("lambda: {best layer-all-pkd-lambda}") == "lambda: ?"


def test_outputs_keep_line_separators_that_are_no_line_ends(tmp_path):
    data = tmp_path / "data" / "multi30k"
    data.mkdir(parents=True)
    for language in ("de", "en"):
        (data / f"train.{language}").write_text("".join(f"{n}\u2028x\n" for n in range(20)), "utf-8")
    run.make_tenth(tmp_path / "data")
    assert (data / "tenth.de").read_text("utf-8") == "0\u2028x\n10\u2028x\n"


def test_what_steps_found_is_shown():
    share = {"depth": "1-1", "encoder_layers": 1, "decoder_layers": 1, "share": 0.25}
    deeper = {**share, "encoder_layers": 2, "share": 0.75}
    choice = {"name": "2-1", "bleu": 30.0, "chrf": 50.0}
    oracle = {
        "models": [{"depths": [share, deeper], "choices": {"oracle": choice}}],
        "signatures": {"BLEU": "nrefs:1"},
    }
    step = plan.Step("oracle", (), "{out}/oracle.json")
    shown = "\n".join(step_tables.step_table(step, oracle))
    assert "| 1 | 25.0% |\n| 2 | 75.0% |" in shown
    assert "| oracle | 2-1 | 30.00 | 50.00 |" in shown
    mean, seconds = {"mean": 91.25, "deviation": 0.5}, {"1": {"mean": 0.01, "deviation": None}}
    setting = {"accuracy": mean, "mean_depth": mean, "seconds_per_text": seconds, "scale": None, "lambda": None}
    evaluation = {"systems": [{"system": "mi", **setting, "curve": [{**setting, "exit": "patience:2"}]}]}
    shown = "\n".join(step_tables.step_table(plan.Step("all", (), "{out}/evaluation.json"), evaluation))
    assert "| `mi` | as trained | 91.25 ± 0.50 | 91.25 ± 0.50 | 10.00 ms |" in shown
    assert "| `mi` | exit patience:2 |" in shown


def test_systems_are_timed_in_turn(toy_run, tmp_path, monkeypatch):
    for name in ("source", "reference"):
        (tmp_path / name).write_text("a b c d\n" * 3, "utf-8")
    files = ["--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference")]
    systems = [f"beam={toy_run},2-2,2", f"greedy={toy_run},1-1,1"]
    monkeypatch.setattr(sys, "argv", ["timing.py", *systems, *files, "--out", str(tmp_path / "out"), "--repeats", "2"])
    assert timing.main() == 0
    found = json.loads((tmp_path / "out" / "timing.json").read_text("utf-8"))
    assert [(one["name"], one["beam"], len(one["passes"])) for one in found["systems"]] == [
        ("beam", 2, 2),
        ("greedy", 1, 2),
    ]
    shown = "\n".join(step_tables.step_table(plan.Step("timing", (), "{out}/timing.json"), found))
    assert "| `beam` | 2-2 | 2 | 0.00 |  |  |" in shown
    assert "| `greedy` | 1-1 | 1 | 0.00 | +0.00 | +0.00 to +0.00 |" in shown
    monkeypatch.setattr(sys, "argv", ["timing.py", "greedy", *files, "--out", str(tmp_path / "out")])
    assert timing.main() == 2

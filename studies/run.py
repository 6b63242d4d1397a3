"""Runs the studies of claims.py: goes on with what is unfinished, stops cleanly, and writes docs/studies.md.

python studies/run.py [CLAIM ...] [--jobs 2] [--tables]

Every arm is a plain `anydepth train` at the lowest priority, which resumes exactly where it stopped, so this may be
interrupted at any time (Ctrl-C, or kill) and started again. A seed that has ended translates the test set and leaves a
record (records.py) in studies/records, which is part of the repository: a study goes on elsewhere from what is there.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from claims import CLAIMS, DEEPEST, MULTI30K, Arm, Claim, Comparison, Step, test_options
from records import RunRecord, read_state, record_path
from tables import studies_page

from anydepth.errors import UserError
from anydepth.evaluate.metrics import score
from anydepth.evaluate.significance import paired_bootstrap
from anydepth.evaluate.training_run import FINISHED
from anydepth.files import only_process, write_atomically

ROOT = Path(__file__).parent.parent
BEST = re.compile(r"\{best ([^}]+)\}")
TEST = "test"  # the folder of a run with its outputs on the test set, and its name there
LEAST_PRIORITY = 19
POLL = 0.5  # seconds


@dataclass(frozen=True)
class Folders:
    out: Path
    data: Path
    records: Path

    def home(self, claim: Claim) -> Path:
        return self.out / claim.folder

    def kept(self, claim: Claim) -> Path:
        return self.records / claim.folder

    def fill(self, text: str, claim: Claim) -> str:
        filled = BEST.sub(lambda found: best_value(self.kept(claim), found[1]), text)
        return filled.replace("{out}", str(self.home(claim))).replace("{data}", str(self.data))

    def run(self, claim: Claim, arm: str, seed: int) -> Path:
        return self.home(claim) / arm / f"seed-{seed}"

    def record(self, claim: Claim, arm: str, seed: int) -> Path:
        return record_path(self.kept(claim), arm, seed)


def best_value(records: Path, prefix: str) -> str:
    """X of the arm PREFIX-X whose first seed has the lowest validation loss; "?" until there is one."""
    found = {path.parent.name: RunRecord.load(path).state.nll for path in records.glob(f"{prefix}-*/seed-1.json.gz")}
    losses = {name: nll for name, nll in found.items() if nll is not None}
    return min(losses, key=losses.__getitem__).removeprefix(f"{prefix}-") if losses else "?"


@dataclass(frozen=True)
class Job:
    """One process: the training or the test of a seed of an arm, or a step."""

    label: str
    arguments: tuple[str, ...]
    log: Path


@dataclass(frozen=True)
class Study:
    """What is left to do of a claim. `claims` are all there are: arms of those that share a folder are the same."""

    claim: Claim
    folders: Folders
    claims: Sequence[Claim]

    def depths_of(self, arm: Arm) -> list[str]:
        """At which it is compared."""
        sharing = [one for one in self.claims if one.folder == self.claim.folder]
        return list(dict.fromkeys(depth for one in sharing for depth in one.depths_of(arm.name)))

    def is_recorded(self, arm: Arm, seed: int) -> bool:
        return self.folders.record(self.claim, arm.name, seed).exists()

    def is_complete(self, item: Arm | Step | Comparison) -> bool:
        """Whether its results are among the records. Steps that only make files have none."""
        if isinstance(item, Arm):
            return all(self.is_recorded(item, seed) for seed in range(1, item.seeds + 1))
        return isinstance(item, Step) and (not item.result or self._result(item).exists())

    def is_there(self, item: Arm | Step, every_seed: bool = False) -> bool:
        """Whether what others need of it is there: its file, its first model, or all of them."""
        if isinstance(item, Step):
            return Path(self.folders.fill(item.makes, self.claim)).exists()
        seeds = range(1, item.seeds + 1 if every_seed else 2)
        return all((self.folders.run(self.claim, item.name, seed) / FINISHED).exists() for seed in seeds)

    def has_needs(self, item: Arm | Step) -> bool:
        every_seed = isinstance(item, Step) and item.every_seed
        needed = [one for one in self.claim.work if not isinstance(one, Comparison) and one.name in item.needs]
        return all(self.is_there(one, every_seed) for one in needed)

    def wanted(self) -> list[Arm | Step]:
        """What has no results yet, and whatever that needs and is not there (any more)."""
        work = [item for item in self.claim.work if not isinstance(item, Comparison)]
        names = {item.name for item in work if not self.is_complete(item)}
        for item in reversed(work):  # needs come before
            if item.name in names and not self.has_needs(item):
                names |= set(item.needs)
        return [item for item in work if item.name in names]

    def seeds_needed(self, arm: Arm) -> int:
        """Of an arm whose results are there: how many of its models others need, from the first on."""
        users = [item for item in self.wanted() if arm.name in item.needs]
        return arm.seeds if any(isinstance(one, Step) and one.every_seed for one in users) else min(1, len(users))

    def jobs(self) -> Iterator[Job]:
        """In order: those that have all they need."""
        for item in self.wanted():
            if not self.has_needs(item):
                continue
            if isinstance(item, Arm):
                if all(self.is_complete(arm) for arm in self.claim.arms if arm.name in item.after):
                    yield from self._jobs_of_arm(item)
            elif not (self.is_there(item) if not item.result else self.is_complete(item)):
                yield self._job(item.name, item.name, item.command)

    def _jobs_of_arm(self, arm: Arm) -> Iterator[Job]:
        needed = self.seeds_needed(arm)
        for seed in range(1, arm.seeds + 1):
            run, label = self.folders.run(self.claim, arm.name, seed), f"{arm.name}/seed-{seed}"
            if self.is_recorded(arm, seed) and seed > needed:
                continue
            if not read_state(run).is_over:
                changes = (*arm.changes, f"train.seed={seed}", "train.threads=1")
                settings = [part for change in changes for part in ("--set", change)]
                command = ("train", str(ROOT / arm.recipe), "--out", str(run), *settings)
                yield self._job(label, f"{arm.name}-{seed}", command)
            elif not self.is_recorded(arm, seed) and self._tests(arm) and not (run / TEST / "sweep.json").exists():
                yield self._job(f"{label}/test", f"{arm.name}-{seed}", self._test_command(arm, run))

    def _tests(self, arm: Arm) -> bool:
        return self.claim.test is not None and bool(self.depths_of(arm))

    def _test_command(self, arm: Arm, run: Path) -> tuple[str, ...]:
        assert self.claim.test is not None
        depths = self.depths_of(arm)
        at = () if DEEPEST in depths else ("--depths", ",".join(depths))
        how = ("--engine", "torch", "--threads", "1", "--repeats", "1", "--no-record", "--out", str(run / TEST))
        return ("sweep", f"{TEST}={run}", *test_options(self.claim.test), *at, *how)

    def _job(self, label: str, log: str, command: Sequence[str]) -> Job:
        filled = tuple(self.folders.fill(part, self.claim) for part in command)
        logs = self.folders.home(self.claim) / "logs"
        return Job(f"{self.claim.folder}/{label}", filled, logs / f"{log}.txt")

    def _result(self, step: Step) -> Path:
        return self.folders.kept(self.claim) / f"{step.name}.json"

    def keep(self) -> None:
        """Write the records of what has ended."""
        for arm in self.claim.arms:
            for seed in range(1, arm.seeds + 1):
                run = self.folders.run(self.claim, arm.name, seed)
                if self.is_recorded(arm, seed) or not run.exists():
                    continue
                state = read_state(run)
                if state.has_outputs and self._tests(arm):
                    if (run / TEST / "sweep.json").exists():
                        outputs = self._outputs(arm, run / TEST)
                        RunRecord(state, outputs).save(self.folders.record(self.claim, arm.name, seed))
                elif state.is_over:
                    RunRecord(state).save(self.folders.record(self.claim, arm.name, seed))
        for step in self.claim.work:
            if isinstance(step, Step) and step.result and self.is_there(step) and not self._result(step).exists():
                made = Path(self.folders.fill(step.makes, self.claim))
                write_atomically(self._result(step), made.read_text("utf-8"))

    def _outputs(self, arm: Arm, folder: Path) -> dict[str, list[str]]:
        depths = [one["depth"] for one in json.loads((folder / "sweep.json").read_text("utf-8"))["models"][0]["depths"]]
        lines = {
            depth: (folder / "outputs" / f"{TEST}.{depth}.txt").read_text("utf-8").splitlines() for depth in depths
        }
        return {DEEPEST: lines[depths[-1]]} if DEEPEST in self.depths_of(arm) else lines

    def compare(self) -> None:
        """The comparisons whose arms have all ended, again if there are other runs than before."""
        if self.claim.test is None:
            return
        path = Path(self.folders.fill(self.claim.test.reference, self.claim))
        if not path.is_file():
            return
        references, arms = path.read_text("utf-8").splitlines(), {arm.name: arm for arm in self.claim.arms}
        for one in (item for item in self.claim.work if isinstance(item, Comparison)):
            complete = [arms[name] for name in one.arms if self.is_complete(arms[name])]
            if len(complete) > 1 and complete[0].name == one.arms[0]:
                self._compare(one, complete, references)

    def _compare(self, comparison: Comparison, arms: Sequence[Arm], references: list[str]) -> None:
        kept = self.folders.kept(self.claim) / f"{comparison.name}.json"
        records = {
            arm.name: [
                RunRecord.load(self.folders.record(self.claim, arm.name, seed)) for seed in range(1, arm.seeds + 1)
            ]
            for arm in arms
        }
        systems = {
            name: [one.outputs[comparison.depth] for one in found if comparison.depth in one.outputs]
            for name, found in records.items()
        }
        systems = {name: outputs for name, outputs in systems.items() if outputs}
        seeds = {name: len(outputs) for name, outputs in systems.items()}
        if len(systems) < 2 or (kept.exists() and json.loads(kept.read_text("utf-8"))["seeds"] == seeds):
            return
        differences = [None, *paired_bootstrap(list(systems.values()), references, over_seeds=True)]
        rows = []
        for (name, outputs), difference in zip(systems.items(), differences, strict=True):
            bleu = [score(lines, references).bleu for lines in outputs]
            apart = None if difference is None else asdict(difference)
            rows.append({"arm": name, "bleu": bleu, "difference": apart})
        found = {"depth": comparison.depth, "seeds": seeds, "systems": rows}
        write_atomically(kept, json.dumps(found, indent=1) + "\n")


def missing_files(claim: Claim, folders: Folders) -> list[str]:
    return [path for path in (folders.fill(one, claim) for one in claim.files) if not Path(path).is_file()]


class Runner:
    """Keeps `slots` processes busy until nothing is ready. A job that fails is reported and not tried again now."""

    def __init__(self, studies: Sequence[Study], slots: int) -> None:
        self.studies = studies
        self.slots = slots
        self.running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
        self.begun: set[str] = set()
        self.failed: list[str] = []
        self.stopping = False

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def run(self) -> None:
        while True:
            self._collect()
            if self.stopping:
                return self._interrupt()
            if len(self.running) < self.slots:
                jobs = (job for study in self.studies for job in study.jobs() if job.label not in self.begun)
                job = next(jobs, None)
                if job is not None:
                    self._start(job)
                    continue
            if not self.running:
                return None
            time.sleep(POLL)

    def _start(self, job: Job) -> None:
        say(f"begins {job.label}")
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches only this process, which stops the others in order.
            process = subprocess.Popen(
                [sys.executable, "-m", "anydepth", *job.arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: os.nice(LEAST_PRIORITY) and None,
            )
        self.running[job.label] = job, process
        self.begun.add(job.label)

    def _collect(self) -> None:
        for label, (job, process) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[label]
            for study in self.studies:
                study.keep()
            if code == 0:
                say(f"finished {label}")
            else:
                lines = job.log.read_text("utf-8", "replace").strip().splitlines()
                say(f"failed {label}: {lines[-1] if lines else f'exit code {code}'}")
                self.failed.append(label)

    def _interrupt(self) -> None:
        for _, process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for label, (_, process) in self.running.items():
            process.wait()
            say(f"stopped {label}; it goes on from its last checkpoint")


def say(message: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}", flush=True)


def make_tenth(data: Path) -> None:
    """Every tenth line of Multi30k's training text, for the students that see little."""
    folder = Path(MULTI30K.replace("{data}", str(data)))
    for language in ("de", "en"):
        whole, tenth = folder / f"train.{language}", folder / f"tenth.{language}"
        if whole.is_file() and not tenth.exists():
            write_atomically(tenth, "".join(f"{line}\n" for line in whole.read_text("utf-8").splitlines()[::10]))


def chosen_claims(keys: Sequence[str], claims: Sequence[Claim]) -> list[Claim]:
    known = {claim.key: claim for claim in claims}
    for key in keys:
        if key not in known:
            raise UserError(f"there is no claim {key}: choose from {', '.join(known)}")
    return [known[key] for key in keys] if keys else list(claims)


def main(arguments: Sequence[str] | None = None, claims: Sequence[Claim] = CLAIMS) -> int:
    parser = argparse.ArgumentParser(description="Run the studies, or go on with them, and write docs/studies.md.")
    parser.add_argument("claims", nargs="*", help=f"of {', '.join(claim.key for claim in claims)}; all by default")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "studies", help="folder of all runs")
    parser.add_argument("--data", type=Path, help="folder of the corpora; by default OUT/data")
    parser.add_argument("--records", type=Path, default=ROOT / "studies" / "records", help="results that are kept")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side, a thread each")
    parser.add_argument("--tables", action="store_true", help="only write the page from what is there")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "studies.md", help="the page to write")
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    folders = Folders(out, (given.data or out / "data").resolve(), given.records.resolve())
    try:
        chosen = chosen_claims(given.claims, claims)
        if given.tables:
            write_page(claims, folders, given.page)
            return 0
        with only_process(out, "the studies"):
            return _run(chosen, claims, folders, given.jobs, given.page)
    except UserError as error:
        print(f"studies: {error}", file=sys.stderr)
        return 2


def write_page(claims: Sequence[Claim], folders: Folders, page: Path) -> None:
    for claim in claims:
        study = Study(claim, folders, claims)
        study.keep()
        study.compare()
    write_atomically(page, studies_page(claims, folders.out, folders.records))


def _run(chosen: Sequence[Claim], claims: Sequence[Claim], folders: Folders, jobs: int, page: Path) -> int:
    make_tenth(folders.data)
    for claim in chosen:
        if missing := missing_files(claim, folders):
            say(f"{claim.key} waits for {len(missing)} files such as {missing[0]}: put them there")
    studies = [Study(claim, folders, claims) for claim in chosen if not missing_files(claim, folders)]
    runner = Runner(studies, max(1, jobs))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runner.stop)
    runner.run()
    write_page(claims, folders, page)
    say(f"tables: {page}")
    if runner.stopping:
        say("stopped: the same command goes on")
        return 130
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())

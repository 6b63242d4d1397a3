"""What is left to do of a claim, what is there of it, and whether that was made by the claim as it is today."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from plan import ONLY, Arm, Claim, Item, Step, TestSet
from records import Outputs, RunRecord, RunState, digest, read_state, record_path

from anydepth.data.corpus import read_lines
from anydepth.errors import UserError
from anydepth.files import file_sha256, write_atomically

ROOT = Path(__file__).parent.parent
BEST = re.compile(r"\{best ([^}]+)\}")
RUNS = re.compile(r"\{runs ([^}]+)\}")
UNKNOWN = "?"
TEST = "test"  # the folder of a run with its outputs on the test set, and its name there


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
        return text.replace("{out}", str(self.home(claim))).replace("{data}", str(self.data))


@dataclass(frozen=True)
class Job:
    """One process: the training or the test of a seed of an arm, or a step. What `makes` holds and was not made by
    `made_by` is set aside before it starts."""

    label: str
    arguments: tuple[str, ...]  # of Python
    log: Path
    makes: Path | None = None
    made_by: str = ""
    run: Path | None = None  # of a training
    alone: bool = False


@dataclass(frozen=True)
class Study:
    """`claims` are all there are: arms of those that share a folder are the same."""

    claim: Claim
    folders: Folders
    claims: Sequence[Claim]

    # What it is made by

    def identity(self, item: Item, seed: int = 1) -> str:
        """A digest of its recipe or command and of all it needs, wherever it runs."""
        every_seed = isinstance(item, Step) and item.every_seed
        needs = [[self.identity(one), _seeds(one) if every_seed else 1] for one in self._needed(item)]
        if isinstance(item, Step):
            return digest(item.script, item.command, needs)
        recipe = (ROOT / item.recipe).read_text("utf-8")
        return digest(recipe, [self.choose(change) for change in item.changes], seed, needs)

    def choose(self, text: str) -> str:
        """With the best values filled in."""
        return BEST.sub(lambda found: self.best_value(found[1]), text)

    def best_value(self, prefix: str) -> str:
        """X of the arm PREFIX-X whose first seed has the lowest validation loss; "?" until one has finished."""
        states = {arm.name: self.state(arm, 1) for arm in self.claim.arms if arm.name.startswith(f"{prefix}-")}
        losses = {name: one.nll for name, one in states.items() if one.has_model and one.nll is not None}
        return min(losses, key=losses.__getitem__).removeprefix(f"{prefix}-") if losses else UNKNOWN

    def _needed(self, item: Item) -> list[Item]:
        return [one for one in self.claim.items if one.name in item.needs]

    # What is there

    def run(self, arm: Arm, seed: int) -> Path:
        return self.folders.home(self.claim) / arm.name / f"seed-{seed}"

    def record(self, arm: Arm, seed: int) -> RunRecord | None:
        """None, too, if it was made by something else than the arm of today, or lacks a depth that is compared."""
        path = self._record_path(arm, seed)
        found = load_record(path, path.stat().st_mtime_ns) if path.exists() else None
        return found if found is not None and self._is_current(found, arm, seed) else None

    def outdated(self) -> list[str]:
        """The records that count as not there."""
        seeds = ((arm, seed) for arm in self.claim.arms for seed in range(1, arm.seeds + 1))
        return [
            f"{self.claim.folder}/{arm.name}/seed-{seed}"
            for arm, seed in seeds
            if self._record_path(arm, seed).exists() and self.record(arm, seed) is None
        ]

    def state(self, arm: Arm, seed: int) -> RunState:
        record = self.record(arm, seed)
        return self._run_state(arm, seed) if record is None else record.state

    def result(self, step: Step) -> dict[str, Any] | None:
        """What a step found, if it was this one."""
        path = self._result_path(step)
        kept: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return kept["found"] if kept.get("made_by") == self.identity(step) else None

    def tests(self, arm: Arm) -> dict[TestSet, list[str]]:
        """The depths at which it is compared."""
        found: dict[TestSet, list[str]] = {}
        for claim in self.claims:
            for test, depth in claim.points(arm.name) if claim.folder == self.claim.folder else ():
                found[test] = list(dict.fromkeys([*found.get(test, []), depth]))
        return found

    def is_complete(self, item: Item) -> bool:
        """Whether its results are among the records. Steps that only make files have none."""
        if isinstance(item, Step):
            return not item.result or self.result(item) is not None
        return all(self.record(item, seed) is not None for seed in range(1, item.seeds + 1))

    def _record_path(self, arm: Arm, seed: int) -> Path:
        return record_path(self.folders.kept(self.claim), arm.name, seed)

    def _result_path(self, step: Step) -> Path:
        return self.folders.kept(self.claim) / f"{step.name}.json"

    def _is_current(self, record: RunRecord, arm: Arm, seed: int) -> bool:
        if record.made_by != self.identity(arm, seed):
            return False
        points = [(test, depth) for test, depths in self.tests(arm).items() for depth in depths]
        return not record.state.has_model or all(self._has(record, test, depth) for test, depth in points)

    def _has(self, record: RunRecord, test: TestSet, depth: str) -> bool:
        """Where the test set is not at hand, its record is trusted."""
        found = record.outputs.get(outputs_key(test, depth))
        return found is not None and self._checksum(test) in (found.source, "")

    def _checksum(self, test: TestSet) -> str:
        path = Path(self.folders.fill(test.source, self.claim))
        return checksum(path, path.stat().st_mtime_ns) if path.is_file() else ""

    def _run_state(self, arm: Arm, seed: int) -> RunState:
        run = self.run(arm, seed)
        return read_state(run) if is_made_by(run, self.identity(arm, seed)) else RunState()

    def _is_made(self, step: Step) -> bool:
        """What needs nothing, such as a corpus, may come from anywhere."""
        is_ours = not step.needs or is_made_by(self._makes(step), self.identity(step))
        return is_ours and Path(self.folders.fill(step.makes, self.claim)).exists()

    def _makes(self, step: Step) -> Path:
        """The file or the folder that is all its own."""
        home = self.folders.home(self.claim)
        return home / Path(self.folders.fill(step.makes, self.claim)).relative_to(home).parts[0]

    # What is left to do

    def has_needs(self, item: Item) -> bool:
        """Whether the files and models that it is made with are there."""
        every_seed = isinstance(item, Step) and item.every_seed
        for one in self._needed(item):
            if isinstance(one, Step):
                if not self._is_made(one):
                    return False
            elif not self._has_models(one, one.seeds if every_seed else 1):
                return False
        return True

    def _has_models(self, arm: Arm, seeds: int) -> bool:
        """Of the first `seeds`, of all that did not diverge; at least one."""
        states = [self._run_state(arm, seed) for seed in range(1, seeds + 1)]
        diverged = [self.state(arm, seed).diverged for seed in range(1, seeds + 1)]
        ready = all(state.has_model or lost for state, lost in zip(states, diverged, strict=True))
        return ready and not all(diverged)

    def obstacle(self, item: Item) -> str | None:
        """Why it can never run: trainings that it needs diverged."""
        every_seed = isinstance(item, Step) and item.every_seed
        for one in self._needed(item):
            seeds = range(1, (_seeds(one) if every_seed else 1) + 1)
            if isinstance(one, Arm) and all(self.state(one, seed).diverged for seed in seeds):
                return f"{one.name} diverged"
        if isinstance(item, Arm) and item.after and self._is_tuned(item):
            return f"{', '.join(item.after)} diverged" if self._lacks_value(item) else None
        return None

    def _is_tuned(self, arm: Arm) -> bool:
        return all(self.is_complete(one) for one in self.claim.arms if one.name in arm.after)

    def _lacks_value(self, arm: Arm) -> bool:
        return any(self.best_value(prefix) == UNKNOWN for change in arm.changes for prefix in BEST.findall(change))

    def blocked(self) -> dict[str, str]:
        """What has no results and can have none, and why."""
        found = {item.name: self.obstacle(item) for item in self.claim.items if not self.is_complete(item)}
        return {name: why for name, why in found.items() if why is not None}

    def wanted(self) -> list[Item]:
        """What has no results yet, and whatever that needs and is not there (any more)."""
        blocked = self.blocked()
        names = {item.name for item in self.claim.items if not self.is_complete(item)} - set(blocked)
        for item in reversed(self.claim.items):  # needs come before
            if item.name in names and not self.has_needs(item):
                names |= set(item.needs)
        return [item for item in self.claim.items if item.name in names]

    def jobs(self) -> Iterator[Job]:
        """In order: those that have all they need."""
        wanted = self.wanted()
        for item in wanted:
            if not self.has_needs(item):
                continue
            if isinstance(item, Arm):
                if self._is_tuned(item):
                    yield from self._jobs_of_arm(item, [one for one in wanted if item.name in one.needs])
            elif not (self.is_complete(item) if item.result else self._is_made(item)):
                yield self._job_of_step(item)

    def _jobs_of_arm(self, arm: Arm, users: Sequence[Item]) -> Iterator[Job]:
        """Models whose results are there are made again if `users` need them."""
        every_seed = any(isinstance(one, Step) and one.every_seed for one in users)
        needed = arm.seeds if every_seed else min(1, len(users))
        for seed in range(1, arm.seeds + 1):
            record = self.record(arm, seed)
            if record is not None and (seed > needed or record.state.diverged):
                continue
            state = self._run_state(arm, seed)
            if not state.is_over:
                yield self._training(arm, seed)
            elif record is None and state.has_model:
                yield from self._test_jobs(arm, seed)

    def _training(self, arm: Arm, seed: int) -> Job:
        changes = (*map(self.choose, arm.changes), f"train.seed={seed}", "train.threads=1")
        settings = [part for change in changes for part in ("--set", self.folders.fill(change, self.claim))]
        run, label = self.run(arm, seed), f"{self.claim.folder}/{arm.name}/seed-{seed}"
        command = ("-m", "anydepth", "train", str(ROOT / arm.recipe), "--out", str(run), *settings)
        return Job(label, command, self._log(f"{arm.name}-{seed}"), run, self.identity(arm, seed), run)

    def _test_jobs(self, arm: Arm, seed: int) -> Iterator[Job]:
        """One for each test set that it has not translated yet."""
        for test, depths in self.tests(arm).items():
            folder, made_by = self._test(arm, seed, test)
            if is_made_by(folder, made_by) and (folder / "sweep.json").exists():
                continue
            at = () if ONLY in depths else ("--depths", ",".join(depths))
            how = ("--engine", "torch", "--threads", "1", "--repeats", "1", "--no-record", "--out", str(folder))
            options = (self.folders.fill(part, self.claim) for part in test.options)
            label = f"{self.claim.folder}/{arm.name}/seed-{seed}/{folder.name}"
            command = ("-m", "anydepth", "sweep", f"{TEST}={self.run(arm, seed)}", *options, *at, *how)
            yield Job(label, command, self._log(f"{arm.name}-{seed}-{folder.name}"), folder, made_by)

    def _test(self, arm: Arm, seed: int, test: TestSet) -> tuple[Path, str]:
        """Where its outputs are, and what they are made by."""
        made_by = digest(self.identity(arm, seed), self._checksum(test), self.tests(arm)[test])
        return self.run(arm, seed) / (f"{TEST}-{test.to}" if test.to else TEST), made_by

    def _job_of_step(self, step: Step) -> Job:
        command = (str(ROOT / step.script),) if step.script else ("-m", "anydepth")
        filled = (RUNS.sub(self._finished_runs, part) for part in step.command)
        arguments = (*command, *(self.folders.fill(part, self.claim) for part in filled))
        label, log = f"{self.claim.folder}/{step.name}", self._log(step.name)
        if not step.needs:
            return Job(label, arguments, log, alone=step.alone)
        return Job(label, arguments, log, self._makes(step), self.identity(step), alone=step.alone)

    def _finished_runs(self, found: re.Match[str]) -> str:
        arm = next(one for one in self.claim.arms if one.name == found[1])
        seeds = (seed for seed in range(1, arm.seeds + 1) if self._run_state(arm, seed).has_model)
        return ",".join(str(self.run(arm, seed)) for seed in seeds)

    def _log(self, name: str) -> Path:
        return self.folders.home(self.claim) / "logs" / f"{name}.txt"

    # What is kept

    def keep(self) -> None:
        """Write the records of what has ended."""
        for arm in self.claim.arms:
            for seed in range(1, arm.seeds + 1):
                made = self._make_record(arm, seed) if self.record(arm, seed) is None else None
                if made is not None:
                    made.save(self._record_path(arm, seed))
        for step in self.claim.items:
            if isinstance(step, Step) and step.result and self.result(step) is None and self._is_made(step):
                found = json.loads(Path(self.folders.fill(step.makes, self.claim)).read_text("utf-8"))
                kept = {"made_by": self.identity(step), "found": found}
                write_atomically(self._result_path(step), json.dumps(kept, indent=1) + "\n")

    def _make_record(self, arm: Arm, seed: int) -> RunRecord | None:
        """None until it is over, and has translated all it should."""
        state = self._run_state(arm, seed)
        outputs: dict[str, Outputs] = {}
        for test, depths in self.tests(arm).items() if state.has_model else ():
            folder, made_by = self._test(arm, seed, test)
            if not is_made_by(folder, made_by) or not (folder / "sweep.json").exists():
                return None
            outputs |= {outputs_key(test, depth): self._outputs(folder, test, depth) for depth in depths}
        return RunRecord(self.identity(arm, seed), state, outputs) if state.is_over else None

    def _outputs(self, folder: Path, test: TestSet, depth: str) -> Outputs:
        found = json.loads((folder / "sweep.json").read_text("utf-8"))["models"][0]["depths"]
        names = [one["depth"] for one in found if depth in (ONLY, one["depth"])]
        if len(names) != 1:
            raise UserError(f"{folder} has {len(names)} depths where one was wanted, {depth}: name it in the claim")
        lines = list(read_lines(folder / "outputs" / f"{TEST}.{names[0]}.txt"))
        return Outputs(names[0], self._checksum(test), lines)


def _seeds(item: Item) -> int:
    return item.seeds if isinstance(item, Arm) else 1


def outputs_key(test: TestSet, depth: str) -> str:
    return f"{test.to}:{depth}" if test.to else depth


def mark_path(made: Path) -> Path:
    """The file beside what was made that says by what."""
    return made.with_name(f"{made.name}.made-by")


def is_made_by(made: Path, made_by: str) -> bool:
    mark = mark_path(made)
    return mark.exists() and mark.read_text("utf-8") == made_by


@cache
def load_record(path: Path, changed: int) -> RunRecord:
    return RunRecord.load(path)


@cache
def checksum(path: Path, changed: int) -> str:
    return file_sha256(path)

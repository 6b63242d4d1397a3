"""Runs the studies of claims.py: goes on with what is unfinished, stops cleanly, and writes docs/studies.md.

python studies/run.py [CLAIM ...] [--jobs 2] [--tables]

Every arm is a plain `anydepth train` at the lowest priority, which resumes exactly where it stopped, so this may be
interrupted at any time (Ctrl-C, or kill) and started again.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from claims import CLAIMS, MULTI30K, Arm, Claim, Step
from tables import studies_page

from anydepth.errors import UserError
from anydepth.evaluate.training_run import FINISHED, read_log
from anydepth.files import only_process, write_atomically

ROOT = Path(__file__).parent.parent
LEAST_PRIORITY = 19
POLL = 0.5  # seconds


@dataclass(frozen=True)
class Folders:
    out: Path
    data: Path

    def of(self, claim: Claim) -> Path:
        return self.out / claim.key

    def fill(self, text: str, claim: Claim) -> str:
        return text.replace("{out}", str(self.of(claim))).replace("{data}", str(self.data))

    def runs(self, claim: Claim, arm: Arm) -> list[Path]:
        return [self.of(claim) / arm.name / f"seed-{seed}" for seed in range(1, arm.seeds + 1)]


@dataclass(frozen=True)
class Job:
    """One process: a seed of an arm, or a step."""

    label: str
    arguments: tuple[str, ...]
    log: Path


def has_diverged(run: Path) -> bool:
    return any(record["kind"] == "diverged" for record in read_log(run))


def is_run_over(run: Path) -> bool:
    """Finished, or diverged, which is a result as well and comes again on every try."""
    return (run / FINISHED).exists() or has_diverged(run)


def is_done(item: Arm | Step, claim: Claim, folders: Folders) -> bool:
    if isinstance(item, Step):
        return Path(folders.fill(item.makes, claim)).exists()
    return all(is_run_over(run) for run in folders.runs(claim, item))


def jobs_of(item: Arm | Step, claim: Claim, folders: Folders) -> Iterator[Job]:
    """What is left to do of it."""
    home = folders.of(claim)
    if isinstance(item, Step):
        command = tuple(folders.fill(part, claim) for part in item.command)
        yield Job(f"{claim.key}/{item.name}", command, home / "logs" / f"{item.name}.txt")
        return
    for seed, run in enumerate(folders.runs(claim, item), 1):
        if is_run_over(run):
            continue
        changes = [*(folders.fill(change, claim) for change in item.changes), f"train.seed={seed}", "train.threads=1"]
        settings = [part for change in changes for part in ("--set", change)]
        command = ("train", str(ROOT / item.recipe), "--out", str(run), *settings)
        yield Job(f"{claim.key}/{item.name}/seed-{seed}", command, home / "logs" / f"{item.name}-{seed}.txt")


def ready_jobs(claims: Sequence[Claim], folders: Folders, begun: set[str]) -> Iterator[Job]:
    """In the order of the list: those whose needs are there and that have not begun."""
    for claim in claims:
        if missing_files(claim, folders):
            continue
        by_name = {item.name: item for item in claim.work}
        for item in claim.work:
            if is_done(item, claim, folders) or not all(is_done(by_name[need], claim, folders) for need in item.needs):
                continue
            yield from (job for job in jobs_of(item, claim, folders) if job.label not in begun)


def missing_files(claim: Claim, folders: Folders) -> list[str]:
    return [path for path in (folders.fill(one, claim) for one in claim.files) if not Path(path).is_file()]


class Runner:
    """Keeps `slots` processes busy until nothing is ready. A job that fails is reported and not tried again now."""

    def __init__(self, claims: Sequence[Claim], folders: Folders, slots: int) -> None:
        self.claims, self.folders, self.slots = claims, folders, slots
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
                job = next(ready_jobs(self.claims, self.folders, self.begun), None)
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
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side, a thread each")
    parser.add_argument("--tables", action="store_true", help="only write the page from what is there")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "studies.md", help="the page to write")
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    folders = Folders(out, (given.data or out / "data").resolve())
    try:
        chosen = chosen_claims(given.claims, claims)
        if given.tables:
            write_atomically(given.page, studies_page(claims, out))
            return 0
        with only_process(out, "the studies"):
            return _run(chosen, claims, folders, given.jobs, given.page)
    except UserError as error:
        print(f"studies: {error}", file=sys.stderr)
        return 2


def _run(chosen: Sequence[Claim], claims: Sequence[Claim], folders: Folders, jobs: int, page: Path) -> int:
    make_tenth(folders.data)
    for claim in chosen:
        if missing := missing_files(claim, folders):
            say(f"{claim.key} waits for {len(missing)} files such as {missing[0]}: put them there")
    runner = Runner(chosen, folders, max(1, jobs))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runner.stop)
    runner.run()
    write_atomically(page, studies_page(claims, folders.out))
    say(f"tables: {page}")
    if runner.stopping:
        say("stopped: the same command goes on")
        return 130
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())

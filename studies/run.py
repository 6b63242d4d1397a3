"""Runs the studies of claims.py: goes on with what is unfinished, stops cleanly, and writes docs/studies.md.

python studies/run.py [CLAIM ...] [--jobs 2] [--tables]

Every arm is a plain `anydepth train` at the lowest priority, which resumes exactly where it stopped, so this may be
interrupted at any time (Ctrl-C, or kill) and started again. A seed that has ended translates the test set and leaves a
record (records.py) in studies/records, which is part of the repository: a study goes on elsewhere from what is there.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from claims import CLAIMS, COST, MULTI30K
from comparisons import compare
from plan import Claim
from records import read_state
from study import ROOT, Folders, Job, Study, is_made_by, mark_path
from tables import studies_page

from anydepth.data.corpus import read_lines
from anydepth.errors import UserError
from anydepth.files import only_process, write_atomically

LEAST_PRIORITY = 19
POLL = 0.5  # seconds


def missing_files(claim: Claim, folders: Folders) -> list[str]:
    return [path for path in (folders.fill(one, claim) for one in claim.files) if not Path(path).is_file()]


class Scheduler:
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
        waiting = self._next()
        while waiting is not None or self.running:
            if self.stopping:
                return self._interrupt()
            if waiting is not None and self._has_room(waiting):
                self._start(waiting)
                waiting = self._next()
            elif self._collect():
                waiting = self._next()
            else:
                time.sleep(POLL)
        return None

    def _next(self) -> Job | None:
        jobs = (job for study in self.studies for job in study.jobs() if job.label not in self.begun)
        return next(jobs, None)

    def _has_room(self, job: Job) -> bool:
        """A job that takes times waits until nothing runs, and others wait for it."""
        if job.alone or any(other.alone for other, _ in self.running.values()):
            return not self.running
        return len(self.running) < self.slots

    def _start(self, job: Job) -> None:
        say(f"begins {job.label}")
        job.log.parent.mkdir(parents=True, exist_ok=True)
        if job.makes is not None:
            set_aside(job.makes, job.made_by)
        with job.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches only this process, which stops the others in order.
            process = subprocess.Popen(
                [sys.executable, *job.arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=None if job.alone else lambda: os.nice(LEAST_PRIORITY) and None,
            )
        self.running[job.label] = job, process
        self.begun.add(job.label)

    def _collect(self) -> bool:
        """Whether any has ended."""
        ended = {label: job for label, (job, process) in self.running.items() if process.poll() is not None}
        for label, job in ended.items():
            _, process = self.running.pop(label)
            self._report(job, process.returncode)
        for study in self.studies if ended else ():
            study.keep()
        return bool(ended)

    def _report(self, job: Job, code: int) -> None:
        if code == 0:
            say(f"finished {job.label}")
        elif job.run is not None and read_state(job.run).diverged:
            say(f"diverged {job.label}: that is a result")
        else:
            lines = job.log.read_text("utf-8", "replace").strip().split("\n")
            say(f"failed {job.label}: {lines[-1] or f'exit code {code}'}")
            self.failed.append(job.label)

    def _interrupt(self) -> None:
        for _, process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for label, (_, process) in self.running.items():
            process.wait()
            say(f"stopped {label}; it goes on from its last checkpoint")


def set_aside(made: Path, made_by: str) -> None:
    """Make room for what `made_by` makes, unless it is what is there, to go on with."""
    if made.exists() and not is_made_by(made, made_by):
        old = made.with_name(f"{made.name}.old")
        if old.is_dir():
            shutil.rmtree(old)
        made.replace(old)
    write_atomically(mark_path(made), made_by)


def say(message: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}", flush=True)


def make_tenth(data: Path) -> None:
    """Every tenth line of Multi30k's training text, for the students that see little."""
    folder = Path(MULTI30K.replace("{data}", str(data)))
    for language in ("de", "en"):
        whole, tenth = folder / f"train.{language}", folder / f"tenth.{language}"
        if whole.is_file() and not tenth.exists():
            write_atomically(tenth, "".join(f"{line}\n" for line in list(read_lines(whole))[::10]))


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
    studies = [Study(claim, folders, claims) for claim in claims]
    try:
        chosen = chosen_claims(given.claims, claims)
        if given.tables:
            write_page(studies, given.page)
            return 0
        with only_process(out, "the studies"):
            return _run(chosen, studies, given.jobs, given.page)
    except UserError as error:
        print(f"studies: {error}", file=sys.stderr)
        return 2


def write_page(studies: Sequence[Study], page: Path) -> None:
    for study in studies:
        study.keep()
        compare(study)
    write_atomically(page, studies_page(studies, COST))


def _run(chosen: Sequence[Claim], studies: Sequence[Study], jobs: int, page: Path) -> int:
    folders = studies[0].folders
    make_tenth(folders.data)
    for claim in chosen:
        if missing := missing_files(claim, folders):
            say(f"{claim.key} waits for {len(missing)} files such as {missing[0]}: put them there")
    if outdated := list(dict.fromkeys(name for study in studies for name in study.outdated())):
        say(f"out of date, so they count as not there: {', '.join(outdated)}")
    ready = [study for study in studies if study.claim in chosen and not missing_files(study.claim, folders)]
    scheduler = Scheduler(ready, max(1, jobs))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, scheduler.stop)
    scheduler.run()
    write_page(studies, page)
    say(f"tables: {page}")
    if scheduler.stopping:
        say("stopped: the same command goes on")
        return 130
    for study in ready:
        for name, why in study.blocked().items():
            say(f"{study.claim.folder}/{name} cannot run: {why}")
    return 1 if scheduler.failed else 0


if __name__ == "__main__":
    sys.exit(main())

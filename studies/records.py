"""What a study keeps of a finished run: what it was made by, how it went, and its outputs on the test set. Small enough
to be committed, so that a study can go on elsewhere, without the models.

RECORDS/CLAIM/ARM/seed-N.json.gz, and RECORDS/CLAIM/NAME.json for a comparison or the figures of a step.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anydepth.files import write_atomically
from anydepth.training.run_log import FINISHED, TrainingRun, read_log

LAST = 0.25  # of the updates
MOST_FALL = 0.02  # of the validation loss: an arm that still falls faster has not reached a plateau


@dataclass(frozen=True)
class RunState:
    """How far a run has come. `fall` is the share of the validation loss that it lost in the last quarter."""

    step: int = 0
    nll: float | None = None
    fall: float | None = None
    finished: bool = False
    diverged: bool = False
    on_unigram_plateau: bool = False

    @property
    def is_over(self) -> bool:
        """Finished, or diverged, which is a result as well and comes again on every try."""
        return self.finished or self.diverged

    @property
    def has_model(self) -> bool:
        return self.finished and not self.diverged

    @property
    def is_conclusive(self) -> bool:
        if self.diverged or (self.finished and self.on_unigram_plateau):
            return True
        return self.finished and self.fall is not None and self.fall < MOST_FALL

    @property
    def words(self) -> str:
        if self.diverged:
            return "diverged"
        if not self.finished:
            return f"at update {self.step:,}" if self.step else "not begun"
        if self.on_unigram_plateau:
            return "unigram plateau"
        return "plateau" if self.is_conclusive else "still falling"


@dataclass(frozen=True)
class Outputs:
    """Of a run on a test set: `depth` is the menu's name of what was run, `source` the checksum of what it read."""

    depth: str
    source: str
    lines: Sequence[str]


@dataclass(frozen=True)
class RunRecord:
    """A run that is over, and what it made of the test set at each depth that is compared. `made_by` is the digest of
    the arm and all it needs."""

    made_by: str
    state: RunState
    outputs: Mapping[str, Outputs] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, gzip.compress(json.dumps(asdict(self), ensure_ascii=False).encode("utf-8"), mtime=0))

    @classmethod
    def load(cls, path: Path) -> "RunRecord":
        found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        outputs = {key: Outputs(**one) for key, one in found["outputs"].items()}
        return cls(found["made_by"], RunState(**found["state"]), outputs)


def digest(*content: Any) -> str:
    """Of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode("utf-8")).hexdigest()


def record_path(records: Path, arm: str, seed: int) -> Path:
    return records / arm / f"seed-{seed}.json.gz"


def read_state(run: Path) -> RunState:
    """Of a run folder."""
    found = TrainingRun.of(run.name, read_log(run))
    curves = found.validation() if found.train and found.valid else {}
    curve = next(iter(curves.values()), None)
    record = json.loads((run / FINISHED).read_text("utf-8")) if (run / FINISHED).exists() else {}
    step = found.end if found.train else 0
    return RunState(
        step=step,
        nll=curve.values[-1] if curve and curve.values else None,
        fall=last_fall(curve.steps, curve.values) if curve else None,
        finished=bool(record),
        diverged=found.diverged is not None,
        on_unigram_plateau=bool(record.get("plateau")),
    )


def last_fall(steps: Sequence[int], values: Sequence[float]) -> float | None:
    """The share that was lost from the last validation before the last quarter to the end; None if there is none."""
    before = [value for step, value in zip(steps, values, strict=True) if step <= (1 - LAST) * steps[-1]]
    return (before[-1] - values[-1]) / before[-1] if before else None

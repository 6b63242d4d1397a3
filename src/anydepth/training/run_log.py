"""What a run wrote while it trained, RUN/log.jsonl with a record per line, as curves and layers over steps."""

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from anydepth.errors import UserError

LOG = "log.jsonl"
FINISHED = "finished.json"
MOMENTS = (0.02, 0.06, 0.25, 0.5, 1.0)  # of the training, those of the Figure 7 of Li et al. 2020
WITHOUT_PAIRS = "all"  # the name in the log where there is one language pair
Record = dict[str, Any]
LayerGrid = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class StepCurve:
    """A value at some steps; what was not finite is left out."""

    steps: list[int]
    values: list[float]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float]]) -> "StepCurve":
        finite = [(step, value) for step, value in points if math.isfinite(value)]
        return cls([step for step, _ in finite], [value for _, value in finite])


@dataclass(frozen=True)
class LayersOverSteps:
    """A value of each layer, the lowest first, at each of some steps; NaN where there is none."""

    steps: list[int]
    grid: LayerGrid

    @classmethod
    def of(cls, columns: Sequence[tuple[int, Sequence[float]]]) -> "LayersOverSteps":
        grid = np.full((max(len(values) for _, values in columns), len(columns)), math.nan)
        for place, (_, values) in enumerate(columns):
            grid[: len(values), place] = values
        grid[~np.isfinite(grid)] = math.nan
        return cls([step for step, _ in columns], grid)

    @property
    def layers(self) -> int:
        return len(self.grid)

    def thinned(self, most: int, *, geometric: bool = False) -> "LayersOverSteps":
        """At most so many steps: neighbours give their mean, and stand at the last of them.

        Of a geometric mean, what is no positive number does not count.
        """
        groups = np.array_split(np.arange(len(self.steps)), min(most, len(self.steps)))
        grid = np.log(np.where(self.grid > 0, self.grid, np.nan)) if geometric else self.grid
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a row without values has no mean: NaN
            means = np.stack([np.nanmean(grid[:, group], axis=1) for group in groups], axis=1)
        return LayersOverSteps([self.steps[group[-1]] for group in groups], np.exp(means) if geometric else means)


@dataclass(frozen=True)
class Divergence:
    step: int
    layer: str | None

    def __str__(self) -> str:
        return f"diverged at step {self.step:,}" + (f" ({self.layer})" if self.layer else "")


@dataclass(frozen=True)
class TrainingRun:
    label: str
    train: list[Record]
    valid: list[Record]
    diverged: Divergence | None

    @classmethod
    def of(cls, label: str, records: Sequence[Record]) -> "TrainingRun":
        kinds: dict[str, list[Record]] = {"train": [], "valid": [], "diverged": []}
        for record in records:
            kinds.get(str(record.get("kind")), []).append(record)
        ends = [Divergence(record["step"], record.get("layer")) for record in kinds["diverged"]]
        return cls(label, kinds["train"], kinds["valid"], ends[-1] if ends else None)

    @property
    def headline(self) -> str:
        return f"{self.label}, {self.diverged}" if self.diverged else self.label

    @property
    def last_step(self) -> int:
        return int(self.train[-1]["step"])

    @property
    def end(self) -> int:
        """The step after which nothing came, logged or not."""
        return max(self.last_step, self.diverged.step if self.diverged else 0)

    @property
    def loss_name(self) -> str:
        return "nll" if "nll" in self.train[0] else "loss"

    def curve(self, key: str) -> StepCurve:
        return StepCurve.of((record["step"], _number(record.get(key))) for record in self.train)

    def kl(self) -> StepCurve:
        """The sum over the stacks, which may be logged apart."""
        parts = [
            [_number(value) for name, value in record.items() if name == "kl" or name.startswith("kl/")]
            for record in self.train
        ]
        return StepCurve.of(
            (record["step"], sum(found)) for record, found in zip(self.train, parts, strict=True) if found
        )

    def validation(self) -> dict[str, StepCurve]:
        """By depth; with several language pairs their mean."""
        found = [(record["step"], _by_depth(record.get(self.loss_name))) for record in self.valid]
        names = dict.fromkeys(name for _, by_depth in found for name in by_depth)
        return {name: StepCurve.of((step, by_depth.get(name, math.nan)) for step, by_depth in found) for name in names}

    def selected(self, side: str) -> StepCurve:
        """How many layers are selected, the mean over language pairs."""
        counts = [(record["step"], _mapping(record, "layers_selected", side)) for record in self.train]
        return StepCurve.of((step, fmean(map(_number, by_pair.values()))) for step, by_pair in counts if by_pair)

    def gradients(self) -> dict[str, LayersOverSteps]:
        """The gradient norms of each stack."""
        columns: dict[str, list[tuple[int, list[float]]]] = {}
        for record in self.train:
            stacks: dict[str, list[float]] = {}
            for name, norm in _mapping(record, "layers").items():
                stacks.setdefault(name.rpartition(".")[0], []).append(_number(norm))
            for side, norms in stacks.items():
                columns.setdefault(side, []).append((record["step"], norms))
        return {side: LayersOverSteps.of(found) for side, found in columns.items()}

    @property
    def has_gates(self) -> bool:
        return bool(self.gated_sides)

    @property
    def gated_sides(self) -> list[str]:
        return in_order(side for record in self.train for side in _mapping(record, "samples"))

    def with_gates(self, side: str) -> list[Record]:
        return [record for record in self.train if _mapping(record, "samples", side)]

    def utilisation(self, side: str) -> LayersOverSteps:
        """The mean over language pairs of the samples (the paper's u)."""
        records = self.with_gates(side)
        means = [np.mean(list(gates(record, "samples", side).values()), axis=0) for record in records]
        return LayersOverSteps.of([(record["step"], mean) for record, mean in zip(records, means, strict=True)])

    def pairs(self, side: str) -> int:
        return len(gates(self.with_gates(side)[-1], "samples", side))

    def last_gates(self, side: str) -> dict[str, dict[str, list[float]]]:
        """Samples and probabilities of each layer, by language pair, with how many are selected in brackets."""
        last = self.with_gates(side)[-1]
        step, selected = f"step {last['step']:,}", _mapping(last, "layers_selected", side)
        probability = {
            f"{pair} ({selected[pair]})" if pair in selected else pair: row
            for pair, row in gates(last, "probability", side).items()
        }
        return {f"sample z, {step}": gates(last, "samples", side), f"probability, {step}": probability}

    def history(self, side: str) -> list[tuple[str, list[float]]]:
        """Samples at a few moments, a row for each pair; of many pairs, only the first of each moment has a name."""
        named = []
        for record in moments(self.with_gates(side)):
            rows = gates(record, "samples", side)
            for place, (pair, row) in enumerate(rows.items()):
                step = f"step {record['step']:,}" if place == 0 else ""
                name = "" if pair == WITHOUT_PAIRS or len(rows) > 4 else pair
                named.append((f"{step}  {name}".strip(), row))
        return named


def read_log(run: Path) -> list[Record]:
    """The records in order. The last line may be torn: a run may be writing it, or have been killed over it."""
    path = run / LOG
    lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    records = []
    for number, line in enumerate(lines, 1):
        if math.isfinite(read_step(line)):
            records.append(json.loads(line))
        elif number < len(lines):
            raise UserError(f"{path} is damaged in line {number}: that is no record of a run; remove the line")
    return records


def _is_foreign(run: Path) -> bool:
    """Whether there is something, but neither a record nor the beginning of one."""
    start = '{"kind": "'
    text = (run / LOG).read_text("utf-8", "replace")
    return text[: len(start)] != start[: len(text)]


def read_step(line: str) -> float:
    """Infinite for what is no record, such as a torn last line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def read_run(label: str, run: Path) -> TrainingRun:
    if not run.exists():
        raise UserError(f"there is no run at {run}")
    if not (run / LOG).is_file():
        raise UserError(f"{run} is not the folder of a run: it has no {LOG}")
    found = TrainingRun.of(label, read_log(run))
    if found.train:
        return found
    if _is_foreign(run):
        raise UserError(f"{run / LOG} is no log of a run: give the folder of a run")
    if found.diverged or (run / FINISHED).exists():
        raise UserError(f"{run} ended before its first log record: train again with a lower train.log_every")
    advice = "wait until train.log_every updates are done, or give another run"
    raise UserError(f"{run / LOG} has no record of training yet: {advice}")


def moments(records: Sequence[Record]) -> list[Record]:
    """A few of them, more at the beginning, the last one always."""
    last = records[-1]["step"]
    nearest = [min(records, key=lambda record: abs(record["step"] - share * last)) for share in MOMENTS]
    return list({record["step"]: record for record in nearest}.values())


def in_order(sides: Iterable[str]) -> list[str]:
    """Each once, in the order in which data flows."""
    return sorted(dict.fromkeys(sides), key=lambda side: side == "decoder")


def gates(record: Record, kind: str, side: str) -> dict[str, list[float]]:
    """The samples or probabilities of each layer, by language pair."""
    return {pair: [_number(value) for value in values] for pair, values in _mapping(record, kind, side).items()}


def _mapping(record: Record, *keys: str) -> dict[str, Any]:
    """What is below these keys; nothing where a record has no such thing."""
    found: Any = record
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, dict) else {}


def _by_depth(values: Any) -> dict[str, float]:
    """From one value, a value for each depth, or such for each language pair and their mean."""
    if not isinstance(values, dict):
        return {"": _number(values)}
    pairs = [below for name, below in values.items() if isinstance(below, dict) and name != "mean"]
    if not pairs:
        return {name: _number(value) for name, value in values.items()}
    return {depth: fmean(_number(below.get(depth)) for below in pairs) for depth in pairs[0]}


def _number(value: Any) -> float:
    """Also from text, since JSON knows no infinity."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan

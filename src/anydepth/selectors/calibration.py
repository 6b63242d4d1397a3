"""The calibration: what each depth costs on this machine and how good it is, kept beside the model.

A cost is a straight line over the length of a source sentence in subwords, the end of sentence included.

calibration.json    in the model folder or, where that is read-only, <fingerprint>.json in the user's cache: a record
                    for each machine, device, number of threads, beam, language pair and engine; the newest of each
"""

import errno
import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from platformdirs import user_cache_path
from pydantic import AfterValidator, Field, TypeAdapter

from anydepth.config.section import Finite
from anydepth.depth import DepthMenu
from anydepth.device import processor
from anydepth.errors import UserError
from anydepth.files import write_atomically

if TYPE_CHECKING:  # a budget is kept without it
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
NAME = "calibration.json"
NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)
FEWEST_DEPTHS = 6  # to smooth costs over

Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Cost(Protocol):
    def seconds(self, source_lengths: Sequence[int]) -> float:
        """Mean seconds per sentence when these are translated in one call."""
        ...


@dataclass(frozen=True)
class LengthCost:
    """Seconds of a sentence as a straight line over its length."""

    base: NonNegative
    per_token: NonNegative

    def seconds(self, source_lengths: Sequence[int]) -> float:
        return self.at(sum(source_lengths) / len(source_lengths)) if source_lengths else 0.0

    def at(self, mean_length: float) -> float:
        return self.base + self.per_token * mean_length

    @classmethod
    def fit(cls, lengths: Sequence[int], seconds: Sequence[float]) -> "LengthCost":
        """Least squares with neither part below 0. The mean over these sentences is kept, for that is what a budget
        promises: the line goes through the point of the means, and only its slope is free.
        """
        if not lengths or len(lengths) != len(seconds):
            raise UserError("a cost needs as many times as sentences, and at least one")
        import numpy as np

        x, y = np.asarray(lengths, dtype=float), np.asarray(seconds, dtype=float)
        spread = float(((x - x.mean()) ** 2).sum())
        slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else 0.0
        # The error is a parabola in the slope, so that the nearest slope allowed is the best one allowed.
        slope = min(max(slope, 0.0), float(y.mean() / x.mean()))
        return cls(max(0.0, float(y.mean()) - slope * float(x.mean())), slope)


def by_layers(
    costs: Mapping[str, LengthCost], layers: Mapping[str, tuple[int, int]], mean_length: float
) -> dict[str, LengthCost]:
    """The same costs as a fixed part and a part for each encoder and each decoder layer, where there are many depths.

    Time is additive in layers; what is measured is that plus the noise of a busy machine, which this evens out. Errors
    count relative to the time at the mean length, so that the fast depths are as exact as the slow ones. With few
    depths there is nothing to even out, and they stay as they are.
    """
    if len(costs) < FEWEST_DEPTHS:
        return dict(costs)
    import numpy as np

    parts_k3 = np.array([[1.0, *layers[name]] for name in costs])
    mean_k = np.array([cost.at(mean_length) for cost in costs.values()])
    slope_k = np.array([cost.per_token for cost in costs.values()])
    mean_k, slope_k = (_fitted(parts_k3, value_k, 1 / np.maximum(mean_k, 1e-9)) for value_k in (mean_k, slope_k))
    slope_k = np.minimum(slope_k, mean_k / mean_length)
    lines = zip(costs, (mean_k - slope_k * mean_length).tolist(), slope_k.tolist(), strict=True)
    return {name: LengthCost(max(0.0, base), slope) for name, base, slope in lines}


def _fitted(
    parts_k3: "NDArray[np.float64]", value_k: "NDArray[np.float64]", weight_k: "NDArray[np.float64]"
) -> "NDArray[np.float64]":
    """Weighted least squares without negative parts."""
    import numpy as np

    used = list(range(parts_k3.shape[1]))
    while True:
        part_of = np.linalg.lstsq(parts_k3[:, used] * weight_k[:, None], value_k * weight_k, rcond=None)[0]
        if len(used) == 1 or part_of.min() >= 0:
            return np.maximum(parts_k3[:, used] @ part_of, 0.0)
        del used[int(part_of.argmin())]


@dataclass(frozen=True)
class BatchCost:
    """From times at batch 1 and in batches of `measured` sentences, those in batches of at most `batch_size`.

    Part of the time of a batch is there however many sentences share it, so that a sentence's time falls with the
    inverse of their number. Larger batches than measured count as if they were no faster.
    """

    single: LengthCost
    batched: LengthCost
    measured: float
    batch_size: int

    def seconds(self, source_lengths: Sequence[int]) -> float:
        if not source_lengths:
            return 0.0
        alone = self._likeness_to_single(sentences_per_batch(len(source_lengths), self.batch_size))
        return alone * self.single.seconds(source_lengths) + (1 - alone) * self.batched.seconds(source_lengths)

    def _likeness_to_single(self, size: float) -> float:
        if self.measured <= 1:
            return 1.0
        return max(0.0, (1 / size - 1 / self.measured) / (1 - 1 / self.measured))


def sentences_per_batch(sentences: int, batch_size: int) -> float:
    """The mean over the batches of a call, the last of which may be smaller."""
    return sentences / math.ceil(sentences / batch_size)


def typical_seconds(passes: Sequence[Sequence[float]]) -> list[float]:
    """One time per sentence from several passes over all of them: the median, scaled so that the mean over the
    sentences is that of the median pass.

    Medians alone would leave out every interruption, although a user waits for the usual number of them.
    """
    import numpy as np

    medians = np.median(np.asarray(passes, dtype=float), axis=0)
    mean = float(np.median([np.mean(times) for times in passes]))
    return [float(value) for value in medians * (mean / medians.mean())]


def _with_bleu(quality: dict[str, float]) -> dict[str, float]:
    if "bleu" not in quality:
        raise ValueError("no BLEU")
    return quality


@dataclass(frozen=True)
class DepthCost:
    """Seconds per sentence at batch 1 and in batches, and the quality that this time buys."""

    single: LengthCost
    batched: LengthCost
    quality: Annotated[dict[str, Finite], AfterValidator(_with_bleu)]


@dataclass(frozen=True)
class CalibrationConditions:
    """How it was measured. The machine goes by a hash, the files by their bare names: model folders get uploaded."""

    machine: str
    device: str
    threads: int
    beam: int
    length_penalty: float
    batch_size: Count
    sentences_per_batch: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    repeats: int
    timed_sentences: int
    lines: int
    source_file: str
    reference_file: str
    date: str
    pair: str | None = None  # of a model of several language pairs
    engine: str = "torch"

    @property
    def key(self) -> tuple[str, str, int, int, str | None, str]:
        return self.machine, self.device, self.threads, self.beam, self.pair, self.engine


@dataclass(frozen=True)
class Calibration:
    """`lengths` counts the sentences of the calibration set by their length in subwords, EOS included."""

    conditions: CalibrationConditions
    lengths: dict[int, Count]
    depths: dict[str, DepthCost]

    @property
    def mean_length(self) -> float:
        return sum(length * count for length, count in self.lengths.items()) / max(1, sum(self.lengths.values()))

    def costs(self, batch_size: int) -> dict[str, BatchCost]:
        """What to expect of each depth in batches of `batch_size`."""
        measured = self.conditions.sentences_per_batch
        return {name: BatchCost(one.single, one.batched, measured, batch_size) for name, one in self.depths.items()}


@dataclass(frozen=True)
class _StoredCalibration:
    fingerprint: str
    calibration: Calibration


@cache
def _records() -> TypeAdapter[list[_StoredCalibration]]:
    return TypeAdapter(list[_StoredCalibration])


def save(calibration: Calibration, folder: Path | None, fingerprint: str) -> Path:
    """Put it beside the records of other machines and conditions; where it went to is returned."""
    return write_first(_places(folder, fingerprint), lambda path: _add(calibration, path, fingerprint))


def write_first(places: Sequence[Path], write: Callable[[Path], Path]) -> Path:
    """In the model folder, or in the cache where the folder is read-only."""
    for path in places:
        try:
            return write(path)
        except OSError as error:
            if error.errno not in NOT_PERMITTED:
                raise
    raise UserError(
        f"neither the model folder nor {places[-1].parent} can be written to: set XDG_CACHE_HOME to a folder of yours"
    )


def find(
    folder: Path | None,
    fingerprint: str,
    *,
    device: str,
    threads: int,
    beam: int,
    pair: str | None = None,
    engine: str = "torch",
) -> Calibration | None:
    """The newest for these weights under these conditions on this machine."""
    wanted = (machine_key(), device, threads, beam, pair, engine)
    return next((one for one in of_machine(folder, fingerprint) if one.conditions.key == wanted), None)


class RunningEngine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int: ...


class TimedModel(Protocol):
    """What choosing by time needs of a Translator."""

    menu: DepthMenu
    folder: Path | None
    languages: tuple[str, str]
    pair: str | None

    @property
    def fingerprint(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def engine(self) -> RunningEngine: ...


def find_for(translator: TimedModel, beam: int) -> Calibration | None:
    """The newest for this model as it runs now."""
    return find(
        translator.folder,
        translator.fingerprint,
        device=translator.device,
        threads=translator.engine.threads,
        beam=beam,
        pair=translator.pair,
        engine=translator.engine.name,
    )


def of_machine(folder: Path | None, fingerprint: str) -> list[Calibration]:
    """All for these weights on this machine, the newest first."""
    here = machine_key()
    records = [record for path in _places(folder, fingerprint) for record in _read(path)]
    found = [
        record.calibration
        for record in records
        if record.fingerprint == fingerprint and record.calibration.conditions.machine == here
    ]
    return sorted(found, key=lambda one: one.conditions.date, reverse=True)


def refuse_newer(folder: Path | None, fingerprint: str) -> None:
    """Before any work: whether `save` would have to spoil the file of a newer anydepth."""
    for path in _places(folder, fingerprint):
        _read(path, damaged_is_empty=True)


def machine_key() -> str:
    """The same for the same computer, and telling nobody which one it is."""
    parts = (platform.node(), platform.machine(), processor(), str(os.cpu_count()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def places(folder: Path | None, fingerprint: str, name: str) -> list[Path]:
    """Where records of this kind, such as calibration.json, may be: in the model folder and in the user's cache."""
    cached = user_cache_path("anydepth") / Path(name).stem / f"{fingerprint}.json"
    return [*([] if folder is None else [folder / name]), cached]


def _places(folder: Path | None, fingerprint: str) -> list[Path]:
    return places(folder, fingerprint, NAME)


def _add(calibration: Calibration, path: Path, fingerprint: str) -> Path:
    """Records of other weights are of no use to anyone: these are the ones in the folder now."""
    kept = [
        record
        for record in _read(path, damaged_is_empty=True)
        if record.fingerprint == fingerprint and record.calibration.conditions.key != calibration.conditions.key
    ]
    write_atomically(path, _json([*kept, _StoredCalibration(fingerprint, calibration)]))
    return path


def _read(path: Path, damaged_is_empty: bool = False) -> list[_StoredCalibration]:
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] > FORMAT:
            raise UserError(f"{path} was written by a newer anydepth: upgrade anydepth, or delete the file")
        return _records().validate_python(content["records"])
    except (FileNotFoundError, PermissionError):  # a cache or a folder that is closed to us holds nothing for us
        return []
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        if damaged_is_empty:
            return []
        advice = "run `anydepth calibrate` again, which replaces it, or delete it"
        raise UserError(f"{path} is damaged: {advice}") from error


def _json(records: Iterable[_StoredCalibration]) -> str:
    rows = [asdict(record) for record in records]
    for row in rows:
        if row["calibration"]["conditions"]["pair"] is None:
            del row["calibration"]["conditions"]["pair"]
    content: dict[str, Any] = {"format": FORMAT, "records": rows}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

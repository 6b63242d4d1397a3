"""The calibration: what each depth costs on this machine and how good it is, kept beside the model.

calibration.json    in the model folder or, where that is read-only, <fingerprint>.json in the user's cache: a record
                    for each machine, device, number of threads, beam, language pair and engine; the newest of each
"""

import errno
import hashlib
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from platformdirs import user_cache_path
from pydantic import AfterValidator, Field, TypeAdapter

from anydepth.errors import UserError
from anydepth.files import write_atomically
from anydepth.selectors.cost import BatchCost, LengthCost

FORMAT = 1
NAME = "calibration.json"
NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)

Count = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


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
class Conditions:
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
    """`lengths` counts the sentences of the calibration set by their length, as in selectors/cost.py."""

    conditions: Conditions
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
class _Record:
    fingerprint: str
    calibration: Calibration


_RECORDS = TypeAdapter(list[_Record])


class DamagedError(UserError):
    """What is there is no calibration."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is damaged: run `anydepth calibrate` again, which replaces it, or delete it")


def save(calibration: Calibration, folder: Path | None, fingerprint: str) -> Path:
    """Put it beside the records of other machines and conditions; where it went to is returned."""
    cached = _cache_path(fingerprint)
    if folder is not None:
        try:
            return _add(calibration, folder / NAME, fingerprint)
        except OSError as error:
            if error.errno not in NOT_PERMITTED:
                raise
    try:
        return _add(calibration, cached, fingerprint)
    except OSError as error:
        if error.errno not in NOT_PERMITTED:
            raise
        raise UserError(
            f"neither the model folder nor {cached.parent} can be written to: set XDG_CACHE_HOME to a folder of yours"
        ) from error


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
        _read_or_nothing(path)


def machine_key() -> str:
    """The same for the same computer, and telling nobody which one it is."""
    parts = (platform.node(), platform.machine(), _processor(), str(os.cpu_count()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Its model; on Linux platform.processor() does not know it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _cache_path(fingerprint: str) -> Path:
    return user_cache_path("anydepth") / "calibration" / f"{fingerprint}.json"


def _places(folder: Path | None, fingerprint: str) -> list[Path]:
    return [*([] if folder is None else [folder / NAME]), _cache_path(fingerprint)]


def _add(calibration: Calibration, path: Path, fingerprint: str) -> Path:
    """Records of other weights are of no use to anyone: these are the ones in the folder now."""
    kept = [
        record
        for record in _read_or_nothing(path)
        if record.fingerprint == fingerprint and record.calibration.conditions.key != calibration.conditions.key
    ]
    write_atomically(path, _json([*kept, _Record(fingerprint, calibration)]))
    return path


def _read_or_nothing(path: Path) -> list[_Record]:
    try:
        return _read(path)
    except DamagedError:
        return []


def _read(path: Path) -> list[_Record]:
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] > FORMAT:
            raise UserError(f"{path} was written by a newer anydepth: upgrade anydepth, or delete the file")
        return _RECORDS.validate_python(content["records"])
    except (FileNotFoundError, PermissionError):  # a cache or a folder that is closed to us holds nothing for us
        return []
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise DamagedError(path) from error


def _json(records: Iterable[_Record]) -> str:
    rows = [asdict(record) for record in records]
    for row in rows:
        if row["calibration"]["conditions"]["pair"] is None:
            del row["calibration"]["conditions"]["pair"]
    content: dict[str, Any] = {"format": FORMAT, "records": rows}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

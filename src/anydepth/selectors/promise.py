"""The promise: an exit rule with which a share of all sentences keeps the text of the full depth, stored by the model.

A sentence keeps its text if the chrF against that of the full depth is at least the tolerance. Rules are tested from
conservative to bold on sentences without references: learn then test (Angelopoulos et al. 2021) with fixed sequence
testing, as in CALM (Schuster et al. 2022). The p-value of "more than 1 - keep of all sentences change" is the exact
tail of the binomial distribution. The last rule before the first that fails is taken, so that a promise is wrong with
a probability of at most 5%, for text that is sampled as that of the calibration.

promises.json       in the model folder or, where that is read-only, <fingerprint>.json in the user's cache: a record
                    for each share, depth, beam, engine, shortlist and language pair; the newest of each
"""

import json
import logging
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

from pydantic import Field, TypeAdapter

from anydepth.config.section import Finite
from anydepth.errors import UserError
from anydepth.files import write_atomically
from anydepth.selectors.calibration import Count, NonNegative, RunningEngine, TimedModel, places, write_first

FORMAT = 1
NAME = "promises.json"
CONFIDENCE = 0.95
TOLERANCE = 80.0  # chrF of a sentence
ENOUGH, FEWEST = 200, 20  # sentences by which a text is compared with that of the calibration
STATISTICS = {"subwords_per_character": "subwords per character", "subwords": "subwords per sentence",
              "decoder_layers": "decoder layers per token"}  # fmt: skip
HOW_TO_WRITE = "write a share of sentences such as 99% or 0.99"

Result = TypeVar("Result")
log = logging.getLogger(__name__)


def parse_keep(keep: str | float) -> float:
    """From 99%, "0.99" or 0.99."""
    percent = isinstance(keep, str) and keep.strip().endswith("%")
    try:
        value = float(keep.strip().removesuffix("%") if isinstance(keep, str) else keep)
    except (TypeError, ValueError):
        value = math.nan
    value = round(value / 100, 12) if percent else value
    if isinstance(keep, bool) or not 0.5 <= value <= 1:
        example = f" (perhaps {keep}%?)" if not percent and 1 < value <= 100 else ""
        raise UserError(f"{keep!r} is not a promise{example}: {HOW_TO_WRITE}, from 50% to 100%")
    return value


def as_percent(share: float) -> str:
    return f"{100 * share:.6g}%"


def p_value(changed: int, sentences: int, keep: float) -> float:
    """The probability of at most so many changed sentences if a share of 1 - keep of all changes."""
    if not 0 <= changed <= sentences or not 0 < keep < 1:
        raise ValueError(f"{changed} of {sentences} at {keep}")
    logs = [
        math.lgamma(sentences + 1)
        - math.lgamma(k + 1)
        - math.lgamma(sentences - k + 1)
        + k * math.log1p(-keep)
        + (sentences - k) * math.log(keep)
        for k in range(changed + 1)
    ]
    most = max(logs)
    return min(1.0, math.exp(most) * math.fsum(math.exp(one - most) for one in logs))


def sentences_needed(keep: float) -> int:
    """The fewest that can show it: with them, none may change."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(keep) - 1e-9)


@dataclass(frozen=True)
class Spread:
    """Over sentences; the deviation is of a sample."""

    mean: Finite
    deviation: NonNegative

    @classmethod
    def over(cls, values: Sequence[float]) -> "Spread":
        mean = _mean(values)
        return cls(mean, math.sqrt(math.fsum((x - mean) ** 2 for x in values) / max(1, len(values) - 1)))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class Promise:
    """What was shown for one way of translating. Without a `margin` no rule kept it, and the full depth runs.

    `exits` are those of the rule. `changed` counts the sentences of the calibration whose texts it changed, `layers` is
    their mean number of decoder layers per token, and `time_ratio` the time against the full depth in batches of
    `batch_size`, on the machine of the calibration.
    """

    keep: Annotated[float, Field(ge=0.5, lt=1)]
    depth: str
    beam: Count
    length_penalty: Finite
    engine: str
    shortlist: bool
    margin: NonNegative | None
    exits: tuple[Count, ...]
    tolerance: Annotated[float, Field(gt=0, le=100)]
    confidence: float
    sentences: Count
    changed: Annotated[int, Field(ge=0)]
    layers: NonNegative
    time_ratio: NonNegative
    batch_size: Count
    source_file: str
    date: str
    text: dict[str, Spread] = field(default_factory=dict)  # by the names in STATISTICS
    pair: str | None = None  # of a model of several language pairs

    @property
    def key(self) -> tuple[object, ...]:
        """A beam of one has no use for a length penalty."""
        penalty = self.length_penalty if self.beam > 1 else 0.0
        return self.depth, self.beam, penalty, self.engine, self.shortlist, self.pair

    @property
    def rule(self) -> str:
        return "full depth" if self.margin is None else f"margin:{self.margin:g}"


@dataclass(frozen=True)
class _StoredPromise:
    fingerprint: str
    promise: Promise


@cache
def _records() -> TypeAdapter[list[_StoredPromise]]:
    return TypeAdapter(list[_StoredPromise])


def save(promise: Promise, folder: Path | None, fingerprint: str) -> Path:
    """Put it beside the others of these weights; where it went to is returned."""

    def add(path: Path) -> Path:
        kept = [
            record
            for record in _read(path, damaged_is_empty=True)
            if record.fingerprint == fingerprint
            and (record.promise.keep, record.promise.key) != (promise.keep, promise.key)
        ]
        rows = [asdict(record) for record in [*kept, _StoredPromise(fingerprint, promise)]]
        write_atomically(path, json.dumps({"format": FORMAT, "records": rows}, indent=1, ensure_ascii=False) + "\n")
        return path

    return write_first(places(folder, fingerprint, NAME), add)


def load_all(folder: Path | None, fingerprint: str) -> list[Promise]:
    """All for these weights, the newest first."""
    records = [record for path in places(folder, fingerprint, NAME) for record in _read(path)]
    found = [record.promise for record in records if record.fingerprint == fingerprint]
    return sorted(found, key=lambda one: one.date, reverse=True)


def find(promises: Iterable[Promise], keep: float, key: tuple[object, ...]) -> Promise | None:
    """Of those for this way of translating the weakest that is strict enough; the first of equal ones."""
    fitting = [one for one in promises if one.key == key and one.keep >= keep]
    return min(fitting, key=lambda one: one.keep, default=None)


class _Engine(RunningEngine, Protocol):
    @property
    def search_shortlist(self) -> bool: ...


class TranslatingModel(TimedModel, Protocol):
    """What finding a promise needs of a Translator."""

    @property
    def engine(self) -> _Engine: ...


def find_for(model: TranslatingModel, keep: float, depth: str, beam: int, length_penalty: float) -> Promise | None:
    """For this model as it runs now; None for 100%, which needs none. Where there is none, the error says what to
    run."""
    if keep == 1:
        log.info(f"depth {depth}: 100% is the text of the full depth")
        return None
    engine, penalty = model.engine, length_penalty if beam > 1 else 0.0
    key = (depth, beam, penalty, engine.name, engine.search_shortlist, model.pair)
    stored = load_all(model.folder, model.fingerprint)
    found = find(stored, keep, key)
    if found is None:
        others = dict.fromkeys(f"{as_percent(one.keep)} for {_conditions(one)}" for one in stored)
        there = f"; there is {', '.join([*others][:3])}" if others else ""
        raise UserError(f"no promise of {as_percent(keep)} has been calibrated for {depth}{there}: run "
                        f"`{_command(model, keep, depth, beam, length_penalty)}`")  # fmt: skip
    log.info(
        f"depth {depth}, {found.rule}: keeps {as_percent(found.keep)} of sentences at chrF {found.tolerance:g} or more "
        f"against {depth}, as calibrated on {found.source_file}"
    )
    return found


def _conditions(one: Promise) -> str:
    shortlist = "the shortlist" if one.shortlist else "no shortlist"
    return f"{one.depth}, beam {one.beam}, {one.engine}, {shortlist}"


def _command(model: TranslatingModel, keep: float, depth: str, beam: int, length_penalty: float) -> str:
    engine, folder = model.engine, "MODEL" if model.folder is None else shlex.quote(str(model.folder))
    command = f"anydepth calibrate {folder} --source FILE --keep {as_percent(keep)} --depth {depth}"
    if model.pair is not None:
        command += " --from {} --to {}".format(*map(shlex.quote, model.languages))
    if beam != 1:
        command += f" --beam {beam} --length-penalty {length_penalty:g}"
    command += f" --engine {engine.name}"
    return command + (" --no-shortlist" if engine.name == "native" and not engine.search_shortlist else "")


def refuse_newer(folder: Path | None, fingerprint: str) -> None:
    """Before any work: whether `save` would have to spoil the file of a newer anydepth."""
    for path in places(folder, fingerprint, NAME):
        _read(path, damaged_is_empty=True)


def _read(path: Path, damaged_is_empty: bool = False) -> list[_StoredPromise]:
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] > FORMAT:
            raise UserError(f"{path} was written by a newer anydepth: upgrade anydepth, or delete the file")
        return _records().validate_python(content["records"])
    except (FileNotFoundError, PermissionError):
        return []
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        if damaged_is_empty:
            return []
        advice = "run `anydepth calibrate --keep` again, which replaces it, or delete it"
        raise UserError(f"{path} is damaged: {advice}") from error


class TextCheck:
    """Compares the first sentences of a text with those of the calibration, and warns once if a mean is further off
    than a deviation."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.values: Mapping[str, list[float]] = {name: [] for name in STATISTICS}
        self.is_done = False

    def add(self, text: str, subwords: int, decoder_layers: float) -> None:
        if self.is_done:
            return
        for name, value in sentence_statistics(text, subwords, decoder_layers).items():
            self.values[name].append(value)
        if len(self.values["subwords"]) >= ENOUGH:
            self.finish()

    def finish(self) -> None:
        """At the end of a text. Of a few sentences nothing is said."""
        if self.is_done or len(self.values["subwords"]) < FEWEST:
            return
        self.is_done = True
        found = {name: _mean(values) for name, values in self.values.items()}
        there = {name: one for name, one in self.promise.text.items() if name in found and one.deviation}
        off = {name: abs(found[name] - one.mean) / one.deviation for name, one in there.items()}
        furthest = max(off, key=lambda name: off[name], default=None)
        if furthest is not None and off[furthest] > 1:
            log.warning(
                f"this text is unlike {self.promise.source_file}, so the promise does not cover it: "
                f"{found[furthest]:.3g} {STATISTICS[furthest]}, there {there[furthest].mean:.3g} "
                f"± {there[furthest].deviation:.2g}; calibrate on text like this"
            )

    def over(self, results: Iterable[Result]) -> Iterator[Result]:
        """The same results, with `finish` at their end."""
        yield from results
        self.finish()


def sentence_statistics(text: str, subwords: int, decoder_layers: float) -> dict[str, float]:
    """Of one sentence; `subwords` as the encoder reads it."""
    values = (subwords / max(1, len(text)), float(subwords), decoder_layers)
    return dict(zip(STATISTICS, values, strict=True))

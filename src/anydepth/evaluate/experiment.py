"""What experiments have in common: models and their depths, conditions, means, the machine's load, records in menus."""

import logging
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from anydepth.artifact import saving
from anydepth.depth import DepthMenu, MenuEntry
from anydepth.depth.assignment import assign, make_menu
from anydepth.device import cores as usable_cores
from anydepth.errors import UserError
from anydepth.evaluate.report import Details, Terms
from anydepth.infer.translator import Translator

Families = dict[str, tuple[Translator, ...]]
Translators = Mapping[str, Translator | Sequence[Translator]]
DEFAULT_COMPUTE_TYPES = {"torch": "float32", "native": "int8", "ctranslate2": "float32"}
WORDS_TO_BE_TELLING = 5
SEARCH = ("beam", "length_penalty", "batch_size", "cut_long")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOptions:
    """How a test set is translated, and what its files are called in a report.

    Times are medians of `repeats` passes. `samples` and `seed` are those of a paired bootstrap, which with `over_seeds`
    draws the seeds of the models, too.
    """

    beam: int = 1
    length_penalty: float = 0.6
    batch_size: int = 32
    cut_long: bool = False
    source_name: str = ""
    reference_name: str = ""
    repeats: int = 3
    samples: int = 1000
    seed: int = 1
    over_seeds: bool = False

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise UserError(f"{self.repeats} passes measure nothing: give 1 or more")

    @property
    def search(self) -> dict[str, Any]:
        """As the translator takes them."""
        return {name: getattr(self, name) for name in SEARCH}


@dataclass(frozen=True)
class Mean:
    """A mean over models or seeds; the deviation is of a sample, and there is none of a single value."""

    mean: float
    deviation: float | None

    @classmethod
    def over(cls, values: Iterable[float]) -> "Mean":
        found = list(values)
        return cls(fmean(found), stdev(found) if len(found) > 1 else None)

    def shown(self, digits: int) -> str:
        return f"{self.mean:.{digits}f}" + ("" if self.deviation is None else f" ± {self.deviation:.{digits}f}")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("anydepth", "torch", "sacrebleu"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    return found


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine, the moment and the software, without which times mean nothing."""

    device: str
    threads: int
    machine: str = field(default_factory=platform.machine)
    date: str = field(default_factory=now)
    versions: dict[str, str] = field(default_factory=versions)

    @property
    def runs_on(self) -> str:
        return f"{self.device}, {counted(self.threads, 'thread')}"

    def terms(self) -> dict[str, str]:
        """For the end of a report."""
        return {"versions": ", ".join(f"{name} {number}" for name, number in self.versions.items()), "date": self.date}


@dataclass(frozen=True)
class Conditions(Environment):
    """How translations were made and timed. Files go by their bare names, so that a report can be shown to anyone."""

    source_file: str
    reference_file: str
    lines: int
    beam: int
    length_penalty: float
    batch_size: int
    cut_long: bool
    repeats: int
    engine: str = "torch"
    forced: str | None = None  # the strategy whose depths were measured in place of the models' own
    other_load: float | None = None  # cores that other programs kept busy meanwhile, where it is known

    @classmethod
    def here(
        cls,
        families: Mapping[str, Sequence[Translator]],
        lines: int,
        options: RunOptions,
        forced: str | None = None,
    ) -> "Conditions":
        """On this machine, now."""
        every = [one for members in families.values() for one in members]
        return cls(
            source_file=Path(options.source_name).name,
            reference_file=Path(options.reference_name).name,
            lines=lines,
            **options.search,
            repeats=options.repeats,
            forced=forced,
            device=", ".join(dict.fromkeys(one.device for one in every)),
            threads=max(one.engine.threads for one in every),
            engine=", ".join(dict.fromkeys(one.engine.name for one in every)),
        )

    @property
    def engines(self) -> str:
        """What ran, such as "native engine, int8, cpu, 2 threads"."""
        named = []
        for one in self.engine.split(", "):
            name, _, compute_type = one.partition(" ")
            named.append(f"{name} engine, {compute_type or DEFAULT_COMPUTE_TYPES.get(name, 'float32')}")
        return f"{' and '.join(named)}, {self.runs_on}"

    @property
    def files(self) -> str:
        return " and ".join(filter(None, (self.source_file, self.reference_file))) or "unnamed"

    @property
    def lead(self) -> str:
        """Such as "40 sentences of test.fr, beam 1, batches of 32; native engine, int8, cpu, 2 threads; 2026-01-02"."""
        of_file = f" of {self.source_file}" if self.source_file else ""
        search = f"beam {self.beam}, batches of {self.batch_size}"
        return f"{counted(self.lines, 'sentence')}{of_file}, {search}; {self.engines}; {self.date[:10]}"

    @property
    def is_machine_busy(self) -> bool:
        """Whether other programs left fewer cores than the engine has threads."""
        return _leaves_too_few(self.other_load, self.threads)

    @property
    def doubt(self) -> str | None:
        """Why its times cannot be believed; None if they can."""
        return doubt_of_times([busy_cores(self.other_load)] if self.is_machine_busy else [])

    def details(self, signatures: Mapping[str, str], more: Mapping[str, str]) -> Details:
        """For the end of a report; `more` is what this experiment has to say besides."""
        cut = ", long sources cut" if self.cut_long else ""
        pairs = {
            "test set": f"{self.files}, {counted(self.lines, 'line')}",
            "search": f"beam {self.beam}, length penalty {self.length_penalty}, batches of {self.batch_size}{cut}",
            **more,
            "engine": self.engines,
            "machine": self.machine,
            **{f"{name} signature": text for name, text in signatures.items()},
            **self.terms(),
        }
        return Details("How this was measured", [Terms(pairs)])


class OtherLoad:
    """Measures, from its making on, how many cores other programs keep busy. Only Linux says."""

    def __init__(self) -> None:
        self._start = self._now()

    def cores(self) -> float | None:
        busy, own, wall = (after - before for before, after in zip(self._start, self._now(), strict=True))
        return max(0.0, busy - own) / wall if busy > 0 and wall > 0 else None

    def doubt(self, threads: int) -> str | None:
        """Why times of so many threads, measured meanwhile, cannot be believed; None if they can."""
        busy = self.cores()
        if busy is None or not _leaves_too_few(busy, threads):
            return None
        return doubt_of_times([busy_cores(busy)])

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds: of all cores, of this process, of the clock."""
        try:
            fields = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]
            user, nice, system, _idle, _waiting, irq, soft, steal = map(int, fields)
            busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            busy = 0.0
        return busy, time.process_time(), time.perf_counter()


def busy_cores(other_load: float | None) -> str:
    return f"other programs kept {other_load or 0:.1f} cores busy"


def doubt_of_times(reasons: Sequence[str]) -> str | None:
    """As a sentence, if there are reasons."""
    return f"Do not trust these times: {' and '.join(reasons)}." if reasons else None


def _leaves_too_few(other_load: float | None, threads: int) -> bool:
    return usable_cores() - (other_load or 0) < threads - 0.25


@dataclass
class DepthRun:
    """One depth of one model, with an exit rule of its tokens or without, and what its passes over the test set have
    given so far."""

    label: str
    translator: Translator
    entry: MenuEntry
    exit: str | None = None
    seconds: list[float] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    output_tokens: int = 0
    decoder_layers: float = 0.0  # the mean over the tokens

    @property
    def name(self) -> str:
        return self.entry.name if self.exit is None else f"{self.entry.name} {self.exit}"

    @property
    def layers(self) -> tuple[int, int]:
        return len(self.entry.subnetwork.encoder), len(self.entry.subnetwork.decoder)


@dataclass(frozen=True)
class Example:
    """A sentence, and its translation and chrF at each of some depths."""

    line: int
    source: str
    reference: str
    translations: dict[str, tuple[str, float]]

    @property
    def spread(self) -> float:
        scores = [chrf for _, chrf in self.translations.values()]
        return max(scores) - min(scores)

    def card(self) -> Terms:
        outputs = {f"{depth}, chrF {chrf:.0f}": text for depth, (text, chrf) in self.translations.items()}
        return Terms({"source": self.source, "reference": self.reference, **outputs}, boxed=True)


def pick_telling(examples: Iterable[Example], count: int) -> list[Example]:
    """Those whose depths differ most in chrF, in the order of the file.

    Very short ones come last whatever their spread: one wrong word of two says nothing.
    """
    ranked = sorted(examples, key=lambda one: (len(one.reference.split()) < WORDS_TO_BE_TELLING, -one.spread))
    return sorted(ranked[:count], key=lambda one: one.line)


def make_families(translators: Translators, force: str | None = None) -> Families:
    """A lone model is a family of one. With `force`, all have that strategy's depths, and labels that say so."""
    families = {label: (one,) if isinstance(one, Translator) else tuple(one) for label, one in translators.items()}
    if not families or not all(families.values()):
        raise UserError("give at least one model to evaluate")
    if force is None:
        return families
    return {f"{label} (forced {force})": (_forced(label, members, force),) for label, members in families.items()}


def make_runs(families: Families, depths: Sequence[str] | None = None) -> list[DepthRun]:
    """All depths, or `depths` alone, of each family in the order of its menu, or of `depths`."""
    wanted = None if depths is None else list(dict.fromkeys(depths))
    menus = {label: _menu(members) for label, members in families.items()}
    known = {name for menu in menus.values() for name in menu.names}
    runs = []
    for label, menu in menus.items():
        names = menu.names if wanted is None else [name for name in wanted if name in menu.names]
        unknown = [name for name in wanted or [] if name not in known]
        # The menu itself refuses what no model has, and the first wish if this model has none of them.
        refused = unknown or (wanted if wanted and not names else [])
        runs += [_run(label, families[label], menu[name].name) for name in [*refused, *names]]
    if not runs:
        raise UserError("there are no depths to measure: name at least one, or none to measure them all")
    return runs


def make_exit_runs(families: Families, rules: Sequence[str]) -> list[DepthRun]:
    """Each rule at the default and at the deepest depth of each model, where tokens may leave the decoder early."""
    runs = []
    for label, members in families.items():
        for member in members:
            menu, can = member.menu, member.engine.why_no_exits is None
            depths = dict.fromkeys(one.name for one in (menu.default, menu.deepest) if menu.exits(one.subnetwork))
            runs += [DepthRun(label, member, menu[depth], rule) for depth in depths for rule in rules if can]
    if rules and not runs:
        raise UserError(
            "tokens of these models cannot leave early on this engine: leave out exits=…, or give a tied-multi model "
            "of several decoder depths on the native engine"
        )
    return runs


def check_paired(sources: Sequence[str], references: Sequence[str]) -> None:
    if len(sources) != len(references):
        raise UserError(
            f"the source has {len(sources)} lines but the reference has {len(references)}: "
            "give two files that correspond line by line"
        )
    if not any(source.strip() for source in sources):
        raise UserError("there are no lines to translate: give a source and a reference file with text")


def measured_alike(menu: DepthMenu, depths: Iterable[str], measured_on: Mapping[str, Any]) -> bool:
    """Whether what the menu knows of other depths than these was measured in the same way, whenever that was.

    Costs from two machines in one menu would mislead whoever picks a depth by them.
    """
    if not any(entry.cost for entry in menu if entry.name not in set(depths)):
        return True
    before, after = ({**one, "date": None} for one in (menu.measured_on, measured_on))
    return before == after


def record_measurements(
    folder: Path, menu: DepthMenu, found: Mapping[str, tuple[dict[str, float], dict[str, float]]], on: dict[str, Any]
) -> bool:
    """Write cost and quality of depths into a model's menu and card; say if it was done."""
    for depth, (cost, quality) in found.items():
        menu.measured(depth, cost, quality)
    menu.measured_on = on
    try:
        saving.record_measurements(folder, menu)
    except OSError as error:
        log.warning(f"warning: the measurements are not recorded in {folder}: {error.strerror}")
        return False
    return True


def counted(count: int, what: str) -> str:
    """Such as "1 line" or "2,000 lines"."""
    return f"{count:,} {what}{'' if count == 1 else 'es' if what.endswith('s') else 's'}"


def with_figures(data: Any, *names: str) -> dict[str, Any]:
    """A dataclass for JSON, with these properties of it."""
    return asdict(data) | {name: getattr(data, name) for name in names}


def _forced(label: str, members: tuple[Translator, ...], strategy: str) -> Translator:
    """The same weights, at depths for which they may not have been trained."""
    if len(members) > 1:
        raise UserError(f"{label} is a family, and forced depths of its members would overlap: force single models")
    config = members[0].model.config
    encoder, decoder = assign(strategy, config.encoder_layers), assign(strategy, config.decoder_layers)
    menu = make_menu(encoder.chosen, decoder.chosen)
    return Translator(replace(members[0].loaded, menu=menu), members[0].engine)


def _menu(members: Sequence[Translator]) -> DepthMenu:
    entries: Iterable[MenuEntry] = [entry for member in members for entry in member.menu]
    if len(members) > 1:
        entries = sorted(entries, key=lambda entry: (len(entry.subnetwork.encoder), len(entry.subnetwork.decoder)))
    return DepthMenu(entries)


def _run(label: str, members: Sequence[Translator], depth: str) -> DepthRun:
    owners = [member for member in members if depth in member.menu.names]
    if len(owners) > 1:
        one, other = (str(owner.folder or "a model") for owner in owners[:2])
        raise UserError(f"{label}: {one} and {other} both have depth {depth}: keep one of the two in the family")
    return DepthRun(label, owners[0], owners[0].menu[depth])

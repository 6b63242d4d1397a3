"""Evaluate models that classify: accuracy, depth and speed of every model of every system.

A system has one model, or several of different seeds or folds. Those at the same place in their systems are measured
in the same round: few models are in memory at a time, and what is compared was timed in the same minutes.
"""

import platform
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import torch

from anydepth.artifact.model import resolve, short_name
from anydepth.data.corpus import read_labelled
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.evaluate.classification_result import (
    ALIKE,
    Evaluation,
    EvaluationConditions,
    ModelResult,
    Setting,
    SettingResult,
    SystemResult,
)
from anydepth.evaluate.experiment import now, versions
from anydepth.evaluate.explain import Explanation, explain
from anydepth.infer.classifier import Classification, Classifier
from anydepth.progress import progress_bar
from anydepth.word_depths.table import WordDepths

PART = re.compile(r"(seed|fold)-(\d+)")
KINDS = {"mi": "MI", "reconstruction": "reconstruction"}
ITSELF = "halting unit"
UNTIMED_BATCH = 32
SAMPLE_SEED = 1
WARM_UP_TEXTS = 16
MISTAKES, WORDS_OF_A_MISTAKE = 10, 120


@dataclass(frozen=True)
class LabelledTexts:
    """A test set, under the bare name of its file."""

    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, text_column: str = "text", label_column: str = "label") -> "LabelledTexts":
        texts, labels = zip(*read_labelled(path, text_column, label_column), strict=True)
        return cls(path.name, texts, labels)


@dataclass(frozen=True)
class Member:
    """One model, and the texts that it did not see in training."""

    name: str
    path: Path
    test: LabelledTexts
    word_depths: Path | None = None  # instead of its own
    special: str | None = None  # likewise
    unseen: str | None = None

    def load(self, device: str = "cpu") -> Classifier:
        classifier = Classifier.load(self.path, device=device)
        if not any((self.word_depths, self.special, self.unseen)):
            return classifier
        table = None if self.word_depths is None else WordDepths.load(self.word_depths)
        return classifier.with_word_depths(table, special=self.special, unseen=self.unseen)


@dataclass(frozen=True)
class EvaluationOptions:
    """What users asked for, checked."""

    depth: str | None = None
    scales: tuple[float, ...] = ()
    lambdas: tuple[float, ...] = ()
    exits: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = (1, 16)
    timed: int = 200
    repeats: int = 3
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise UserError("the batch sizes must be whole numbers of at least 1, such as 1,16")
        if min(self.timed, self.repeats) < 1:
            raise UserError("at least one text must be timed, and at least once")


@dataclass
class TimedSetting:
    """A model run in one way. `seconds` has, by batch size, the time that each round took per text."""

    classifier: Classifier
    setting: Setting
    seconds: dict[int, list[float]] = field(default_factory=dict)

    def classify(
        self, texts: Sequence[str], batch_size: int, progress: Callable[[int], None] = lambda count: None
    ) -> list[Classification]:
        setting = self.setting
        return self.classifier.classify(
            texts,
            depth=setting.depth,
            scale=setting.scale,
            lambda_=setting.lambda_,
            exit_rule=setting.exit_rule,
            batch_size=batch_size,
            progress=progress,
        )

    @property
    def median_seconds(self) -> dict[int, float]:
        return {size: median(rounds) for size, rounds in self.seconds.items()}


@dataclass(frozen=True)
class Plan:
    """The settings of a system, first the one it is judged by, then those of its curve. `kind` says by what its words
    have their depths. `full` is the depth at which all words run all layers, if that is another."""

    label: str
    members: Sequence[Member]
    kind: str
    settings: tuple[Setting, ...]
    full: Setting | None

    @property
    def main(self) -> Setting:
        return self.settings[0]

    @property
    def is_by_word(self) -> bool:
        return self.kind != ALIKE


@dataclass
class _Gathered:
    """What became known of a system so far."""

    plan: Plan
    results: dict[Setting, list[ModelResult]] = field(default_factory=dict)
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    mistakes: tuple[tuple[str, Explanation], ...] = ()

    def system(self) -> SystemResult:
        main, *curve = (SettingResult(setting, tuple(self.results[setting])) for setting in self.plan.settings)
        full = self.plan.full
        own = SettingResult(full, tuple(self.results[full])) if full is not None and full in self.results else None
        return SystemResult(self.plan.label, self.plan.kind, main, tuple(curve), own, dict(self.confusion))


@dataclass
class _Run:
    """A model of a system in this round: the ways it is run in, and what it found in each. `own` is the last way if
    that is of the same weights at full depth."""

    gathered: _Gathered
    member: Member
    ways: list[TimedSetting]
    own: TimedSetting | None
    found: list[list[Classification]] = field(default_factory=list)

    @property
    def timed(self) -> list[TimedSetting]:
        """The ways of a curve with the first model alone."""
        is_first = self.member is self.gathered.plan.members[0]
        return [way for way in self.ways if is_first or way is self.ways[0] or way is self.own]


def find_members(paths: Sequence[Path], test: LabelledTexts | None, word_depths: Path | None = None) -> list[Member]:
    """Of models, of finished runs, and of folders with runs seed-1, fold-1 and so on.

    A run on a fold has kept its own test set, and that counts; the others are tested on `test`.
    """
    members = []
    for path in paths:
        for run in list(_runs_in(path)):  # all of them finished, before any test set is read
            name = short_name(run) if run == path else str(run.relative_to(path))
            members.append(Member(name, run, _kept_test(run, name) or _needed(test, name), word_depths))
    return members


def evaluate(
    systems: Mapping[str, Sequence[Member]],
    options: EvaluationOptions,
    *,
    static: tuple[str, Sequence[Member]] | None = None,
) -> Evaluation:
    """`static` has the models that all others are compared with; without it each is with its own weights at full depth.

    The ways of a curve, one for each scale and lambda, are timed with the first model of a system alone.
    """
    if static and static[0] in systems:
        raise UserError(f"two systems are called {static[0]}: name one of them, NAME=PATH")
    everyone = {**({static[0]: static[1]} if static else {}), **systems}
    plans = [*([_make_static_plan(*static, options)] if static else []), *_make_plans(systems, options)]
    gathered = [_Gathered(plan) for plan in plans]
    tests = dict.fromkeys(member.test for members in everyone.values() for member in members)
    texts = sample_texts((text for test in tests for text in test.texts), options.timed)
    rounds = max(map(len, everyone.values()))
    for number in range(rounds):
        said = f" by models {number + 1} of {rounds}" if rounds > 1 else ""
        _round(gathered, number, texts, options, static is not None, said)
    shown = next((one for one in gathered if one.mistakes), None)
    return Evaluation(
        tuple(one.system() for one in gathered),
        static[0] if static else None,
        tuple(sorted({label for one in gathered for pair in one.confusion for label in pair})),
        EvaluationConditions(
            tests=tuple((test.name, len(test.texts)) for test in tests),
            batch_sizes=options.batch_sizes,
            timed=len(texts),
            repeats=options.repeats,
            device=options.device,
            threads=torch.get_num_threads(),
            machine=platform.machine(),
            date=now(),
            versions=versions(),
        ),
        shown.plan.label if shown else "",
        shown.mistakes if shown else (),
    )


def at_full_depth(classifier: Classifier) -> Classifier:
    """The same weights with all words at full depth, whatever the menu says."""
    menu = DepthMenu.of([_full_depth(classifier)])
    return Classifier(replace(classifier.loaded, menu=menu, token_depths=None), classifier.engine)


def sample_texts(texts: Iterable[str], count: int) -> list[str]:
    """The first of all texts in an order that is always the same. Short ones then come first, so that texts of a batch
    are alike in length, as they are in files."""
    mixed = list(texts)
    random.Random(SAMPLE_SEED).shuffle(mixed)
    return sorted(mixed[:count], key=len)


def _round(
    gathered: Sequence[_Gathered],
    number: int,
    texts: Sequence[str],
    options: EvaluationOptions,
    has_static: bool,
    said: str,
) -> None:
    """The models at one place of all systems; of a static system with fewer of them it begins again."""
    there = [one for one in gathered if number < len(one.plan.members)]
    runs = [_load(one, number, options, has_static) for one in there]
    with progress_bar(f"texts classified{said}", sum(len(run.member.test.texts) * len(run.ways) for run in runs)) as on:
        for run in runs:
            run.found = [way.classify(run.member.test.texts, UNTIMED_BATCH, on) for way in run.ways]
    timed = [way for run in runs for way in run.timed]
    reference: TimedSetting | None = None
    if has_static and gathered[0] is there[0]:
        reference = runs[0].ways[0]
    elif has_static:
        reference = _load(gathered[0], number % len(gathered[0].plan.members), options, has_static).ways[0]
        timed.append(reference)
    total = len(timed) * len(texts) * len(options.batch_sizes) * options.repeats
    with progress_bar(f"texts timed{said}", total) as on:
        _time_ways(timed, texts, options.batch_sizes, options.repeats, on)
    for run in runs:
        _gather(run, reference or run.own or run.ways[0])


def _load(gathered: _Gathered, number: int, options: EvaluationOptions, has_static: bool) -> _Run:
    plan, member = gathered.plan, gathered.plan.members[number]
    classifier = member.load(options.device)
    ways = [TimedSetting(classifier, setting) for setting in plan.settings]
    own = None if plan.full is None or has_static else TimedSetting(at_full_depth(classifier), plan.full)
    return _Run(gathered, member, [*ways, *([own] if own else [])], own)


def _gather(run: _Run, reference: TimedSetting) -> None:
    gathered, test = run.gathered, run.member.test
    for way, found in zip(run.ways, run.found, strict=True):
        gathered.results.setdefault(way.setting, []).append(_model_result(run.member, found, way, reference))
    main = run.found[0]
    gathered.confusion.update(zip(test.labels, (one.label for one in main), strict=True))
    if gathered.plan.is_by_word and not gathered.mistakes:
        gathered.mistakes = _mistakes(run.ways[0].classifier, gathered.plan, run.member, main)


def _model_result(
    member: Member, found: Sequence[Classification], way: TimedSetting, reference: TimedSetting
) -> ModelResult:
    return ModelResult(
        member=member.name,
        test=member.test.name,
        texts=len(found),
        right=sum(one.label == label for one, label in zip(found, member.test.labels, strict=True)),
        tokens=sum(one.tokens for one in found),
        computed=sum(one.computed for one in found),
        layers=way.classifier.model.config.encoder_layers,
        seconds=way.median_seconds,
        static_seconds=reference.median_seconds if way.seconds else {},
    )


def _mistakes(
    classifier: Classifier, plan: Plan, member: Member, found: Sequence[Classification]
) -> tuple[tuple[str, Explanation], ...]:
    """Those that the model was surest of, each with the true label."""
    test = member.test
    wrong = [place for place, one in enumerate(found) if one.label != test.labels[place]]
    wrong.sort(key=lambda place: -found[place].probability)
    return tuple(
        (
            test.labels[place],
            explain(classifier, test.texts[place], member.name, depth=plan.main.depth).first(WORDS_OF_A_MISTAKE),
        )
        for place in wrong[:MISTAKES]
    )


def _make_static_plan(label: str, members: Sequence[Member], options: EvaluationOptions) -> Plan:
    """Of what others are compared with: at its own depth, whatever theirs is."""
    plan = _make_plan(label, members, replace(options, depth=None, scales=(), lambdas=(), exits=()))
    if plan.is_by_word:
        raise UserError(f"{label} is not static, each of its words has its own depth: give another model with static=…")
    return plan


def _make_plans(systems: Mapping[str, Sequence[Member]], options: EvaluationOptions) -> list[Plan]:
    """Loads every model once. Refuses labels that a model does not know, and settings that it cannot have."""
    plans = [_make_plan(label, members, options) for label, members in systems.items()]
    if options.scales and not any(plan.is_by_word for plan in plans):
        raise UserError("in none of these models words have depths of their own: leave out scales=…")
    if options.lambdas and not any(setting.lambda_ is not None for plan in plans for setting in plan.settings):
        raise UserError("none of these models has depths from reconstruction: leave out lambdas=…")
    if options.exits and not any(setting.exit_rule is not None for plan in plans for setting in plan.settings):
        raise UserError("none of these models was trained at several exits: leave out exits=…")
    return plans


def _make_plan(label: str, members: Sequence[Member], options: EvaluationOptions) -> Plan:
    found: Plan | None = None
    for member in members:
        try:
            plan = _make_plan_of_one(label, members, member, options)
        except UserError as error:
            raise UserError(f"{label}, {member.name}: {error}" if len(members) > 1 else f"{label}: {error}") from error
        found = found or plan
        if plan != found:
            raise UserError(f"{label}: {member.name} is run in another way than {members[0].name}: name them apart")
    assert found is not None
    return found


def _make_plan_of_one(label: str, members: Sequence[Member], member: Member, options: EvaluationOptions) -> Plan:
    classifier = member.load(options.device)
    _check_labels(classifier, member)
    sub = classifier.subnetwork(options.depth)
    by_word = sub.by_word
    if member.word_depths is not None and not by_word:
        raise UserError(f"at depth {sub.name} all words run all layers: leave out word_depths=…, or the depth")
    settings = [Setting(sub.name)]
    if by_word:
        settings += [Setting(sub.name, scale=scale) for scale in dict.fromkeys(options.scales)]
    if by_word and classifier.token_depths is not None and classifier.token_depths.table.lambdas:
        settings += [Setting(sub.name, lambda_=penalty) for penalty in dict.fromkeys(options.lambdas)]
    whole = _full_depth(classifier)
    if len(classifier.exits) > 1:
        depth = whole.name if by_word else sub.name
        settings += [Setting(depth, exit_rule=rule) for rule in dict.fromkeys(options.exits)]
    for one in settings:
        classifier.check(one.depth, one.scale, one.lambda_, one.exit_rule)
    full = None if sub == whole else Setting(whole.name)
    return Plan(label, members, _kind(classifier) if by_word else ALIKE, tuple(settings), full)


def _check_labels(classifier: Classifier, member: Member) -> None:
    unknown = sorted(set(member.test.labels) - set(classifier.labels))
    if unknown:
        known = ", ".join(classifier.labels[:10]) + (", ..." if len(classifier.labels) > 10 else "")
        raise UserError(
            f"{member.test.name} has the label {unknown[0]!r}, which the model does not know: it has {known}"
        )


def _full_depth(classifier: Classifier) -> SubNetwork:
    return SubNetwork.prefix(classifier.model.config.encoder_layers, 0)


def _kind(classifier: Classifier) -> str:
    return ITSELF if classifier.token_depths is None else KINDS[classifier.token_depths.table.kind]


def _time_ways(
    ways: Sequence[TimedSetting],
    texts: Sequence[str],
    batch_sizes: Sequence[int],
    repeats: int,
    progress: Callable[[int], None],
) -> None:
    """Fill in the seconds. A round goes through all ways, so that a slow minute of the machine falls on all alike."""
    for way in ways:
        for size in batch_sizes:
            _seconds(way, texts[:: max(len(texts) // WARM_UP_TEXTS, 1)], size)
    for _ in range(repeats):
        for size in batch_sizes:
            for way in ways:
                way.seconds.setdefault(size, []).append(_seconds(way, texts, size) / len(texts))
                progress(len(texts))


def _seconds(way: TimedSetting, texts: Sequence[str], size: int) -> float:
    """With a call for each batch: it cannot be foreseen which texts come next."""
    start = time.perf_counter()
    for first in range(0, len(texts), size):
        way.classify(texts[first : first + size], size)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _runs_in(path: Path) -> Iterator[Path]:
    is_model = (path / "config.json").is_file() or (path / "model" / "config.json").is_file()
    parts = [] if is_model or not path.is_dir() else [one for one in path.iterdir() if PART.fullmatch(one.name)]
    if not parts:
        resolve(path)  # says what is wrong
        yield path
    for part in sorted(parts, key=_number):
        yield from _runs_in(part)


def _number(part: Path) -> tuple[str, int]:
    kind, _, number = part.name.partition("-")
    return kind, int(number)


def _kept_test(run: Path, name: str) -> LabelledTexts | None:
    folder = resolve(run)
    kept = folder.parent / "data" / "test.tsv"
    if folder.name != "model" or not kept.is_file():
        return None
    read = LabelledTexts.read(kept)
    return LabelledTexts(f"{read.name} of {name}", read.texts, read.labels)


def _needed(test: LabelledTexts | None, name: str) -> LabelledTexts:
    if test is None:
        raise UserError(f"{name} was not trained on a fold and has no test set of its own: give one with test=…")
    return test

"""Evaluate models that classify: accuracy, depth and speed of every model of every system.

A system has one model, or several of different seeds or folds. Those at the same place in their systems are measured
in the same round: few models are in memory at a time, and what is compared was timed in the same minutes.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from statistics import median

import torch

from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.evaluate.classification_data import Member, Systems
from anydepth.evaluate.classification_result import (
    ALIKE,
    Evaluation,
    EvaluationConditions,
    ModelResult,
    Setting,
    SettingResult,
    SystemResult,
)
from anydepth.evaluate.explain import Explanation, explain
from anydepth.infer.classifier import Classification, Classifier
from anydepth.progress import progress_bar

KINDS = {"mi": "MI", "reconstruction": "reconstruction"}
ITSELF = "halting unit"
UNTIMED_BATCH = 32
SAMPLE_SEED = 1
WARM_UP_TEXTS = 16
MISTAKES, WORDS_OF_A_MISTAKE = 10, 120


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
    engine: str = "auto"

    def __post_init__(self) -> None:
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise UserError("the batch sizes must be whole numbers of at least 1, such as 1,16")
        if min(self.timed, self.repeats) < 1:
            raise UserError("at least one text must be timed, and at least once")


@dataclass(frozen=True)
class _Plan:
    """How the models of a system are run: first as it is judged by, then as its curve has it. `kind` says by what its
    words have their depths. `full` is the depth at which all words run all layers, if that is another. `engine` is what
    runs them."""

    kind: str
    settings: tuple[Setting, ...]
    full: Setting | None
    engine: str


@dataclass
class _MeasuredSystem:
    """Its models, and what became known of them so far."""

    label: str
    members: Sequence[Member]
    plan: _Plan
    results: dict[Setting, list[ModelResult]] = field(default_factory=lambda: defaultdict(list))
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    mistakes: tuple[tuple[str, Explanation], ...] = ()

    def result(self) -> SystemResult:
        full = self.plan.full
        main, *curve = (SettingResult(setting, tuple(self.results[setting])) for setting in self.plan.settings)
        own = SettingResult(full, tuple(self.results[full])) if full is not None and full in self.results else None
        return SystemResult(self.label, self.plan.kind, main, tuple(curve), own, dict(self.confusion))


@dataclass
class _TimedRun:
    """A model run in one way: what it found, and by batch size the time per text of each timed round."""

    system: _MeasuredSystem
    member: Member
    classifier: Classifier
    setting: Setting
    found: list[Classification] = field(default_factory=list)
    seconds: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def classify(self, texts: Sequence[str], batch_size: int, advance: Callable[[int], None]) -> list[Classification]:
        options = asdict(self.setting)
        return self.classifier.classify(texts, **options, batch_size=batch_size, progress=advance)

    def time(self, texts: Sequence[str], size: int) -> float:
        """With a call for each batch: it cannot be foreseen which texts come next."""
        start = time.perf_counter()
        for first in range(0, len(texts), size):
            self.classify(texts[first : first + size], size, lambda count: None)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - start

    @property
    def median_seconds(self) -> dict[int, float]:
        return {size: median(rounds) for size, rounds in self.seconds.items()}

    def result(self, static: "_TimedRun") -> ModelResult:
        found, labels = self.found, self.member.test.labels
        return ModelResult(
            member=self.member.name,
            test=self.member.test.name,
            texts=len(found),
            right=sum(one.label == label for one, label in zip(found, labels, strict=True)),
            tokens=sum(one.tokens for one in found),
            computed=sum(one.computed for one in found),
            layers=self.classifier.loaded.config.encoder_layers,
            seconds=self.median_seconds,
            static_seconds=static.median_seconds if self.seconds else {},
        )


def evaluate(
    systems: Systems, options: EvaluationOptions, *, static: tuple[str, Sequence[Member]] | None = None
) -> Evaluation:
    """`static` has the models that all others are compared with; without it each is with its own weights at full depth.

    The ways of a curve, one for each scale and lambda, are timed with the first model of a system alone.
    """
    if static and static[0] in systems:
        raise UserError(f"two systems are called {static[0]}: name one of them, NAME=PATH")
    compared = None if static is None else _static_system(*static, options)
    everyone = [*([compared] if compared else []), *_make_systems(systems, options)]
    tests = dict.fromkeys(member.test for system in everyone for member in system.members)
    texts = sample_texts((text for test in tests for text in test.texts), options.timed)
    for number in range(max(len(system.members) for system in everyone)):
        _round(everyone, compared, number, texts, options)
    shown = next((one for one in everyone if one.mistakes), None)
    return Evaluation(
        tuple(one.result() for one in everyone),
        static[0] if static else None,
        tuple(sorted({label for one in everyone for pair in one.confusion for label in pair})),
        EvaluationConditions(
            tests=tuple((test.name, len(test.texts)) for test in tests),
            batch_sizes=options.batch_sizes,
            timed=len(texts),
            repeats=options.repeats,
            device=options.device,
            threads=torch.get_num_threads(),
            engine=", ".join(dict.fromkeys(one.plan.engine for one in everyone)),
        ),
        shown.label if shown else "",
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
    systems: Sequence[_MeasuredSystem],
    static: _MeasuredSystem | None,
    number: int,
    texts: Sequence[str],
    options: EvaluationOptions,
) -> None:
    """The models at one place of all systems; of a static system with fewer of them it begins again."""
    rounds = max(len(system.members) for system in systems)
    said = f" by models {number + 1} of {rounds}" if rounds > 1 else ""
    models = [_load(one, number, options, static) for one in systems if number < len(one.members)]
    runs = [run for model in models for run in model]
    with progress_bar(f"texts classified{said}", sum(len(run.member.test.texts) for run in runs)) as advance:
        for run in runs:
            run.found = run.classify(run.member.test.texts, UNTIMED_BATCH, advance)
    timed = [run for run in runs if number == 0 or run.setting in (run.system.plan.settings[0], run.system.plan.full)]
    reference = None
    if static is not None and number < len(static.members):
        reference = models[0][0]
    elif static is not None:
        reference = _load(static, number % len(static.members), options, static)[0]
        timed.append(reference)
    total = len(timed) * len(texts) * len(options.batch_sizes) * options.repeats
    with progress_bar(f"texts timed{said}", total) as advance:
        _time(timed, texts, options, advance)
    for model in models:
        _gather(model, reference or (model[-1] if model[-1].setting == model[-1].system.plan.full else model[0]))


def _load(
    system: _MeasuredSystem, number: int, options: EvaluationOptions, static: _MeasuredSystem | None
) -> list[_TimedRun]:
    """A run for each way; the last is of the same weights at full depth, if that is another and nothing else static."""
    member, full = system.members[number], system.plan.full
    classifier = member.load(options.device, options.engine, torch.get_num_threads())
    runs = [_TimedRun(system, member, classifier, setting) for setting in system.plan.settings]
    own = [] if full is None or static is not None else [_TimedRun(system, member, at_full_depth(classifier), full)]
    return [*runs, *own]


def _time(
    runs: Sequence[_TimedRun], texts: Sequence[str], options: EvaluationOptions, advance: Callable[[int], None]
) -> None:
    """Fill in the seconds. A round goes through all runs, so that a slow minute of the machine falls on all alike."""
    for run in runs:
        for size in options.batch_sizes:
            run.time(texts[:: max(len(texts) // WARM_UP_TEXTS, 1)], size)
    for _ in range(options.repeats):
        for size in options.batch_sizes:
            for run in runs:
                run.seconds[size].append(run.time(texts, size) / len(texts))
                advance(len(texts))


def _gather(model: Sequence[_TimedRun], static: _TimedRun) -> None:
    main, system = model[0], model[0].system
    for run in model:
        system.results[run.setting].append(run.result(static))
    labels = main.member.test.labels
    system.confusion.update(zip(labels, (one.label for one in main.found), strict=True))
    if system.plan.kind != ALIKE and not system.mistakes:
        wrong = [place for place, one in enumerate(main.found) if one.label != labels[place]]
        wrong.sort(key=lambda place: -main.found[place].probability)  # those that the model was surest of
        texts, depth = main.member.test.texts, main.setting.depth
        found = ((labels[at], explain(main.classifier, texts[at], main.member.name, depth=depth)) for at in wrong)
        shown = islice(found, MISTAKES)
        system.mistakes = tuple((label, explained.first(WORDS_OF_A_MISTAKE)) for label, explained in shown)


def _static_system(label: str, members: Sequence[Member], options: EvaluationOptions) -> _MeasuredSystem:
    """Of what others are compared with: at its own depth, whatever theirs is."""
    system = _make_system(label, members, replace(options, depth=None, scales=(), lambdas=(), exits=()))
    if system.plan.kind != ALIKE:
        raise UserError(f"{label} is not static, each of its words has its own depth: give another model with static=…")
    return system


def _make_systems(systems: Systems, options: EvaluationOptions) -> list[_MeasuredSystem]:
    """Loads every model once. Refuses labels that a model does not know, and settings that it cannot have."""
    found = [_make_system(label, members, options) for label, members in systems.items()]
    if options.scales and all(system.plan.kind == ALIKE for system in found):
        raise UserError("none of these models has a depth per word: leave out scales=…")
    settings = [setting for system in found for setting in system.plan.settings]
    if options.lambdas and all(setting.lambda_ is None for setting in settings):
        raise UserError("none of these models has depths from reconstruction: leave out lambdas=…")
    if options.exits and all(setting.exit is None for setting in settings):
        raise UserError("none of these models was trained at several exits: leave out exits=…")
    return found


def _make_system(label: str, members: Sequence[Member], options: EvaluationOptions) -> _MeasuredSystem:
    found: _Plan | None = None
    for member in members:
        try:
            made = _make_plan(member, options)
        except UserError as error:
            raise UserError(f"{label}, {member.name}: {error}" if len(members) > 1 else f"{label}: {error}") from error
        if made != (found := found or made):
            raise UserError(f"{label}: {member.name} is run in another way than {members[0].name}: name them apart")
    assert found is not None
    return _MeasuredSystem(label, members, found)


def _make_plan(member: Member, options: EvaluationOptions) -> _Plan:
    classifier = member.load(options.device, options.engine, torch.get_num_threads())
    unknown = sorted(set(member.test.labels) - set(classifier.labels))
    if unknown:
        known = ", ".join(classifier.labels[:10]) + (", ..." if len(classifier.labels) > 10 else "")
        raise UserError(
            f"{member.test.name} has the label {unknown[0]!r}, which the model does not know: it has {known}"
        )
    sub, tokens = classifier.subnetwork(options.depth), classifier.token_depths
    table = None if tokens is None else tokens.table
    by_word = sub.by_word
    if member.word_depths is not None and not by_word:
        raise UserError(f"at depth {sub.name} all words run all layers: leave out word_depths=…, or the depth")
    settings = [Setting(sub.name)]
    if by_word:
        settings += [Setting(sub.name, scale=scale) for scale in dict.fromkeys(options.scales)]
    if by_word and table is not None and table.lambdas:
        settings += [Setting(sub.name, lambda_=penalty) for penalty in dict.fromkeys(options.lambdas)]
    whole, kind = _full_depth(classifier), ITSELF if table is None else KINDS[table.kind]
    if len(classifier.exits) > 1:
        depth = whole.name if by_word else sub.name
        settings += [Setting(depth, exit=rule) for rule in dict.fromkeys(options.exits)]
    for one in settings:
        classifier.check(**asdict(one))
    full = None if sub == whole else Setting(whole.name)
    return _Plan(kind if by_word else ALIKE, tuple(settings), full, classifier.engine.name)


def _full_depth(classifier: Classifier) -> SubNetwork:
    return SubNetwork.prefix(classifier.loaded.config.encoder_layers, 0)

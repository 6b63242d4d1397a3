"""Evaluate models that classify: every model of every system on its test set, then all of them against the clock.

Models of several seeds or folds come one after the other, and with each the models of the other systems that are at
the same place: so few are in memory at a time, and what is compared was timed in the same minutes.
"""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from rich.console import Console

from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.classification_plan import EvaluationOptions, Plan, at_full_depth, make_plans, static_plan
from anydepth.evaluate.classification_result import (
    Evaluation,
    EvaluationConditions,
    Outcome,
    Point,
    Setting,
    System,
)
from anydepth.evaluate.classification_timing import Way, sample, time_ways
from anydepth.evaluate.experiment import now, versions
from anydepth.evaluate.explained import Explanation, explain
from anydepth.evaluate.labelled_members import Member
from anydepth.infer.classifier import Classification, Classifier

TEXTS_TOGETHER = 32  # where nobody looks at the clock
MISTAKES, WORDS_OF_A_MISTAKE = 10, 120


@dataclass
class _Gathered:
    """What became known of a system so far."""

    plan: Plan
    outcomes: dict[Setting, list[Outcome]] = field(default_factory=dict)
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    mistakes: tuple[tuple[str, Explanation], ...] = ()

    def system(self) -> System:
        main, *curve = (Point(setting, tuple(self.outcomes[setting])) for setting in self.plan.settings)
        full = self.plan.full
        own = Point(full, tuple(self.outcomes[full])) if full is not None and full in self.outcomes else None
        return System(self.plan.label, self.plan.kind, main, tuple(curve), own, dict(self.confusion))


@dataclass
class _Run:
    """A model of a system in this round: the ways it is run in, and what it found in each. `own` is the last way if
    that is of the same weights at full depth."""

    gathered: _Gathered
    member: Member
    ways: list[Way]
    own: Way | None
    found: list[list[Classification]] = field(default_factory=list)

    @property
    def timed(self) -> list[Way]:
        """The ways of a curve with the first model alone."""
        is_first = self.member is self.gathered.plan.members[0]
        return [way for way in self.ways if is_first or way is self.ways[0] or way is self.own]


def evaluate(
    systems: Mapping[str, Sequence[Member]],
    options: EvaluationOptions,
    *,
    static: tuple[str, Sequence[Member]] | None = None,
    console: Console | None = None,
) -> Evaluation:
    """`static` has the models that all others are compared with; without it each is with its own weights at full depth.

    The ways of a curve, one for each scale and lambda, are timed with the first model of a system alone.
    """
    if static and static[0] in systems:
        raise UserError(f"two systems are called {static[0]}: name one of them, NAME=PATH")
    everyone = {**({static[0]: static[1]} if static else {}), **systems}
    plans = [*([static_plan(*static, options)] if static else []), *make_plans(systems, options)]
    gathered = [_Gathered(plan) for plan in plans]
    tests = dict.fromkeys(member.test for members in everyone.values() for member in members)
    texts = sample((text for test in tests for text in test.texts), options.timed)
    rounds = max(map(len, everyone.values()))
    for number in range(rounds):
        said = f" by models {number + 1} of {rounds}" if rounds > 1 else ""
        _round(gathered, number, texts, options, static is not None, said, console or Console(stderr=True))
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


def _round(
    gathered: Sequence[_Gathered],
    number: int,
    texts: Sequence[str],
    options: EvaluationOptions,
    has_static: bool,
    said: str,
    console: Console,
) -> None:
    """The models at one place of all systems; of a static system with fewer of them it begins again."""
    there = [one for one in gathered if number < len(one.plan.members)]
    runs = [_load(one, number, options, has_static) for one in there]
    with bar(console, f"texts classified{said}", sum(len(run.member.test.texts) * len(run.ways) for run in runs)) as on:
        for run in runs:
            run.found = [way.classify(run.member.test.texts, TEXTS_TOGETHER, on) for way in run.ways]
    timed = [way for run in runs for way in run.timed]
    reference: Way | None = None
    if has_static and gathered[0] is there[0]:
        reference = runs[0].ways[0]
    elif has_static:
        reference = _load(gathered[0], number % len(gathered[0].plan.members), options, has_static).ways[0]
        timed.append(reference)
    total = len(timed) * len(texts) * len(options.batch_sizes) * options.repeats
    with bar(console, f"texts timed{said}", total) as on:
        time_ways(timed, texts, options.batch_sizes, options.repeats, on)
    for run in runs:
        _gather(run, reference or run.own or run.ways[0])


def _load(gathered: _Gathered, number: int, options: EvaluationOptions, has_static: bool) -> _Run:
    plan, member = gathered.plan, gathered.plan.members[number]
    classifier = member.load(options.device)
    ways = [Way(classifier, setting) for setting in plan.settings]
    own = None if plan.full is None or has_static else Way(at_full_depth(classifier), plan.full)
    return _Run(gathered, member, [*ways, *([own] if own else [])], own)


def _gather(run: _Run, reference: Way) -> None:
    gathered, test = run.gathered, run.member.test
    for way, found in zip(run.ways, run.found, strict=True):
        outcome = _outcome(run.member, found, way, reference)
        gathered.outcomes.setdefault(way.setting, []).append(outcome)
    main = run.found[0]
    gathered.confusion.update(zip(test.labels, (one.label for one in main), strict=True))
    if gathered.plan.is_by_word and not gathered.mistakes:
        gathered.mistakes = _mistakes(run.ways[0].classifier, gathered.plan, run.member, main)


def _outcome(member: Member, found: Sequence[Classification], way: Way, reference: Way) -> Outcome:
    return Outcome(
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

"""How each system is to be evaluated, and refusals before anyone waits for hours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.evaluate.classification_result import Setting
from anydepth.evaluate.labelled_members import Member
from anydepth.infer.classifier import Classifier

KINDS = {"mi": "MI", "reconstruction": "reconstruction"}
ITSELF, ALIKE = "halting unit", "all alike"


@dataclass(frozen=True)
class EvaluationOptions:
    """What users asked for, checked."""

    depth: str | None = None
    scales: tuple[float, ...] = ()
    lambdas: tuple[float, ...] = ()
    batch_sizes: tuple[int, ...] = (1, 16)
    timed: int = 200
    repeats: int = 3
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise UserError("the batch sizes must be whole numbers of at least 1, such as 1,16")
        if min(self.timed, self.repeats) < 1:
            raise UserError("at least one text must be timed, and at least once")


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


def static_plan(label: str, members: Sequence[Member], options: EvaluationOptions) -> Plan:
    """Of what others are compared with: at its own depth, whatever theirs is."""
    plan = _plan(label, members, replace(options, depth=None, scales=(), lambdas=()))
    if plan.is_by_word:
        raise UserError(f"{label} is not static, each of its words has its own depth: give another model with --static")
    return plan


def make_plans(systems: Mapping[str, Sequence[Member]], options: EvaluationOptions) -> list[Plan]:
    """Loads every model once. Refuses labels that a model does not know, and settings that it cannot have."""
    plans = [_plan(label, members, options) for label, members in systems.items()]
    if options.scales and not any(plan.is_by_word for plan in plans):
        raise UserError("in none of these models words have depths of their own: leave out --scales")
    if options.lambdas and not any(setting.lambda_ is not None for plan in plans for setting in plan.settings):
        raise UserError("none of these models has depths from reconstruction: leave out --lambdas")
    return plans


def at_full_depth(classifier: Classifier) -> Classifier:
    """The same weights with all words at full depth, whatever the menu says."""
    menu = DepthMenu.of([_whole(classifier)])
    return Classifier(replace(classifier.loaded, menu=menu, token_depths=None), classifier.engine)


def _plan(label: str, members: Sequence[Member], options: EvaluationOptions) -> Plan:
    found: Plan | None = None
    for member in members:
        try:
            plan = _plan_of_one(label, members, member, options)
        except UserError as error:
            raise UserError(f"{label}, {member.name}: {error}" if len(members) > 1 else f"{label}: {error}") from error
        found = found or plan
        if plan != found:
            raise UserError(f"{label}: {member.name} is run in another way than {members[0].name}: name them apart")
    assert found is not None
    return found


def _plan_of_one(label: str, members: Sequence[Member], member: Member, options: EvaluationOptions) -> Plan:
    classifier = member.load(options.device)
    _check_labels(classifier, member)
    entry = classifier.menu[options.depth]
    by_word = entry.subnetwork.by_word
    if member.word_depths is not None and not by_word:
        raise UserError(f"at depth {entry.name} all words run all layers: leave out --word-depths, or --depth")
    settings = [Setting(entry.name)]
    if by_word:
        settings += [Setting(entry.name, scale=scale) for scale in dict.fromkeys(options.scales)]
    if by_word and classifier.token_depths is not None and classifier.token_depths.table.lambdas:
        settings += [Setting(entry.name, lambda_=penalty) for penalty in dict.fromkeys(options.lambdas)]
    for one in settings:
        classifier.classify([], depth=one.depth, scale=one.scale, lambda_=one.lambda_)  # refuses what cannot be
    whole = _whole(classifier)
    full = None if entry.subnetwork == whole else Setting(whole.name)
    return Plan(label, members, _kind(classifier) if by_word else ALIKE, tuple(settings), full)


def _check_labels(classifier: Classifier, member: Member) -> None:
    unknown = sorted(set(member.test.labels) - set(classifier.labels))
    if unknown:
        known = ", ".join(classifier.labels[:10]) + (", ..." if len(classifier.labels) > 10 else "")
        raise UserError(
            f"{member.test.name} has the label {unknown[0]!r}, which the model does not know: it has {known}"
        )


def _whole(classifier: Classifier) -> SubNetwork:
    return SubNetwork.prefix(classifier.model.config.encoder_layers, 0)


def _kind(classifier: Classifier) -> str:
    return ITSELF if classifier.token_depths is None else KINDS[classifier.token_depths.table.kind]

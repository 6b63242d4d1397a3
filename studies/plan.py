"""What a study is made of: arms, steps and comparisons, and the claim that they decide. claims.py has the claims."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ONLY = "only"  # depth: that of a model that has no other


@dataclass(frozen=True)
class Arm:
    """One way of training. `needs` are the arms whose first model, and the steps whose files, it is made with; `after`
    are arms whose results it depends on."""

    name: str
    recipe: str
    changes: tuple[str, ...] = ()
    seeds: int = 3
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A command other than a training, of `anydepth` or of a script in studies/. It runs if `makes` is needed; or, if
    that is a `result`, once: it is kept among the records."""

    name: str
    command: tuple[str, ...]
    makes: str
    needs: tuple[str, ...] = ()
    result: bool = False
    every_seed: bool = False  # it needs the models of all seeds that did not diverge, not only the first
    alone: bool = False  # it takes times: nothing else runs meanwhile
    script: str = ""


@dataclass(frozen=True)
class TestSet:
    source: str
    reference: str
    to: str = ""  # the target language, of models that have several

    @property
    def options(self) -> tuple[str, ...]:
        files = ("--source", self.source, "--reference", self.reference)
        return (*files, "--to", self.to) if self.to else files


@dataclass(frozen=True)
class PlannedSystem:
    """A row of a comparison: the mean over `points`, each an arm at a depth."""

    name: str
    points: tuple[tuple[str, str], ...]

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(arm for arm, _ in self.points))

    def depths(self, arm: str) -> list[str]:
        return [depth for name, depth in self.points if name == arm]


@dataclass(frozen=True)
class PlannedComparison:
    """Of systems on a test set, by default that of the claim: every one with the first, by a bootstrap over seeds and
    sentences."""

    name: str
    systems: tuple[PlannedSystem, ...]
    test: TestSet | None = None

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(arm for system in self.systems for arm in system.arms))


Item = Arm | Step
Items = tuple[Item | PlannedComparison, ...]


@dataclass(frozen=True)
class Claim:
    key: str
    title: str
    paper: str  # its figure
    setting: str
    shown: str  # what counts as shown
    work: Items
    files: tuple[str, ...] = ()  # corpora that nobody can fetch for you
    test: TestSet | None = None
    shares: str = ""  # the claim whose folder it uses: arms of the same name are the same
    hours: int = 0  # of one core, estimated

    @property
    def folder(self) -> str:
        return self.shares or self.key

    @property
    def items(self) -> list[Item]:
        return [item for item in self.work if not isinstance(item, PlannedComparison)]

    @property
    def arms(self) -> list[Arm]:
        return [item for item in self.work if isinstance(item, Arm)]

    @property
    def comparisons(self) -> list[PlannedComparison]:
        return [item for item in self.work if isinstance(item, PlannedComparison)]

    def find_test(self, comparison: PlannedComparison) -> TestSet:
        test = comparison.test or self.test
        assert test is not None, comparison.name
        return test

    def points(self, arm: str) -> Iterator[tuple[TestSet, str]]:
        """The test sets and depths at which an arm is compared."""
        for one in self.comparisons:
            yield from ((self.find_test(one), depth) for system in one.systems for depth in system.depths(arm))


def compare_at(name: str, depth: str, arms: Sequence[str], test: TestSet | None = None) -> PlannedComparison:
    """Arms at one depth."""
    return PlannedComparison(name, tuple(PlannedSystem(arm, ((arm, depth),)) for arm in arms), test)


def mean_over(depths: Sequence[str], arm: str) -> PlannedSystem:
    return PlannedSystem(arm, tuple((arm, depth) for depth in depths))


def of_depth(depth: str) -> tuple[str, ...]:
    n, m = depth.split("-")
    return f"model.encoder_layers={n}", f"model.decoder_layers={m}"

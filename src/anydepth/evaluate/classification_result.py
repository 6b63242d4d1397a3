"""What an evaluation of models that classify found: how often they are right, how deep they go, how long they take."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from anydepth.evaluate.explain import Explanation

FORMAT = 1
ALIKE = "all alike"  # the kind of depths where all words run the same layers


@dataclass(frozen=True)
class Setting:
    """How a model is run: as it was trained unless there is a scale, a lambda or an exit rule of whole texts."""

    depth: str
    scale: float | None = None
    lambda_: float | None = None
    exit_rule: str | None = None

    @property
    def name(self) -> str:
        if self.exit_rule is not None:
            return f"exit {self.exit_rule}"
        if self.scale is not None:
            return f"scale {self.scale:g}"
        return "as trained" if self.lambda_ is None else f"lambda {self.lambda_:g}"

    def to_json(self) -> dict[str, Any]:
        exits = {} if self.exit_rule is None else {"exit": self.exit_rule}
        return {"depth": self.depth, "scale": self.scale, "lambda": self.lambda_, **exits}


@dataclass(frozen=True)
class ModelResult:
    """Of one model. `computed` counts the layers that all tokens ran together, `seconds` are per text, by batch size;
    `static_seconds` those of the static model beside it."""

    member: str
    test: str
    texts: int
    right: int
    tokens: int
    computed: int
    layers: int
    seconds: dict[int, float]
    static_seconds: dict[int, float]

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.right / self.texts

    @property
    def depth(self) -> float:
        """The mean over all tokens."""
        return self.computed / self.tokens

    @property
    def share(self) -> float:
        """Of what would be computed if all tokens ran all layers."""
        return self.computed / (self.tokens * self.layers)

    def speed_up(self, batch_size: int) -> float:
        return self.static_seconds[batch_size] / self.seconds[batch_size]

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "accuracy": self.accuracy,
            "depth": self.depth,
            "share": self.share,
            "speed_up": {size: self.speed_up(size) for size in self.seconds},
        }


@dataclass(frozen=True)
class Mean:
    """A mean over models, and their sample deviation where there are several."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: list[float]) -> "Mean":
        return cls(fmean(values), stdev(values) if len(values) > 1 else None)

    def shown(self, digits: int) -> str:
        return f"{self.mean:.{digits}f}" + ("" if self.deviation is None else f" ± {self.deviation:.{digits}f}")


@dataclass(frozen=True)
class SettingResult:
    """All models of a system, run in one way. Not all need have been timed."""

    setting: Setting
    models: tuple[ModelResult, ...]

    @property
    def accuracy(self) -> Mean:
        return self._over(lambda one: one.accuracy)

    @property
    def depth(self) -> Mean:
        return self._over(lambda one: one.depth)

    @property
    def share(self) -> Mean:
        return self._over(lambda one: one.share)

    @property
    def allowed(self) -> float:
        """The speed-up if time went with the layers computed and nothing else."""
        return 1 / self.share.mean

    @property
    def layers(self) -> int:
        return self.models[0].layers

    def seconds(self, batch_size: int) -> Mean:
        return Mean.of([one.seconds[batch_size] for one in self._timed])

    def speed_up(self, batch_size: int) -> Mean:
        return Mean.of([one.speed_up(batch_size) for one in self._timed])

    def texts_per_second(self, batch_size: int) -> Mean:
        return Mean.of([1 / one.seconds[batch_size] for one in self._timed])

    @property
    def _timed(self) -> list[ModelResult]:
        return [one for one in self.models if one.seconds]

    def _over(self, value: Callable[[ModelResult], float]) -> Mean:
        return Mean.of([value(one) for one in self.models])

    def to_json(self) -> dict[str, Any]:
        sizes = list(self._timed[0].seconds) if self._timed else []
        return {
            **self.setting.to_json(),
            "accuracy": asdict(self.accuracy),
            "mean_depth": asdict(self.depth),
            "share_computed": asdict(self.share),
            "speed_up_allowed": self.allowed,
            "seconds_per_text": {size: asdict(self.seconds(size)) for size in sizes},
            "speed_up": {size: asdict(self.speed_up(size)) for size in sizes},
            "timed_models": len(self._timed),
            "models": [one.to_json() for one in self.models],
        }


@dataclass(frozen=True)
class SystemResult:
    """`own_static` are its own weights with all words at full depth; None where it runs so itself or where another
    static model was given. `confusion` counts texts by true label and found label, over all models."""

    label: str
    kind: str
    main: SettingResult
    curve: tuple[SettingResult, ...]
    own_static: SettingResult | None
    confusion: dict[tuple[str, str], int]

    @property
    def points(self) -> tuple[SettingResult, ...]:
        return (self.main, *self.curve)

    def right_of(self, label: str) -> float | None:
        """The share of the texts with this label that was found, in percent."""
        texts = sum(count for (true, _), count in self.confusion.items() if true == label)
        return 100 * self.confusion.get((label, label), 0) / texts if texts else None

    def to_json(self) -> dict[str, Any]:
        return {
            "system": self.label,
            "kind": self.kind,
            **self.main.to_json(),
            "own_weights_at_full_depth": self.own_static and self.own_static.to_json(),
            "curve": [point.to_json() for point in self.curve],
            "confusion": [{"true": a, "found": b, "texts": n} for (a, b), n in sorted(self.confusion.items())],
        }


@dataclass(frozen=True)
class EvaluationConditions:
    """Without which the figures mean nothing. `tests` has the name and the number of texts of each test set."""

    tests: tuple[tuple[str, int], ...]
    batch_sizes: tuple[int, ...]
    timed: int
    repeats: int
    device: str
    threads: int
    machine: str
    date: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Evaluation:
    """`static` is the label of the system that all are compared with, None if each is with its own weights."""

    systems: tuple[SystemResult, ...]
    static: str | None
    labels: tuple[str, ...]
    conditions: EvaluationConditions
    mistakes_of: str
    mistakes: tuple[tuple[str, Explanation], ...]  # each with the true label

    @property
    def texts(self) -> int:
        """In all test sets together."""
        return sum(count for _, count in self.conditions.tests)

    @property
    def test_names(self) -> str:
        names = [name for name, _ in self.conditions.tests]
        return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")

    @property
    def has_members(self) -> bool:
        return any(len(system.main.models) > 1 for system in self.systems)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "static": self.static,
            "conditions": asdict(self.conditions),
            "labels": self.labels,
            "systems": [system.to_json() for system in self.systems],
            "confident_mistakes": {
                "system": self.mistakes_of,
                "texts": [{"true": label, **explanation.to_json()} for label, explanation in self.mistakes],
            },
        }

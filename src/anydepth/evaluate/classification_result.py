"""What an evaluation of models that classify found: how often they are right, how deep they go, how long they take."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from anydepth.evaluate.experiment import Environment, Mean, with_figures
from anydepth.evaluate.explain import Explanation

FORMAT = 1
ALIKE = "all alike"  # the kind of depths where all words run the same layers


@dataclass(frozen=True)
class Setting:
    """How a model is run: as it was trained unless there is a scale, a lambda or an exit rule of whole texts."""

    depth: str
    scale: float | None = None
    lambda_: float | None = None
    exit: str | None = None

    @property
    def name(self) -> str:
        if self.exit is not None:
            return f"exit {self.exit}"
        if self.scale is not None:
            return f"scale {self.scale:g}"
        return "as trained" if self.lambda_ is None else f"lambda {self.lambda_:g}"


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

    @property
    def speed_up(self) -> dict[int, float]:
        """By batch size."""
        return {size: self.static_seconds[size] / seconds for size, seconds in self.seconds.items()}


@dataclass(frozen=True)
class SettingResult:
    """All models of a system, run in one way. Not all need have been timed; times are by batch size."""

    setting: Setting
    models: tuple[ModelResult, ...]

    @property
    def accuracy(self) -> Mean:
        return Mean.over(one.accuracy for one in self.models)

    @property
    def depth(self) -> Mean:
        return Mean.over(one.depth for one in self.models)

    @property
    def share(self) -> Mean:
        return Mean.over(one.share for one in self.models)

    @property
    def allowed(self) -> float:
        """The speed-up if time went with the layers computed and nothing else."""
        return 1 / self.share.mean

    @property
    def layers(self) -> int:
        return self.models[0].layers

    @property
    def seconds(self) -> dict[int, Mean]:
        return self._by_size(lambda one, size: one.seconds[size])

    @property
    def speed_up(self) -> dict[int, Mean]:
        return self._by_size(lambda one, size: one.speed_up[size])

    @property
    def texts_per_second(self) -> dict[int, Mean]:
        return self._by_size(lambda one, size: 1 / one.seconds[size])

    def _by_size(self, value: Callable[[ModelResult, int], float]) -> dict[int, Mean]:
        sizes = dict.fromkeys(size for one in self.models for size in one.seconds)
        return {size: Mean.over(value(one, size) for one in self.models if one.seconds) for size in sizes}

    def to_json(self) -> dict[str, Any]:
        return {
            "depth": self.setting.depth,
            "scale": self.setting.scale,
            "lambda": self.setting.lambda_,
            **({} if self.setting.exit is None else {"exit": self.setting.exit}),
            "accuracy": asdict(self.accuracy),
            "mean_depth": asdict(self.depth),
            "share_computed": asdict(self.share),
            "speed_up_allowed": self.allowed,
            "seconds_per_text": {size: asdict(seconds) for size, seconds in self.seconds.items()},
            "speed_up": {size: asdict(speed_up) for size, speed_up in self.speed_up.items()},
            "timed_models": sum(bool(one.seconds) for one in self.models),
            "models": [with_figures(one, "accuracy", "depth", "share", "speed_up") for one in self.models],
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

    @property
    def depth_points(self) -> tuple[SettingResult, ...]:
        """At depths of the menu: as trained, and its own weights at full depth."""
        return (self.main, self.own_static) if self.own_static else (self.main,)

    def recall(self, label: str) -> float | None:
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
class EvaluationConditions(Environment):
    """`tests` has the name and the number of texts of each test set."""

    tests: tuple[tuple[str, int], ...]
    batch_sizes: tuple[int, ...]
    timed: int
    repeats: int
    engine: str


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
    def texts(self) -> str:
        """Such as "1,200 texts of test.tsv"."""
        names = [name for name, _ in self.conditions.tests]
        others = " and others" if len(names) > 3 else ""
        return f"{sum(count for _, count in self.conditions.tests):,} texts of {', '.join(names[:3])}{others}"

    @property
    def has_members(self) -> bool:
        return any(len(system.main.models) > 1 for system in self.systems)

    def to_json(self) -> dict[str, Any]:
        mistakes = [{"true": label, **asdict(explanation)} for label, explanation in self.mistakes]
        return {
            "format": FORMAT,
            "static": self.static,
            "conditions": asdict(self.conditions),
            "labels": self.labels,
            "systems": [system.to_json() for system in self.systems],
            "confident_mistakes": {"system": self.mistakes_of, "texts": mistakes},
        }

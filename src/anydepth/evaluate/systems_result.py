"""Several ways of training and how they compare: the scores of each model, means over seeds, differences."""

from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from anydepth.evaluate.experiment import Conditions
from anydepth.evaluate.kept_outputs import FOLDER
from anydepth.evaluate.metrics import Quality
from anydepth.evaluate.significance import Difference

FORMAT = 1


@dataclass(frozen=True)
class ScoredModel:
    """`made_by` is the key of the outputs, `file` the name they are kept under (kept_outputs.py)."""

    name: str
    depth: str
    fingerprint: str
    made_by: str
    file: str
    outputs: tuple[str, ...]
    quality: Quality


@dataclass(frozen=True)
class System:
    """A way of training: one model, or several that differ in their seed alone. The baseline has no difference."""

    label: str
    models: tuple[ScoredModel, ...]
    difference: Difference | None

    @property
    def depth(self) -> str:
        return ", ".join(dict.fromkeys(model.depth for model in self.models))

    @property
    def bleu(self) -> float:
        return fmean(model.quality.bleu for model in self.models)

    @property
    def chrf(self) -> float:
        return fmean(model.quality.chrf for model in self.models)

    @property
    def bleu_deviation(self) -> float | None:
        return _deviation([model.quality.bleu for model in self.models])

    @property
    def chrf_deviation(self) -> float | None:
        return _deviation([model.quality.chrf for model in self.models])


@dataclass(frozen=True)
class SystemsResult:
    """The first system is the baseline. `samples` and `seed` are those of the bootstrap."""

    systems: tuple[System, ...]
    conditions: Conditions
    samples: int
    seed: int

    @property
    def baseline(self) -> System:
        return self.systems[0]

    @property
    def labels(self) -> list[str]:
        return [system.label for system in self.systems]

    @property
    def models(self) -> list[ScoredModel]:
        return [model for system in self.systems for model in system.models]

    @property
    def has_seeds(self) -> bool:
        return any(len(system.models) > 1 for system in self.systems)

    @property
    def signatures(self) -> dict[str, str]:
        quality = self.baseline.models[0].quality
        return {"BLEU": quality.bleu_signature, "chrF": quality.chrf_signature}

    def differences_of_seeds(self, system: System) -> list[float]:
        """BLEU of each of its models minus the mean of the baseline."""
        return [model.quality.bleu - self.baseline.bleu for model in system.models]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "conditions": asdict(self.conditions),
            "signatures": self.signatures,
            "test": {
                "name": "paired bootstrap over sentences, BLEU, against the first system",
                "samples": self.samples,
                "seed": self.seed,
            },
            "systems": [_system_json(system) for system in self.systems],
        }


def _system_json(system: System) -> dict[str, Any]:
    return {
        "label": system.label,
        "mean_bleu": system.bleu,
        "sd_bleu": system.bleu_deviation,
        "mean_chrf": system.chrf,
        "sd_chrf": system.chrf_deviation,
        "difference": asdict(system.difference) if system.difference else None,
        "models": [_model_json(model) for model in system.models],
    }


def _model_json(model: ScoredModel) -> dict[str, Any]:
    quality = asdict(model.quality)
    figures = {key: quality[key] for key in ("bleu", "chrf", "length_ratio", "repetition_rate")}
    known = {"name": model.name, "depth": model.depth, "fingerprint": model.fingerprint}
    return {**known, **figures, "outputs": f"{FOLDER}/{model.file}"}


def _deviation(values: list[float]) -> float | None:
    """Of a sample; there is none of a single value."""
    return stdev(values) if len(values) > 1 else None

"""The whole outcome of a sweep, and the circumstances without which its numbers mean nothing."""

import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from anydepth.evaluate.measurement import ModelSweep
from anydepth.evaluate.shared_depths import Comparison
from anydepth.infer.translator import Translator

FORMAT = 1


@dataclass(frozen=True)
class Conditions:
    """How it was measured. Files go by their bare names, so that a report can be shown to anyone."""

    source_file: str
    reference_file: str
    lines: int
    beam: int
    length_penalty: float
    batch_size: int
    cut_long: bool
    repeats: int
    device: str
    threads: int
    machine: str
    date: str
    versions: dict[str, str]
    engine: str = "torch"
    forced: str | None = None  # the strategy whose depths were measured in place of the models' own

    @classmethod
    def here(
        cls,
        translators: Iterable[Translator],
        sources: Sequence[str],
        source_name: str,
        reference_name: str,
        **options: Any,
    ) -> "Conditions":
        """With what this machine and this moment say of themselves."""
        every = list(translators)
        devices = dict.fromkeys(str(next(one.model.parameters()).device) for one in every)
        return cls(
            source_file=Path(source_name).name,
            reference_file=Path(reference_name).name,
            lines=len(sources),
            device=", ".join(devices),
            threads=max(one.engine.threads for one in every),
            engine=", ".join(dict.fromkeys(one.engine.name for one in every)),
            machine=platform.machine(),
            date=now(),
            versions=versions(),
            **options,
        )


@dataclass(frozen=True)
class SweepResult:
    models: tuple[ModelSweep, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]
    conditions: Conditions
    comparison: Comparison | None = None

    @property
    def labels(self) -> list[str]:
        return [model.label for model in self.models]

    @property
    def signatures(self) -> dict[str, str]:
        quality = self.models[0].measurements[0].quality
        return {"BLEU": quality.bleu_signature, "chrF": quality.chrf_signature}

    @property
    def reference_repetition_rate(self) -> float:
        return self.models[0].measurements[0].quality.reference_repetition_rate

    def model(self, label: str) -> ModelSweep:
        return next(model for model in self.models if model.label == label)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "conditions": asdict(self.conditions),
            "signatures": self.signatures,
            "models": [model.to_json() for model in self.models],
            "comparison": self.comparison.to_json() if self.comparison else None,
        }


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

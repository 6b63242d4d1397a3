"""Logs of trainings made by hand, for the parts that only read and draw."""

import json
from pathlib import Path
from typing import Any

from anydepth.training.run_log import LOG, TrainingRun

PAIRS = ("en-fr", "en-cs")


def norms(encoder: int = 2, decoder: int = 4, scale: float = 1.0) -> dict[str, float]:
    sides = {"encoder": encoder, "decoder": decoder}
    return {f"{side}.{layer}": scale * layer for side, count in sides.items() for layer in range(1, count + 1)}


def train_record(step: int, nll: float, layers: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    layers = norms() if layers is None else layers
    return {"kind": "train", "step": step, "loss": nll + 0.5, "nll": nll, "layers": layers, **more}


def gated(step: int, samples: dict[str, list[float]], side: str = "decoder", **more: Any) -> dict[str, Any]:
    """A record of a run with gates; the probability of each layer is its sample pulled half way to one half."""
    probability = {pair: [(value + 0.5) / 2 for value in row] for pair, row in samples.items()}
    return train_record(
        step,
        8.0 / (1 + step / 100),
        **{
            "kl": 0.1,
            f"depth/{side}": sum(map(sum, probability.values())) / len(samples),
            "layers_selected": {side: {pair: sum(q > 0.5 for q in row) for pair, row in probability.items()}},
            "probability": {side: probability},
            "samples": {side: samples},
        },
        **more,
    )


def valid_record(step: int, nll: Any) -> dict[str, Any]:
    return {"kind": "valid", "step": step, "nll": nll, "bleu": {}}


def latent_records(layers: int = 4, pairs: tuple[str, ...] = PAIRS, count: int = 12) -> list[dict[str, Any]]:
    """Samples that leave one half for 0 or 1, layer by layer."""
    records: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        away = 0.5 * number / count
        rows = {
            pair: [0.5 + away if (layer + place) % 2 else 0.5 - away for layer in range(layers)]
            for place, pair in enumerate(pairs)
        }
        records.append(gated(25 * number, rows))
    by_depth = {"soft": 3.0, "hard": 3.5}
    records.append(valid_record(25 * count, dict.fromkeys(pairs, by_depth) if len(pairs) > 1 else by_depth))
    return records


def static_records(count: int = 12) -> list[dict[str, Any]]:
    return [train_record(25 * number, 8.0 / number, norms(scale=1 / number)) for number in range(1, count + 1)]


def latent_run(label: str = "latent", **options: Any) -> TrainingRun:
    return TrainingRun.of(label, latent_records(**options))


def static_run(label: str = "static", end: dict[str, Any] | None = None) -> TrainingRun:
    return TrainingRun.of(label, [*static_records(), *([end] if end else [])])


def write_log(run: Path, records: list[dict[str, Any]], end: str = "") -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / LOG).write_text("".join(json.dumps(record) + "\n" for record in records) + end, "utf-8")
    return run

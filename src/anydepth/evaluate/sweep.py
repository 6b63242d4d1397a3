"""Translate a test set at every depth of one or more models, and measure how well and how fast.

`sweep` gives a result, `record_sweep` writes it into the model folder; sweep_report.py shows it.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

from anydepth.engines.base import TOKEN_EXITS, ExitRule
from anydepth.engines.native import NativeEngine
from anydepth.engines.packed import weights_size
from anydepth.evaluate.depth_comparison import Comparison, compare
from anydepth.evaluate.experiment import (
    Conditions,
    DepthRun,
    OtherLoad,
    RunOptions,
    Translators,
    busy_cores,
    check_paired,
    doubt_of_times,
    make_exit_runs,
    make_families,
    make_runs,
    measured_alike,
    record_measurements,
)
from anydepth.evaluate.metrics import Quality, pareto_front, score
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar

FORMAT = 1
WARM_UP_SENTENCES = 8
DOUBTFUL_SPREAD = 0.2
SPEED = ("seconds_per_sentence", "sentences_per_second", "tokens_per_second")
SIZE = ("parameters", "bytes")
QUALITY = ("bleu", "chrf", "length_ratio", "repetition_rate")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DepthResult:
    """One depth of one model on the whole test set."""

    depth: str
    encoder_layers: int
    decoder_layers: int
    quality: Quality
    seconds_of_passes: tuple[float, ...]
    output_tokens: int
    parameters: int | None
    bytes: int | None
    outputs: tuple[str, ...]
    mean_decoder_layers: float | None = None  # of tokens that may leave early

    @property
    def bleu(self) -> float:
        return self.quality.bleu

    @property
    def seconds(self) -> float:
        return median(self.seconds_of_passes)

    @property
    def spread(self) -> float:
        """How far the passes are apart, as a share of the median."""
        return (max(self.seconds_of_passes) - min(self.seconds_of_passes)) / self.seconds

    @property
    def seconds_per_sentence(self) -> float:
        return self.seconds / len(self.outputs)

    @property
    def sentences_per_second(self) -> float:
        return len(self.outputs) / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds

    def figures(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self.quality if hasattr(self.quality, name) else self, name) for name in names}

    def to_json(self) -> dict[str, Any]:
        where = ("depth", "encoder_layers", "decoder_layers")
        times = ("seconds", "seconds_of_passes", "spread", *SPEED, "output_tokens")
        found = self.figures(*where, *QUALITY, "reference_repetition_rate", *times, *SIZE)
        return found | _known(self.figures("mean_decoder_layers"))


@dataclass(frozen=True)
class Means:
    bleu: float
    chrf: float
    seconds: float

    @classmethod
    def over(cls, depths: Sequence[DepthResult]) -> "Means":
        rows = [(one.bleu, one.quality.chrf, one.seconds) for one in depths]
        return cls(*map(fmean, zip(*rows, strict=True)))


@dataclass(frozen=True)
class ModelSweep:
    """All measured depths of the model called `label`, in the order of its menu. The menu may have holes. `exits` are
    depths whose tokens left early, by their name and rule."""

    label: str
    depths: tuple[DepthResult, ...]
    exits: tuple[DepthResult, ...] = ()

    @property
    def cells(self) -> dict[tuple[int, int], DepthResult]:
        """By encoder and decoder depth; the best where a menu has several sub-networks of that size."""
        best_first = sorted(self.depths, key=lambda one: -one.bleu)
        return {(one.encoder_layers, one.decoder_layers): one for one in best_first[::-1]}

    @property
    def means(self) -> Means:
        return Means.over(self.depths)

    @property
    def means_by_encoder(self) -> dict[int, Means]:
        """By encoder depth n."""
        return self._means_by(lambda one: one.encoder_layers)

    @property
    def means_by_decoder(self) -> dict[int, Means]:
        """By decoder depth m."""
        return self._means_by(lambda one: one.decoder_layers)

    def _means_by(self, layers: Callable[[DepthResult], int]) -> dict[int, Means]:
        return {
            n: Means.over([one for one in self.depths if layers(one) == n]) for n in sorted({*map(layers, self.depths)})
        }

    @property
    def best(self) -> DepthResult:
        return max(self.depths, key=lambda one: (one.bleu, -one.seconds))

    @property
    def fastest(self) -> DepthResult:
        return min(self.depths, key=lambda one: (one.seconds, -one.bleu))

    @property
    def front(self) -> list[DepthResult]:
        """The Pareto front, fast to slow: no other entry is as good in both and better in one."""
        front = [self.depths[place] for place in pareto_front([(one.seconds, one.bleu) for one in self.depths])]
        return sorted(front, key=lambda one: (one.seconds, one.bleu))

    @property
    def front_depths(self) -> list[str]:
        return [one.depth for one in self.front]

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "depths": [one.to_json() for one in self.depths],
            **({"exits": [one.to_json() for one in self.exits]} if self.exits else {}),
            "pareto_front": self.front_depths,
            "means": asdict(self.means),
            "means_of_encoder_depths": {str(n): asdict(means) for n, means in self.means_by_encoder.items()},
            "means_of_decoder_depths": {str(m): asdict(means) for m, means in self.means_by_decoder.items()},
        }


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
    def quality(self) -> Quality:
        """Any: they have the signatures and what is known of the references in common."""
        return self.models[0].depths[0].quality

    @property
    def doubt(self) -> str | None:
        """Why the times cannot be believed, in a sentence; None if they can."""
        spreads = [one.spread for model in self.models for one in (*model.depths, *model.exits)]
        unsteady = [spread for spread in spreads if spread > DOUBTFUL_SPREAD]
        reasons = []
        if self.conditions.is_machine_busy:
            reasons.append(busy_cores(self.conditions.other_load))
        if unsteady:
            reasons.append(f"passes over {len(unsteady)} of {len(spreads)} depths differ by up to {max(unsteady):.0%}")
        return doubt_of_times(reasons)

    def model(self, label: str) -> ModelSweep:
        return next(model for model in self.models if model.label == label)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "conditions": asdict(self.conditions),
            "doubt": self.doubt,
            "signatures": self.quality.signatures,
            "models": [model.to_json() for model in self.models],
            "comparison": self.comparison.to_json() if self.comparison else None,
        }


def sweep(
    translators: Translators,
    sources: Sequence[str],
    references: Sequence[str],
    options: RunOptions | None = None,
    *,
    depths: Sequence[str] | None = None,
    force: str | None = None,
    exits: Sequence[str] = (),
) -> SweepResult:
    """Measure every depth of every model, or `depths` alone; with several models, each where it has them.

    Each translator runs on its own engine, whose outputs are scored and whose time is taken. Several translators under
    one label are a family, such as a model trained for each depth: their depths together count as one model's. `force`
    names a strategy of depth/assignment.py whose depths replace those of the menus. `exits` are rules by which tokens
    leave the decoder early, measured besides at the default and the deepest depth. A pass goes round all depths before
    the next one starts, so that a slow minute of the machine spreads over all of them.
    """
    options = options or RunOptions()
    families = make_families(translators, force)
    check_paired(sources, references)
    for rule in exits:
        ExitRule.parse(rule, TOKEN_EXITS)
    runs = [*make_runs(families, depths), *make_exit_runs(families, list(dict.fromkeys(exits)))]
    conditions = Conditions.here(families, len(sources), options, force)
    conditions = replace(conditions, other_load=_time(runs, sources, options))
    models = tuple(
        ModelSweep(label, *(_scored(runs, label, references, exits=early) for early in (False, True)))
        for label in families
    )
    comparison = compare(models, references, samples=options.samples) if len(models) > 1 else None
    return SweepResult(models, tuple(sources), tuple(references), conditions, comparison)


def record_sweep(translator: Translator, result: SweepResult, label: str | None = None) -> bool:
    """Record the measurements of the model called `label` (by default the only one) in its folder; say if it was done.

    Depth selection and the model card read them there. Of a family each member gets those of its own depths. What a
    model did at depths that it was forced to is not recorded: nobody should pick one of them. A sweep of some depths
    joins the others' measurements only if those were made in the same way.
    """
    folder, menu = translator.folder, translator.menu
    if folder is None or result.conditions.forced:
        return False
    model = result.models[0] if label is None else result.model(label)
    own = {
        one.depth: ({**one.figures(*SPEED), **_known(one.figures(*SIZE))}, one.figures(*QUALITY))
        for one in model.depths
        if one.depth in menu.names
    }
    measured_on = _measured_on(result, translator)
    if own and not measured_alike(menu, own, measured_on):
        log.warning(
            f"warning: {folder.name} keeps its earlier measurements, made under other conditions: "
            "sweep all its depths to replace them"
        )
        return False
    return bool(own) and record_measurements(folder, menu, own, measured_on)


def _known(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if value is not None}


def _time(runs: Sequence[DepthRun], sources: Sequence[str], options: RunOptions) -> float | None:
    """Fill in outputs and seconds; say how many cores others kept busy meanwhile."""
    for run in runs:
        run.translator.hypotheses(sources[:WARM_UP_SENTENCES], depth=run.entry.name, exit=run.exit, **options.search)
    load = OtherLoad()
    with progress_bar(f"sweep of {len(runs)} depths", options.repeats * len(runs) * len(sources)) as advance:
        for _ in range(options.repeats):
            for run in runs:
                how: Any = {"depth": run.entry.name, "exit": run.exit, "progress": advance, **options.search}
                start = time.perf_counter()
                found = run.translator.hypotheses(sources, **how)
                run.seconds.append(time.perf_counter() - start)
                run.outputs = tuple(best.text for best, *_ in found)
                run.output_tokens = sum(len(best.tokens) for best, *_ in found)
                layers = sum(best.decoder_layers * len(best.tokens) for best, *_ in found)
                run.decoder_layers = layers / max(1, run.output_tokens)
    return load.cores()


def _scored(runs: Sequence[DepthRun], label: str, references: Sequence[str], *, exits: bool) -> tuple[DepthResult, ...]:
    """Those of one model, at fixed depths or with exit rules."""
    return tuple(
        DepthResult(
            run.name,
            *run.layers,
            score(run.outputs, references),
            tuple(run.seconds),
            run.output_tokens,
            run.translator.parameters(run.entry.name),
            _weights_size(run),
            run.outputs,
            run.decoder_layers if exits else None,
        )
        for run in runs
        if run.label == label and (run.exit is not None) == exits
    )


def _weights_size(run: DepthRun) -> int | None:
    """As the engine holds them, where that is known."""
    translator = run.translator
    if translator.engine.name == "torch":
        return translator.bytes(run.entry.name)
    return (
        weights_size(translator.loaded, run.entry.subnetwork) if isinstance(translator.engine, NativeEngine) else None
    )


def _measured_on(result: SweepResult, translator: Translator) -> dict[str, Any]:
    conditions, engine = result.conditions, translator.engine.name
    return {
        "device": conditions.device,
        "threads": conditions.threads,
        **({} if engine == "torch" else {"engine": engine}),
        "machine": conditions.machine,
        "batch_size": conditions.batch_size,
        "beam": conditions.beam,
        "length_penalty": conditions.length_penalty,
        "cut_long": conditions.cut_long,
        "bleu_signature": result.quality.bleu_signature,
        "chrf_signature": result.quality.chrf_signature,
        "test_set": conditions.source_file,
        "reference": conditions.reference_file,
        "lines": conditions.lines,
        "date": conditions.date,
    }

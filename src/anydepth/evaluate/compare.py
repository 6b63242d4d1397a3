"""Compare ways of training: translate a test set with every model of every system, score it, test the differences.

`compare_systems` gives a result; compare_report.py shows it.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from anydepth.artifact import short_name
from anydepth.errors import UserError
from anydepth.evaluate.experiment import (
    Conditions,
    Families,
    Mean,
    RunOptions,
    Translators,
    check_paired,
    make_families,
)
from anydepth.evaluate.kept_outputs import FOLDER, KeptOutputs, outputs_key
from anydepth.evaluate.metrics import Quality, score
from anydepth.evaluate.report import file_stems
from anydepth.evaluate.significance import Difference, paired_bootstrap
from anydepth.infer.translator import Translator
from anydepth.progress import progress_bar

FORMAT = 1

log = logging.getLogger(__name__)


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

    def to_json(self) -> dict[str, Any]:
        known = {name: getattr(self, name) for name in ("name", "depth", "fingerprint")}
        figures = {name: getattr(self.quality, name) for name in ("bleu", "chrf", "length_ratio", "repetition_rate")}
        return {**known, **figures, "outputs": f"{FOLDER}/{self.file}"}


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
    def bleu(self) -> Mean:
        return Mean.over(model.quality.bleu for model in self.models)

    @property
    def chrf(self) -> Mean:
        return Mean.over(model.quality.chrf for model in self.models)

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "mean_bleu": self.bleu.mean,
            "sd_bleu": self.bleu.deviation,
            "mean_chrf": self.chrf.mean,
            "sd_chrf": self.chrf.deviation,
            "difference": asdict(self.difference) if self.difference else None,
            "models": [model.to_json() for model in self.models],
        }


@dataclass(frozen=True)
class CompareResult:
    """The first system is the baseline. `samples`, `seed` and `over_seeds` are those of the bootstrap."""

    systems: tuple[System, ...]
    conditions: Conditions
    samples: int
    seed: int
    over_seeds: bool = False  # whether the bootstrap drew the seeds, too

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
        return self.baseline.models[0].quality.signatures

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "conditions": asdict(self.conditions),
            "signatures": self.signatures,
            "test": {
                "name": f"paired bootstrap over sentences{' and seeds' if self.over_seeds else ''}, BLEU, against the "
                "first system",
                "samples": self.samples,
                "seed": self.seed,
            },
            "systems": [system.to_json() for system in self.systems],
        }


@dataclass(frozen=True)
class _ModelAtDepth:
    """A model at the depth it is judged by."""

    name: str
    translator: Translator
    depth: str
    made_by: str
    file: str


def compare_systems(
    translators: Translators,
    sources: Sequence[str],
    references: Sequence[str],
    options: RunOptions | None = None,
    *,
    depth: str | None = None,
    kept: KeptOutputs | None = None,
) -> CompareResult:
    """Compare every system with the first, at `depth` or at the deepest of each model.

    Several translators under one label are one way of training with several seeds. The paired bootstrap covers the luck
    of the test set, the standard deviation over the seeds that of training; with `over_seeds` the bootstrap covers
    both. Outputs go into `kept` one model after the other, and are taken from there where nothing
    has changed.
    """
    options = options or RunOptions()
    families = make_families(translators)
    if len(families) < 2:
        raise UserError("nothing to compare: give two or more systems")
    check_paired(sources, references)
    conditions = Conditions.here(families, len(sources), replace(options, repeats=1))
    candidates = _candidates(families, depth, sources, options)
    everyone = [one for members in candidates.values() for one in members]
    outputs = _outputs(everyone, sources, kept or KeptOutputs(), options)
    models = {
        label: tuple(_scored(one, outputs[one.made_by], references) for one in members)
        for label, members in candidates.items()
    }
    lines = [[model.outputs for model in members] for members in models.values()]
    differences = paired_bootstrap(
        lines, references, samples=options.samples, seed=options.seed, over_seeds=options.over_seeds
    )
    systems = map(System, models, models.values(), [None, *differences])
    return CompareResult(tuple(systems), conditions, options.samples, options.seed, options.over_seeds)


def _candidates(
    families: Families, depth: str | None, sources: Sequence[str], options: RunOptions
) -> dict[str, list[_ModelAtDepth]]:
    """Refuses what cannot be compared before anyone waits for it."""
    stems = file_stems(list(families))
    search = {name: value for name, value in options.search.items() if name != "batch_size"}  # which changes nothing
    found: dict[str, list[_ModelAtDepth]] = {label: [] for label in families}
    for label, members in families.items():
        for number, translator in enumerate(members, 1):
            name = short_name(translator.folder) if translator.folder else "a model"
            try:
                chosen = translator.menu[depth].name
            except UserError as error:
                raise UserError(f"{label}, {name}: {error}") from error
            made_by = outputs_key(translator, chosen, sources, search)
            if made_by in (one.made_by for one in found[label]):
                raise UserError(f"{label}: {name} is the same model as one before it: give each seed once")
            found[label].append(_ModelAtDepth(name, translator, chosen, made_by, f"{stems[label]}.{number}.txt"))
    return found


def _outputs(
    candidates: Sequence[_ModelAtDepth], sources: Sequence[str], kept: KeptOutputs, options: RunOptions
) -> dict[str, tuple[str, ...]]:
    """By their keys, so that a model in two systems translates once."""
    wanted = {one.made_by for one in candidates}
    ready = {key: lines for key in wanted if (lines := kept.get(key, len(sources)))}
    if ready:
        log.info(f"outputs kept from before: {len(ready)} of {len(wanted)}")
    # What is ready goes first, into its file of today: a new one may take the file that it had before.
    in_order = sorted(candidates, key=lambda one: one.made_by not in ready)
    with progress_bar("sentences translated", (len(wanted) - len(ready)) * len(sources)) as advance:
        for one in in_order:
            if one.made_by not in ready:
                outputs = one.translator.translate(sources, depth=one.depth, progress=advance, **options.search)
                ready[one.made_by] = tuple(outputs)
            kept.keep(one.file, one.made_by, ready[one.made_by])
    return ready


def _scored(one: _ModelAtDepth, outputs: tuple[str, ...], references: Sequence[str]) -> ScoredModel:
    quality = score(outputs, references)
    return ScoredModel(one.name, one.depth, one.translator.fingerprint, one.made_by, one.file, outputs, quality)

"""Compare ways of training: translate a test set with every model of every system, score it, test the differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from anydepth.artifact.model import short_name
from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.experiment import Conditions, Families, check_paired, make_families
from anydepth.evaluate.kept_outputs import KeptOutputs, key_of
from anydepth.evaluate.metrics import score
from anydepth.evaluate.report import file_stems
from anydepth.evaluate.significance import paired_bootstrap
from anydepth.evaluate.systems_result import ScoredModel, System, SystemsResult
from anydepth.infer.translator import Translator


@dataclass(frozen=True)
class _Candidate:
    """A model at the depth it is judged by."""

    name: str
    translator: Translator
    depth: str
    made_by: str
    file: str


def compare_systems(
    translators: Mapping[str, Translator | Sequence[Translator]],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    depth: str | None = None,
    beam: int = 1,
    length_penalty: float = 0.6,
    batch_size: int = 32,
    cut_long: bool = False,
    samples: int = 1000,
    seed: int = 1,
    kept: KeptOutputs | None = None,
    source_name: str = "",
    reference_name: str = "",
    console: Console | None = None,
) -> SystemsResult:
    """Compare every system with the first, at `depth` or at the deepest of each model.

    Several translators under one label are one way of training with several seeds. The paired bootstrap of `samples`
    covers the luck of the test set, the standard deviation over the seeds that of training. Outputs go into `kept` one
    model after the other, and are taken from there where nothing has changed.
    """
    families = make_families(translators)
    if len(families) < 2:
        raise UserError("nothing to compare: give two or more systems")
    check_paired(sources, references)
    console = console or Console(stderr=True)
    search = {"beam": beam, "length_penalty": length_penalty, "cut_long": cut_long}
    conditions = Conditions.here(
        (member for members in families.values() for member in members),
        sources,
        source_name,
        reference_name,
        batch_size=batch_size,
        repeats=1,
        **search,
    )
    candidates = _candidates(families, depth, sources, search)
    everyone = [one for members in candidates.values() for one in members]
    outputs = _outputs(everyone, sources, kept or KeptOutputs(), console, batch_size=batch_size, **search)
    models = {
        label: tuple(_scored(one, outputs[one.made_by], references) for one in members)
        for label, members in candidates.items()
    }
    lines = [[model.outputs for model in members] for members in models.values()]
    differences = paired_bootstrap(lines, references, samples=samples, seed=seed)
    systems = map(System, models, models.values(), [None, *differences])
    return SystemsResult(tuple(systems), conditions, samples, seed)


def _candidates(
    families: Families, depth: str | None, sources: Sequence[str], search: dict[str, Any]
) -> dict[str, list[_Candidate]]:
    """Refuses what cannot be compared before anyone waits for it."""
    stems = file_stems(list(families))
    found: dict[str, list[_Candidate]] = {label: [] for label in families}
    for label, members in families.items():
        for number, translator in enumerate(members, 1):
            name = short_name(translator.folder) if translator.folder else "a model"
            try:
                chosen = translator.menu[depth].name
            except UserError as error:
                raise UserError(f"{label}, {name}: {error}") from error
            made_by = key_of(translator, chosen, sources, search)
            if made_by in (one.made_by for one in found[label]):
                raise UserError(f"{label}: {name} is the same model as one before it: give each seed once")
            found[label].append(_Candidate(name, translator, chosen, made_by, f"{stems[label]}.{number}.txt"))
    return found


def _outputs(
    candidates: Sequence[_Candidate], sources: Sequence[str], kept: KeptOutputs, console: Console, **options: Any
) -> dict[str, tuple[str, ...]]:
    """By their keys, so that a model in two systems translates once."""
    wanted = {one.made_by for one in candidates}
    ready = {key: lines for key in wanted if (lines := kept.get(key, len(sources)))}
    if ready:
        console.print(f"outputs kept from before: {len(ready)} of {len(wanted)}", highlight=False)
    # What is ready goes first, into its file of today: a new one may take the file that it had before.
    in_order = sorted(candidates, key=lambda one: one.made_by not in ready)
    with bar(console, "sentences translated", (len(wanted) - len(ready)) * len(sources)) as advance:
        for one in in_order:
            if one.made_by not in ready:
                outputs = one.translator.translate(sources, depth=one.depth, progress=advance, **options)
                ready[one.made_by] = tuple(outputs)
            kept.keep(one.file, one.made_by, ready[one.made_by])
    return ready


def _scored(one: _Candidate, outputs: tuple[str, ...], references: Sequence[str]) -> ScoredModel:
    quality = score(outputs, references)
    return ScoredModel(one.name, one.depth, one.translator.fingerprint, one.made_by, one.file, outputs, quality)

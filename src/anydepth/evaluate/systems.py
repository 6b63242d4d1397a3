"""Compare ways of training: translate a test set with every model of every system, score it, test the differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from anydepth.artifact import short_name
from anydepth.errors import UserError
from anydepth.evaluate.bar import bar
from anydepth.evaluate.jobs import Families, families_of
from anydepth.evaluate.kept_outputs import Kept, key_of
from anydepth.evaluate.metrics import score
from anydepth.evaluate.paired import check_paired
from anydepth.evaluate.result import Conditions
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
    kept: Kept | None = None,
    source_name: str = "",
    reference_name: str = "",
    console: Console | None = None,
) -> SystemsResult:
    """Compare every system with the first, at `depth` or at the deepest of each model.

    Several translators under one label are one way of training with several seeds. The paired bootstrap of `samples`
    covers the luck of the test set, the standard deviation over the seeds that of training. `kept` are outputs of an
    earlier comparison, taken over where nothing has changed.
    """
    families = families_of(translators)
    if len(families) < 2:
        raise UserError("nothing to compare: give two or more systems")
    check_paired(sources, references)
    console = console or Console(stderr=True)
    conditions = Conditions.here(
        (member.model for members in families.values() for member in members),
        sources,
        source_name,
        reference_name,
        beam=beam,
        length_penalty=length_penalty,
        batch_size=batch_size,
        cut_long=cut_long,
        repeats=1,
    )
    candidates = _candidates(families, depth, sources, conditions)
    outputs = _outputs(candidates, sources, conditions, kept or {}, console)
    models = {
        label: tuple(_scored(one, outputs[one.made_by], references) for one in members)
        for label, members in candidates.items()
    }
    lines = [[model.outputs for model in members] for members in models.values()]
    differences = paired_bootstrap(lines, references, samples=samples, seed=seed)
    systems = map(System, models, models.values(), [None, *differences])
    return SystemsResult(tuple(systems), conditions, samples, seed)


def _candidates(
    families: Families, depth: str | None, sources: Sequence[str], conditions: Conditions
) -> dict[str, list[_Candidate]]:
    """Refuses what cannot be compared before anyone waits for it."""
    found = {
        label: [_candidate(label, member, depth, sources, conditions) for member in members]
        for label, members in families.items()
    }
    for label, members in found.items():
        twice = [one.name for place, one in enumerate(members) if one.made_by in {m.made_by for m in members[:place]}]
        if twice:
            raise UserError(f"{label}: {twice[0]} is the same model as one before it: give each seed once")
    return found


def _candidate(
    label: str, translator: Translator, depth: str | None, sources: Sequence[str], conditions: Conditions
) -> _Candidate:
    name = short_name(translator.folder) if translator.folder else "a model"
    try:
        chosen = translator.menu[depth].name
    except UserError as error:
        raise UserError(f"{label}, {name}: {error}") from error
    made_by = key_of(
        translator,
        chosen,
        sources,
        beam=conditions.beam,
        length_penalty=conditions.length_penalty,
        cut_long=conditions.cut_long,
    )
    return _Candidate(name, translator, chosen, made_by)


def _outputs(
    candidates: Mapping[str, Sequence[_Candidate]],
    sources: Sequence[str],
    conditions: Conditions,
    kept: Kept,
    console: Console,
) -> Kept:
    """By their keys, so that a model in two systems translates once."""
    wanted = {one.made_by: one for members in candidates.values() for one in members}
    # A translation with a line break in it takes several lines in a file, and cannot be read back.
    found = {key: kept[key] for key in wanted if key in kept and len(kept[key]) == len(sources)}
    if found:
        console.print(f"outputs kept from before: {len(found)} of {len(wanted)}", highlight=False)
    missing = {key: one for key, one in wanted.items() if key not in found}
    if not missing:
        return found
    with bar(console, "sentences translated", len(missing) * len(sources)) as advance:
        for key, one in missing.items():
            lines = one.translator.translate(
                sources,
                depth=one.depth,
                beam=conditions.beam,
                length_penalty=conditions.length_penalty,
                batch_size=conditions.batch_size,
                cut_long=conditions.cut_long,
                progress=advance,
            )
            found[key] = tuple(lines)
    return found


def _scored(one: _Candidate, outputs: tuple[str, ...], references: Sequence[str]) -> ScoredModel:
    quality = score(outputs, references)
    return ScoredModel(one.name, one.depth, one.translator.fingerprint, one.made_by, outputs, quality)

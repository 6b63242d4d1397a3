"""What a sweep has to do: one job for each depth of each model, or of each family of models under one label."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anydepth.depth import DepthMenu, MenuEntry
from anydepth.depth.assignment import assign, make_menu
from anydepth.errors import UserError
from anydepth.infer.translator import Translator

Families = dict[str, tuple[Translator, ...]]


@dataclass
class Job:
    """One depth of one model, and what its passes over the test set have given so far."""

    label: str
    translator: Translator
    entry: MenuEntry
    seconds: list[float] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    output_tokens: int = 0

    @property
    def layers(self) -> tuple[int, int]:
        return len(self.entry.subnetwork.encoder), len(self.entry.subnetwork.decoder)


def families_of(translators: Mapping[str, Translator | Sequence[Translator]], force: str | None = None) -> Families:
    """A lone model is a family of one. With `force`, all have that strategy's depths, and labels that say so."""
    families = {label: (one,) if isinstance(one, Translator) else tuple(one) for label, one in translators.items()}
    if not families or not all(families.values()):
        raise UserError("give at least one model to evaluate")
    if force is None:
        return families
    return {f"{label} (forced {force})": _forced(label, members, force) for label, members in families.items()}


def _forced(label: str, members: tuple[Translator, ...], strategy: str) -> tuple[Translator, ...]:
    if len(members) > 1:
        raise UserError(f"{label} is a family, and forced depths of its members would overlap: force single models")
    return (_with_depths_of(strategy, members[0]),)


def _with_depths_of(strategy: str, translator: Translator) -> Translator:
    """The same weights, at depths for which they may not have been trained."""
    config = translator.model.config
    encoder, decoder = assign(strategy, config.encoder_layers), assign(strategy, config.decoder_layers)
    menu = make_menu(encoder.chosen, decoder.chosen)
    return Translator(replace(translator.loaded, menu=menu), translator.engine)


def jobs_of(families: Families, depths: Sequence[str] | None) -> list[Job]:
    """All depths, or `depths` alone, of each family in the order of its menu, or of `depths`."""
    wanted = None if depths is None else list(dict.fromkeys(depths))
    menus = {label: _menu(members) for label, members in families.items()}
    known = {name for menu in menus.values() for name in menu.names}
    jobs = []
    for label, menu in menus.items():
        names = menu.names if wanted is None else [name for name in wanted if name in menu.names]
        unknown = [name for name in wanted or [] if name not in known]
        # The menu itself refuses what no model has, and the first wish if this model has none of them.
        refused = unknown or (wanted if wanted and not names else [])
        jobs += [_job(label, families[label], menu[name].name) for name in [*refused, *names]]
    if not jobs:
        raise UserError("there are no depths to measure: name at least one, or none to measure them all")
    return jobs


def _menu(members: Sequence[Translator]) -> DepthMenu:
    entries: Iterable[MenuEntry] = [entry for member in members for entry in member.menu]
    if len(members) > 1:
        entries = sorted(entries, key=lambda entry: (len(entry.subnetwork.encoder), len(entry.subnetwork.decoder)))
    return DepthMenu(entries)


def _job(label: str, members: Sequence[Translator], depth: str) -> Job:
    owners = [member for member in members if depth in member.menu.names]
    if len(owners) > 1:
        one, other = (str(owner.folder or "a model") for owner in owners[:2])
        raise UserError(f"{label}: {one} and {other} both have depth {depth}: keep one of the two in the family")
    return Job(label, owners[0], owners[0].menu[depth])

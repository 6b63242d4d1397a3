"""The `DepthMenu`: the named sub-networks that a finished model offers, with the measured cost and quality of each."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anydepth.depth.subnetwork import SubNetwork
from anydepth.errors import UserError

FORMAT = 1


@dataclass(frozen=True)
class Measurement:
    """What a sweep measured for a depth."""

    cost: dict[str, float]
    quality: dict[str, float]


@dataclass(frozen=True)
class MenuEntry:
    """One depth. `cost` and `quality` are what a sweep measured, empty until then.

    It may be for one language pair, such as en-fr. An entry for all pairs has measurements for each: `of_pairs`.
    """

    name: str
    subnetwork: SubNetwork
    cost: dict[str, float] = field(default_factory=dict)
    quality: dict[str, float] = field(default_factory=dict)
    pair: str | None = None
    of_pairs: dict[str, Measurement] = field(default_factory=dict)

    @property
    def layers(self) -> int:
        return len(self.subnetwork.encoder) + len(self.subnetwork.decoder)

    def to_json(self) -> dict[str, Any]:
        """Keys of language pairs and word depths are left out where they are empty."""
        row = asdict(self)
        if not self.subnetwork.by_word:
            del row["subnetwork"]["by_word"]
        return {key: row[key] for key in row if row[key] or key not in ("pair", "of_pairs")}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "MenuEntry":
        of_pairs = {pair: Measurement(**values) for pair, values in row.get("of_pairs", {}).items()}
        sides: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in row["subnetwork"].items()
        }
        return cls(row["name"], SubNetwork(**sides), row["cost"], row["quality"], row.get("pair"), of_pairs)


class DepthMenu:
    """An ordered collection of menu entries, shallow to deep."""

    def __init__(
        self,
        entries: Iterable[MenuEntry],
        measured_on: dict[str, Any] | None = None,
        measured_on_pairs: dict[str, dict[str, Any]] | None = None,
        default: str | None = None,
    ) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._measured_on = measured_on or {}
        self._measured_on_pairs = measured_on_pairs or {}
        self._default = default
        if not self._entries:
            raise UserError("a depth menu needs at least one entry")
        if default is not None and default not in self._entries:
            raise UserError(f"the default depth {default} is not in the depth menu, which has: {self._shown_names}")

    @classmethod
    def of(cls, subnetworks: Iterable[SubNetwork], pair: str | None = None) -> "DepthMenu":
        """Sub-networks under their names; those of a language pair as en-fr:6-2."""
        prefix = "" if pair is None else f"{pair}:"
        return cls(MenuEntry(f"{prefix}{sub.name}", sub, pair=pair) for sub in subnetworks)

    @classmethod
    def every_prefix(cls, n_layers: int, m_layers: int) -> "DepthMenu":
        """All N x M exits of a tied-multi model; N exits of an encoder-only model."""
        decoders = range(min(1, m_layers), m_layers + 1)
        return cls.of(SubNetwork.prefix(n, m) for n in range(1, n_layers + 1) for m in decoders)

    def of_pair(self, pair: str) -> "PairMenu":
        """The entries for a language pair, under short names: 6-2 for en-fr:6-2."""
        return PairMenu(self.whole, pair)

    @property
    def whole(self) -> "DepthMenu":
        """The menu of all pairs."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown_names}; default {self.default.name})"

    def __iter__(self) -> Iterator[MenuEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str | None) -> MenuEntry:
        """The entry called `name`, or the default for None."""
        if name is None:
            return self.default
        if not isinstance(name, str):
            raise UserError(f"{name!r} is not a depth; this model has: {self._shown_names}")
        name = name.strip()
        if name not in self._entries:
            raise UserError(f"this model has no depth {name}; it has: {self._shown_names}")
        return self._entries[name]

    @property
    def _shown_names(self) -> str:
        names = self.names
        return ", ".join(names if len(names) <= 40 else [*names[:20], "...", *names[-3:]])

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    @property
    def deepest(self) -> MenuEntry:
        return max(self, key=lambda entry: entry.layers)

    @property
    def default(self) -> MenuEntry:
        """The one that was named as the default. Else each word at its own depth, if offered; else the deepest without
        layer weights, which make every layer run; else the deepest."""
        if self._default is not None:
            return self._entries[self._default]
        by_word = [entry for entry in self if entry.subnetwork.by_word]
        plain = by_word or [entry for entry in self if not entry.subnetwork.is_weighted]
        return max(plain, key=lambda entry: entry.layers, default=self.deepest)

    def exits(self, sub: SubNetwork) -> tuple[int, ...]:
        """Where a token may leave the decoder early: after so many layers `sub` is another depth of this menu."""
        own = (sub.encoder, sub.encoder_weights, sub.by_word)
        others = (entry.subnetwork for entry in self)
        same = [one for one in others if (one.encoder, one.encoder_weights, one.by_word) == own]
        return tuple(sorted({len(one.decoder) for one in same if one.decoder and _begins(sub, one)}))

    def with_default(self, name: str) -> "DepthMenu":
        """The same menu with another default."""
        return DepthMenu(self, self._measured_on, self._measured_on_pairs, self[name].name)

    @property
    def measured_on(self) -> dict[str, Any]:
        return self._measured_on

    @measured_on.setter
    def measured_on(self, conditions: dict[str, Any]) -> None:
        self._measured_on = conditions

    def measured(self, name: str, cost: dict[str, float], quality: dict[str, float]) -> None:
        """Record what a sweep measured for the entry called `name`."""
        entry = self[name]
        self._entries[entry.name] = replace(entry, cost=cost, quality=quality)

    def to_json(self) -> dict[str, Any]:
        of_pairs = {"measured_on_pairs": self._measured_on_pairs} if self._measured_on_pairs else {}
        default = {} if self._default is None else {"default": self._default}
        depths = [entry.to_json() for entry in self]
        return {"format": FORMAT, **default, "measured_on": self.measured_on, **of_pairs, "depths": depths}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "DepthMenu":
        if data["format"] > FORMAT:
            raise UserError("its depth menu was written by a newer anydepth: upgrade anydepth to read it")
        entries = [MenuEntry.from_json(row) for row in data["depths"]]
        return cls(entries, data["measured_on"], data.get("measured_on_pairs"), data.get("default"))


def _begins(sub: SubNetwork, other: SubNetwork) -> bool:
    m = len(other.decoder)
    weights = None if sub.decoder_weights is None else sub.decoder_weights[:m]
    return m < len(sub.decoder) and other.decoder == sub.decoder[:m] and other.decoder_weights == weights


class PairMenu(DepthMenu):
    """The part of a menu for one language pair. Measurements are stored in the whole menu, per pair."""

    def __init__(self, whole: DepthMenu, pair: str) -> None:
        self._whole, self.pair = whole, pair
        self._there = {self._short(entry.name): entry.name for entry in whole if entry.pair in (None, pair)}
        default = next((short for short, there in self._there.items() if there == whole._default), None)
        super().__init__((self._of_pair(short, whole[there]) for short, there in self._there.items()), default=default)

    def _short(self, name: str) -> str:
        return name.removeprefix(f"{self.pair}:")

    def _of_pair(self, short: str, entry: MenuEntry) -> MenuEntry:
        if entry.pair is not None:
            return replace(entry, name=short)
        measured = entry.of_pairs.get(self.pair, Measurement({}, {}))
        return MenuEntry(short, entry.subnetwork, measured.cost, measured.quality, self.pair)

    @property
    def whole(self) -> DepthMenu:
        return self._whole

    def __getitem__(self, name: str | None) -> MenuEntry:
        if not isinstance(name, str):
            return super().__getitem__(name)
        there = self._whole._entries.get(name.strip())
        if there is not None and there.pair not in (None, self.pair):
            raise UserError(
                f"{there.name} is of the pair {there.pair}: for {self.pair} take one of {self._shown_names}"
            )
        return super().__getitem__(self._short(name.strip()))

    @property
    def measured_on(self) -> dict[str, Any]:
        return self._whole._measured_on_pairs.get(self.pair, {})

    @measured_on.setter
    def measured_on(self, conditions: dict[str, Any]) -> None:
        self._whole._measured_on_pairs[self.pair] = conditions

    def measured(self, name: str, cost: dict[str, float], quality: dict[str, float]) -> None:
        super().measured(name, cost, quality)
        there = self._whole[self._there[self[name].name]]
        if there.pair is not None:
            self._whole.measured(there.name, cost, quality)
        else:
            of_pairs = {**there.of_pairs, self.pair: Measurement(cost, quality)}
            self._whole._entries[there.name] = replace(there, of_pairs=of_pairs)

    def with_default(self, name: str) -> DepthMenu:
        return self._whole.with_default(self._there[self[name].name])

    def to_json(self) -> dict[str, Any]:
        return self._whole.to_json()

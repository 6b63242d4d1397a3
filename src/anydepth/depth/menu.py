"""The `DepthMenu`: the named sub-networks a finished model is good at, with what each costs and gives."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anydepth.depth.subnetwork import SubNetwork, parse_depth
from anydepth.errors import UserError

FORMAT = 1


@dataclass(frozen=True)
class MenuEntry:
    """One depth on offer. `cost` and `quality` are what a sweep measured, empty until then."""

    name: str
    subnetwork: SubNetwork
    cost: dict[str, float] = field(default_factory=dict)
    quality: dict[str, float] = field(default_factory=dict)


class DepthMenu:
    """An ordered collection of menu entries, shallow to deep; the deepest is the default."""

    def __init__(self, entries: Iterable[MenuEntry], measured_on: dict[str, Any] | None = None) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self.measured_on = measured_on or {}
        if not self._entries:
            raise UserError("a depth menu needs at least one entry")

    @classmethod
    def of(cls, subnetworks: Iterable[SubNetwork]) -> "DepthMenu":
        return cls(MenuEntry(sub.name, sub) for sub in subnetworks)

    @classmethod
    def every_prefix(cls, n_layers: int, m_layers: int) -> "DepthMenu":
        """All N x M exits of a tied-multi model."""
        return cls.of(SubNetwork.prefix(n, m) for n in range(1, n_layers + 1) for m in range(1, m_layers + 1))

    def __iter__(self) -> Iterator[MenuEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str | None) -> MenuEntry:
        """The entry called `name`, or the deepest for None."""
        if name is None:
            return self.deepest
        if not isinstance(name, str):
            raise UserError(f"{name!r} is not a depth: write encoder-decoder, for instance '6-2'")
        name = name.strip()
        if name not in self._entries:
            parse_depth(name)  # a better message for what is no depth at all
            names = list(self._entries)
            shown = ", ".join(names if len(names) <= 40 else [*names[:20], "...", *names[-3:]])
            raise UserError(f"this model has no depth {name}; it has: {shown}")
        return self._entries[name]

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    @property
    def deepest(self) -> MenuEntry:
        return max(self, key=lambda entry: len(entry.subnetwork.encoder) + len(entry.subnetwork.decoder))

    def measured(
        self,
        name: str,
        cost: dict[str, float],
        quality: dict[str, float],
    ) -> None:
        """Record what a sweep measured for the entry called `name`."""
        self._entries[name] = replace(self[name], cost=cost, quality=quality)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "measured_on": self.measured_on,
            "depths": [asdict(entry) for entry in self],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "DepthMenu":
        if data["format"] > FORMAT:
            raise UserError("its depth menu was written by a newer anydepth: upgrade anydepth to read it")
        return cls(
            (
                MenuEntry(row["name"], _subnetwork(row["subnetwork"]), row["cost"], row["quality"])
                for row in data["depths"]
            ),
            data["measured_on"],
        )


def _subnetwork(row: dict[str, Any]) -> SubNetwork:
    return SubNetwork(**{key: value and tuple(value) for key, value in row.items()})

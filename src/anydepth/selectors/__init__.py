"""What picks a depth: a `Selector` maps inputs to entries of the menu."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Selector(Protocol):
    """Decoding asks it once for all the sentences that are translated together."""

    def choose(self, sources: Sequence[Sequence[int]]) -> list[str]:
        """The name of a menu entry for each source, given as token ids that end in EOS."""

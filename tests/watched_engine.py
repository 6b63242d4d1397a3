"""An engine that runs another one, and shows each batch to a test before it does."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from anydepth.depth import SubNetwork
from anydepth.engines.base import Engine, SearchBatch, SearchResult


class WatchedEngine:
    def __init__(self, engine: Engine, watch: Callable[[str, int], None]) -> None:
        """`watch` gets the depth and the number of sentences of a batch."""
        self._engine, self._watch = engine, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def search(
        self, subs: Sequence[SubNetwork], batches: Iterable[SearchBatch], *arguments: Any
    ) -> Iterator[list[SearchResult]]:
        def watched() -> Iterator[SearchBatch]:
            for batch in batches:
                for sub in subs:
                    self._watch(sub.name, len(batch.sources))
                yield batch

        return self._engine.search(subs, watched(), *arguments)

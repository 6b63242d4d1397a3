"""The native engine: sub-networks on the C++ core (core.py), in int8."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from threading import Lock
from typing import TYPE_CHECKING

from anydepth.config import ModelConfig
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import Classified, ClassifierDepths, SearchBatch, SearchOptions, SearchResult, check_native
from anydepth.engines.core import NativeModel
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.word_depths.table import TokenDepths

MOST_IN_A_CALL = 4  # threads: a layer has little to share


class NativeEngine:
    """One copy of the weights runs every depth. Batches run side by side, a thread each; threads share one alone.

    `Engine` and `ClassifierEngine` in one.
    """

    name, compute_type = "native", "int8"

    def __init__(
        self,
        native: NativeModel,
        config: ModelConfig,
        menu: DepthMenu,
        threads: int,
        *,
        speculate: bool = False,
        search_shortlist: bool = False,
    ) -> None:
        """Drafts are taken from the shortlist of the native model; with `search_shortlist` everything is."""
        check_native(config, classifies=native.classes > 0)
        self.native, self.config, self.menu, self.threads = native, config, menu, threads
        self.speculate, self.search_shortlist = speculate, search_shortlist
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="native")
        native.set_threads(min(threads, MOST_IN_A_CALL))
        self._looking_up = Lock()

    @property
    def why_no_exits(self) -> str | None:
        return "speculate=True verifies every token at the full depth" if self.speculate else None

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        for sub in subs:
            check_native(self.config, sub, classifies=self.native.classes > 0)

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: "TokenDepths | None" = None,
    ) -> Iterator[list[SearchResult]]:
        """A batch alone is done here and now; of several, so many are under way that no thread waits for the next."""
        self.prepare(subs)
        coming = iter(batches)
        first = list(islice(coming, 2))
        if len(first) < 2 or self.threads == 1:
            for batch in chain(first, coming):
                yield [self._search(sub, batch, options, token_depths) for sub in subs]
            return
        waiting: deque[list[Future[SearchResult]]] = deque()
        for batch in chain(first, coming):
            waiting.append([self._pool.submit(self._search, sub, batch, options, token_depths) for sub in subs])
            if len(waiting) > 2 * self.threads:
                yield [one.result() for one in waiting.popleft()]
        while waiting:
            yield [one.result() for one in waiting.popleft()]

    def _search(
        self, sub: SubNetwork, batch: SearchBatch, options: SearchOptions, token_depths: "TokenDepths | None"
    ) -> SearchResult:
        depths = None
        if sub.by_word:
            if token_depths is None:
                raise UserError(
                    f"depth {sub.name} needs the depths of words, and the model has none: use another depth"
                )
            depths = self._look_up(token_depths, batch.sources)
        draft_layers = self.draft_layers(sub) if self.speculate else 0
        return self.native.search(sub, batch, options, depths, draft_layers, shortlist=self.search_shortlist)

    def classify(self, sub: SubNetwork, sources: list[list[int]], depths: ClassifierDepths) -> list[Classified]:
        self.prepare([sub])
        own = None
        if sub.by_word and depths.exit_rule is None and depths.table is not None:
            own = self._look_up(depths.table, sources)
        count = min(self.threads, len(sources))
        if count <= MOST_IN_A_CALL:
            return self.native.classify(sub, sources, depths, own)
        parts = [(sources[n::count], None if own is None else own[n::count]) for n in range(count)]  # alike in length
        found = list(self._pool.map(lambda part: self.native.classify(sub, part[0], depths, part[1]), parts))
        return [found[i % count][i // count] for i in range(len(sources))]

    def _look_up(self, depths: "TokenDepths", sources: Sequence[list[int]]) -> list[list[int]]:
        """One thread at a time: what is looked up for the first time is kept."""
        with self._looking_up:
            return depths.of_many(sources)

    def draft_layers(self, sub: SubNetwork) -> int:
        """Of the shallowest depth in the menu that this one begins with, or 0."""
        return min(self.menu.exits(sub), default=0)

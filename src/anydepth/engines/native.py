"""The native engine: the C++ core of csrc, called through its C interface (csrc/anydepth.h).

Calls let go of the interpreter lock, so that batches run side by side. native_format.py writes what the core reads.
"""

import ctypes
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anydepth.depth import DepthMenu, SubNetwork
from anydepth.engines.base import Candidate, SearchBatch, SearchOptions, SearchResult
from anydepth.engines.native_format import check_runs, packed
from anydepth.engines.shortlist import Shortlist
from anydepth.errors import UserError
from anydepth.model import Transformer
from anydepth.word_depths.table import TokenDepths

Ints = NDArray[np.int32]
INTERFACE = 1  # of the core, as this file knows it
_i32, _f32 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_float)


class SubNetworkStruct(ctypes.Structure):
    _fields_ = (
        ("encoder", _i32),
        ("encoder_weights", _f32),
        ("encoder_layers", ctypes.c_int32),
        ("decoder", _i32),
        ("decoder_weights", _f32),
        ("decoder_layers", ctypes.c_int32),
    )


class BatchStruct(ctypes.Structure):
    _fields_ = (
        ("tokens", _i32),
        ("starts", _i32),
        ("depths", _i32),
        ("limits", _i32),
        ("sentences", ctypes.c_int32),
    )


class OptionsStruct(ctypes.Structure):
    _fields_ = (
        ("beam", ctypes.c_int32),
        ("nbest", ctypes.c_int32),
        ("min_length", ctypes.c_int32),
        ("scores", ctypes.c_int32),
        ("shortlist", ctypes.c_int32),
        ("draft_layers", ctypes.c_int32),
        ("draft_length", ctypes.c_int32),
        ("length_penalty", ctypes.c_float),
    )


class ResultsStruct(ctypes.Structure):
    _fields_ = (("tokens", _i32), ("lengths", _i32), ("ended", _i32), ("scores", _f32))


class NativeEngine:
    """One copy of the weights runs every depth. Batches run side by side, a thread each."""

    name, compute_type = "native", "int8"

    def __init__(
        self,
        model: Transformer,
        menu: DepthMenu,
        threads: int,
        *,
        speculate: bool = False,
        shortlist: Shortlist | None = None,
        search_shortlist: bool = False,
    ) -> None:
        """A `shortlist` is what drafts are taken from; with `search_shortlist` everything is."""
        check_runs(model.config)
        self.config, self.menu, self.threads = model.config, menu, threads
        self.speculate, self.search_shortlist = speculate, search_shortlist
        self.native = NativeModel(packed(model), shortlist=shortlist)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="native")

    def prepare(self, subs: Iterable[SubNetwork]) -> None:
        for sub in subs:
            check_runs(self.config, sub)

    def search(
        self,
        subs: Sequence[SubNetwork],
        batches: Iterable[SearchBatch],
        options: SearchOptions,
        token_depths: TokenDepths | None = None,
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
        self, sub: SubNetwork, batch: SearchBatch, options: SearchOptions, token_depths: TokenDepths | None
    ) -> SearchResult:
        depths = None
        if sub.by_word:
            if token_depths is None:
                raise UserError(
                    f"depth {sub.name} needs the depths of words, and the model has none: use another depth"
                )
            depths = [token_depths.of(source) for source in batch.sources]
        draft_layers = self.draft_layers(sub) if self.speculate else 0
        return self.native.search(sub, batch, options, depths, draft_layers, shortlist=self.search_shortlist)

    def draft_layers(self, sub: SubNetwork) -> int:
        """Of the shallowest depth in the menu with this encoder whose decoder layers this one begins with, or 0."""
        own = (sub.encoder, sub.encoder_weights, sub.by_word)
        found = [
            len(other.decoder)
            for other in (entry.subnetwork for entry in self.menu)
            if (other.encoder, other.encoder_weights, other.by_word) == own and _begins(sub, other)
        ]
        return min(found, default=0)


class NativeModel:
    """A model in the core's memory. Several threads may search at once."""

    def __init__(self, data: bytes, kernels: str | None = None, shortlist: Shortlist | None = None) -> None:
        self._core = library()
        found = self._core.anydepth_load(data, len(data), None if kernels is None else kernels.encode())
        if found is None:
            raise UserError(f"the native engine cannot take this model: {last_error()}")
        self._model = ctypes.c_void_p(found)
        if shortlist is not None:
            arrays = (shortlist.always, shortlist.offsets, shortlist.outputs)
            always, offsets, outputs = (_ints(np.ascontiguousarray(values, np.int32)) for values in arrays)
            count = len(shortlist.always)
            self._check(self._core.anydepth_set_shortlist(self._model, always, count, offsets, outputs))

    def __del__(self) -> None:
        if getattr(self, "_model", None) is not None:
            self._core.anydepth_free(self._model)

    @property
    def memory(self) -> int:
        """Bytes of all weights."""
        return int(self._core.anydepth_memory(self._model))

    @property
    def speculation(self) -> dict[str, int]:
        """What drafting has come to since the model was loaded."""
        counts = (ctypes.c_int64 * 4)()
        self._core.anydepth_speculation(self._model, counts)
        return dict(zip(("drafted", "accepted", "passes", "tokens"), counts, strict=True))

    def search(
        self,
        sub: SubNetwork,
        batch: SearchBatch,
        options: SearchOptions,
        depths: Sequence[Sequence[int]] | None = None,
        draft_layers: int = 0,
        draft_length: int = 0,
        shortlist: bool = False,
    ) -> SearchResult:
        """`draft_layers` draft tokens, so many at a time; 0: as many as pay."""
        count, longest = len(batch.sources), max(batch.limits)
        shape = (count, options.nbest)
        tokens = np.empty((*shape, longest), np.int32)
        lengths, ended = np.empty(shape, np.int32), np.empty(shape, np.int32)
        scores = np.empty(shape, np.float32)
        asked = OptionsStruct(
            options.beam,
            options.nbest,
            options.min_length,
            options.scores or options.beam > 1,
            shortlist,
            draft_layers,
            draft_length,
            options.length_penalty,
        )
        of, keep = _subnetwork(sub)
        given, keep_too = _batch(batch, depths)
        results = ResultsStruct(_ints(tokens), _ints(lengths), _ints(ended), _floats(scores))
        self._check(self._core.anydepth_search(self._model, of, given, asked, results))
        del keep, keep_too
        return [
            [
                Candidate(tuple(tokens[i, j, : lengths[i, j]].tolist()), float(scores[i, j]), bool(ended[i, j]))
                for j in range(options.nbest)
                if lengths[i, j] >= 0
            ]
            for i in range(count)
        ]

    def logits(
        self, sub: SubNetwork, source: list[int], target: list[int], vocabulary: int, at_once: int
    ) -> NDArray[np.float32]:
        """Of each position of a target that begins with BOS, computed so many positions in a pass."""
        found = np.empty((len(target), vocabulary), np.float32)
        of, keep = _subnetwork(sub)
        given, keep_too = _batch(SearchBatch([source], [1]), None)
        wanted = np.array(target, np.int32)
        self._check(
            self._core.anydepth_logits(self._model, of, given, _ints(wanted), len(target), at_once, _floats(found))
        )
        del keep, keep_too
        return found

    def _check(self, result: int) -> None:
        if result != 0:
            raise UserError(f"the native engine cannot do that: {last_error()}")


def _begins(sub: SubNetwork, other: SubNetwork) -> bool:
    m = len(other.decoder)
    weights = None if sub.decoder_weights is None else sub.decoder_weights[:m]
    return m < len(sub.decoder) and other.decoder == sub.decoder[:m] and other.decoder_weights == weights


def _subnetwork(sub: SubNetwork) -> tuple[SubNetworkStruct, object]:
    """And what has to stay in memory for it."""
    layers = [np.array(side, np.int32) for side in (sub.encoder, sub.decoder)]
    weights = [
        None if side is None else np.array(side, np.float32) for side in (sub.encoder_weights, sub.decoder_weights)
    ]
    parts = (
        (_ints(side), None if own is None else _floats(own), len(side))
        for side, own in zip(layers, weights, strict=True)
    )
    return SubNetworkStruct(*chain.from_iterable(parts)), (layers, weights)


def _batch(batch: SearchBatch, depths: Sequence[Sequence[int]] | None) -> tuple[BatchStruct, object]:
    sources = batch.sources
    tokens = np.fromiter(chain.from_iterable(sources), np.int32)
    starts = np.cumsum([0, *map(len, sources)], dtype=np.int32)
    limits = np.array(batch.limits, np.int32)
    deep = None if depths is None else np.fromiter(chain.from_iterable(depths), np.int32)
    made = BatchStruct(_ints(tokens), _ints(starts), None if deep is None else _ints(deep), _ints(limits), len(sources))
    return made, (tokens, starts, limits, deep)


def _ints(array: Ints) -> object:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


def _floats(array: NDArray[np.float32]) -> object:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


@cache
def library() -> ctypes.CDLL:
    """The core, or why there is none."""
    spec = find_spec("anydepth.engines._core")
    if spec is None or spec.origin is None:
        raise UserError(
            "the native engine was not built when anydepth was installed (it needs a C++ compiler): "
            'install a compiler and anydepth again, or use engine="ctranslate2" or engine="torch"'
        )
    try:
        core = ctypes.CDLL(str(Path(spec.origin)))
    except OSError as error:
        raise UserError(f"the native engine cannot be loaded ({error}): install anydepth again") from error
    if core.anydepth_interface() != INTERFACE:
        raise UserError("the native engine is of another version of anydepth: install anydepth again")
    _declare(core)
    return core


def _declare(core: ctypes.CDLL) -> None:
    model, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    sub, batch = ctypes.POINTER(SubNetworkStruct), ctypes.POINTER(BatchStruct)
    for name, result, arguments in (
        ("error", text, ()),
        ("kernels", text, (text,)),
        ("load", model, (text, size, text)),
        ("free", None, (model,)),
        ("memory", size, (model,)),
        ("set_shortlist", ctypes.c_int, (model, _i32, size, _i32, _i32)),
        (
            "search",
            ctypes.c_int,
            (model, sub, batch, ctypes.POINTER(OptionsStruct), ctypes.POINTER(ResultsStruct)),
        ),
        ("logits", ctypes.c_int, (model, sub, batch, _i32, ctypes.c_int32, ctypes.c_int32, _f32)),
        ("speculation", None, (model, ctypes.POINTER(ctypes.c_int64))),
    ):
        function = getattr(core, f"anydepth_{name}")
        function.restype, function.argtypes = result, arguments


def last_error() -> str:
    return str(library().anydepth_error().decode("utf-8"))


def kernels(name: str | None = None) -> str | None:
    """The instructions that run here, the fastest or those of this name; None if there are none of it."""
    found = library().anydepth_kernels(None if name is None else name.encode())
    return None if found is None else str(found.decode())

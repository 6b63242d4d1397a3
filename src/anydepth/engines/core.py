"""The C++ core of csrc, called through its C interface (csrc/anydepth.h).

Calls let go of the interpreter lock, so that batches run side by side. native_format.py writes what the core reads.
"""

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING

from anydepth.depth import SubNetwork
from anydepth.engines.base import (
    TOKEN_EXITS,
    Candidate,
    Classified,
    ClassifierDepths,
    SearchBatch,
    SearchOptions,
    SearchResult,
)
from anydepth.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from anydepth.engines.shortlist import Shortlist

INTERFACE = 5  # of the core, as this file knows it
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
        ("timeout", ctypes.c_double),
        ("abort", _i32),
        ("exits", _i32),
        ("exit_count", ctypes.c_int32),
        ("exit_rule", ctypes.c_int32),
        ("exit_value", ctypes.c_float),
    )


class ClassifyOptionsStruct(ctypes.Structure):
    _fields_ = (
        ("exits", _i32),
        ("exit_count", ctypes.c_int32),
        ("patience", ctypes.c_int32),
        ("confidence", ctypes.c_float),
        ("halting_scale", ctypes.c_float),
        ("timeout", ctypes.c_double),
        ("abort", _i32),
    )


class ResultsStruct(ctypes.Structure):
    _fields_ = (("tokens", _i32), ("lengths", _i32), ("ended", _i32), ("scores", _f32), ("layers", _f32))


class RequestStruct(ctypes.Structure):
    _fields_ = (
        ("depth", ctypes.c_char_p),
        ("pair", ctypes.c_char_p),
        ("budget", ctypes.c_double),
        ("timeout", ctypes.c_double),
        ("abort", _i32),
        ("beam", ctypes.c_int32),
        ("nbest", ctypes.c_int32),
        ("max_length", ctypes.c_int32),
        ("cut_long", ctypes.c_int32),
        ("scores", ctypes.c_int32),
        ("shortlist", ctypes.c_int32),
        ("length_penalty", ctypes.c_float),
        ("exit", ctypes.c_char_p),
    )


class OutputStruct(ctypes.Structure):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("depth", ctypes.c_char_p),
        ("score", ctypes.c_float),
        ("ended", ctypes.c_int32),
        ("layers", ctypes.c_float),
    )


class NativeModel:
    """A model in the core's memory. Several threads may search at once."""

    def __init__(self, data: bytes | Path, kernels: str | None = None, shortlist: "Shortlist | None" = None) -> None:
        """From a model file, which is mapped, or from its bytes. A `shortlist` takes the place of the file's."""
        self._core = library()
        name = None if kernels is None else kernels.encode()
        if isinstance(data, Path):
            found = self._core.anydepth_open(os.fsencode(data), name)
        else:
            found = self._core.anydepth_load(data, len(data), name)
        if found is None:
            raise UserError(f"the native engine cannot take this model: {last_error()}")
        self._model = ctypes.c_void_p(found)
        if shortlist is not None:
            always, offsets, outputs = map(_ints, (shortlist.always, shortlist.offsets, shortlist.outputs))
            self._check(self._core.anydepth_set_shortlist(self._model, always, len(always), offsets, outputs))

    def __del__(self) -> None:
        if getattr(self, "_model", None) is not None:
            self._core.anydepth_free(self._model)

    @property
    def has_shortlist(self) -> bool:
        return bool(self._core.anydepth_has_shortlist(self._model))

    def set_threads(self, threads: int) -> None:
        """Threads that share the work of a search, if no other runs. The results are the same to the bit."""
        self._check(self._core.anydepth_set_threads(self._model, threads))

    @property
    def classes(self) -> int:
        """0: it translates."""
        return int(self._core.anydepth_classes(self._model))

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
        count, nbest, longest = len(batch.sources), options.nbest, max(batch.limits)
        tokens = (ctypes.c_int32 * (count * nbest * longest))()
        lengths, ended = (ctypes.c_int32 * (count * nbest))(), (ctypes.c_int32 * (count * nbest))()
        scores, layers = (ctypes.c_float * (count * nbest))(), (ctypes.c_float * (count * nbest))()
        rule = options.exit_rule
        asked = OptionsStruct(
            options.beam,
            options.nbest,
            options.min_length,
            options.scores or options.beam > 1,
            shortlist,
            draft_layers,
            draft_length,
            options.length_penalty,
            0.0,
            None,
            None if rule is None else _ints(rule.exits),
            0 if rule is None else len(rule.exits),
            0 if rule is None else TOKEN_EXITS.index(rule.kind) + 1,
            0.0 if rule is None else rule.value,
        )
        results = ResultsStruct(tokens, lengths, ended, scores, layers)
        self._check(self._core.anydepth_search(self._model, _subnetwork(sub), _batch(batch, depths), asked, results))
        return [
            [
                Candidate(
                    tuple(tokens[slot * longest : slot * longest + lengths[slot]]),
                    scores[slot],
                    bool(ended[slot]),
                    layers[slot],
                )
                for slot in range(i * nbest, (i + 1) * nbest)
                if lengths[slot] >= 0
            ]
            for i in range(count)
        ]

    def classify(
        self,
        sub: SubNetwork,
        sources: Sequence[list[int]],
        depths: ClassifierDepths,
        by_word: Sequence[Sequence[int]] | None = None,
    ) -> list[Classified]:
        """One after the other, without padding. `by_word` is what the table of `depths` says of each token."""
        import numpy as np

        if not sources:
            return []
        rule = depths.exit_rule
        halting = depths.halting_scale if sub.by_word and rule is None and by_word is None else 0.0
        batch = _batch(SearchBatch(list(sources), []), by_word)
        exits = () if rule is None else rule.exits
        number = 0.0 if rule is None else rule.value
        confidence = number if rule is not None and rule.kind == "confidence" else 0.0
        patience = int(number) if rule is not None and rule.kind == "patience" else 0
        asked = ClassifyOptionsStruct(_ints(exits), len(exits), patience, confidence, halting, 0.0, None)
        probabilities = np.empty((len(sources), self.classes), np.float32)
        ran = np.empty(sum(map(len, sources)), np.int32)
        places = probabilities.ctypes.data_as(_f32), ran.ctypes.data_as(_i32)
        self._check(self._core.anydepth_classify(self._model, _subnetwork(sub), batch, asked, *places))
        each = np.split(ran.astype(np.int64), list(accumulate(map(len, sources)))[:-1])
        return [Classified(row, own) for row, own in zip(probabilities.tolist(), each, strict=True)]

    def translate(
        self, texts: Sequence[str], depth: str, pair: str | None = None, *, cut_long: bool = False
    ) -> list[str]:
        """Greedy translations by the core alone, which has the tokenizer and the menu of a whole model file."""
        request = RequestStruct()
        self._core.anydepth_defaults(request)
        request.depth, request.pair = depth.encode(), None if pair is None else pair.encode()
        request.cut_long = cut_long
        given = [text.encode("utf-8", "replace") for text in texts]
        lengths = (ctypes.c_size_t * len(given))(*map(len, given))
        array = (ctypes.c_char_p * len(given))(*given)
        made = self._core.anydepth_translate(self._model, array, lengths, len(given), request)
        if made is None:
            raise UserError(f"the native engine cannot do that: {last_error()}")
        try:
            output, found = OutputStruct(), []
            for i in range(len(given)):
                self._check(self._core.anydepth_output_at(made, i, 0, output))
                found.append(output.text.decode("utf-8"))
            return found
        finally:
            self._core.anydepth_translations_free(made)

    def logits(
        self, sub: SubNetwork, source: list[int], target: list[int], vocabulary: int, at_once: int
    ) -> "NDArray[np.float32]":
        """Of each position of a target that begins with BOS, computed so many positions in a pass."""
        import numpy as np

        found = np.empty((len(target), vocabulary), np.float32)
        batch, out = _batch(SearchBatch([source], [1]), None), found.ctypes.data_as(_f32)
        self._check(
            self._core.anydepth_logits(self._model, _subnetwork(sub), batch, _ints(target), len(target), at_once, out)
        )
        return found

    def _check(self, result: int) -> None:
        if result != 0:
            raise UserError(f"the native engine cannot do that: {last_error()}")


def _subnetwork(sub: SubNetwork) -> SubNetworkStruct:
    return SubNetworkStruct(
        _ints(sub.encoder), _floats(sub.encoder_weights), len(sub.encoder),
        _ints(sub.decoder), _floats(sub.decoder_weights), len(sub.decoder),
    )  # fmt: skip


def _batch(batch: SearchBatch, depths: Sequence[Sequence[int]] | None) -> BatchStruct:
    sources = batch.sources
    starts = [0, *accumulate(map(len, sources))]
    deep = None if depths is None else _ints(list(chain.from_iterable(depths)))
    tokens = _ints(list(chain.from_iterable(sources)))
    return BatchStruct(tokens, _ints(starts), deep, _ints(batch.limits), len(sources))


def _ints(values: "Sequence[int] | NDArray[np.int32]") -> "ctypes.Array[ctypes.c_int32]":
    """A structure that points to it keeps it alive."""
    return (ctypes.c_int32 * len(values))(*(int(value) for value in values))


def _floats(values: Sequence[float] | None) -> "ctypes.Array[ctypes.c_float] | None":
    return None if values is None else (ctypes.c_float * len(values))(*values)


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
        ("open", model, (text, text)),
        ("load", model, (text, size, text)),
        ("free", None, (model,)),
        ("memory", ctypes.c_uint64, (model,)),
        ("has_shortlist", ctypes.c_int, (model,)),
        ("set_threads", ctypes.c_int, (model, ctypes.c_int32)),
        ("set_shortlist", ctypes.c_int, (model, _i32, size, _i32, _i32)),
        (
            "search",
            ctypes.c_int,
            (model, sub, batch, ctypes.POINTER(OptionsStruct), ctypes.POINTER(ResultsStruct)),
        ),
        ("logits", ctypes.c_int, (model, sub, batch, _i32, ctypes.c_int32, ctypes.c_int32, _f32)),
        ("classes", ctypes.c_int32, (model,)),
        (
            "classify",
            ctypes.c_int,
            (model, sub, batch, ctypes.POINTER(ClassifyOptionsStruct), _f32, _i32),
        ),
        ("speculation", None, (model, ctypes.POINTER(ctypes.c_int64))),
        ("defaults", None, (ctypes.POINTER(RequestStruct),)),
        (
            "translate",
            model,
            (model, ctypes.POINTER(text), ctypes.POINTER(size), ctypes.c_int32, ctypes.POINTER(RequestStruct)),
        ),
        (
            "output_at",
            ctypes.c_int,
            (model, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(OutputStruct)),
        ),
        ("translations_free", None, (model,)),
    ):
        function = getattr(core, f"anydepth_{name}")
        function.restype, function.argtypes = result, arguments


def last_error() -> str:
    return str(library().anydepth_error().decode("utf-8", "replace"))


def kernels(name: str | None = None) -> str | None:
    """The instructions that run here, the fastest or those of this name; None if there are none of it."""
    found = library().anydepth_kernels(None if name is None else name.encode())
    return None if found is None else str(found.decode())

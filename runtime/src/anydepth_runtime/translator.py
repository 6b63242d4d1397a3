"""The Translator: texts in, texts out, at any depth of a model file."""

import ctypes
import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypedDict, Unpack, overload

from anydepth_runtime import library as c
from anydepth_runtime.library import DepthStruct, OutputStruct, RequestStruct

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

SHARE = 32  # texts that a thread takes at a time
WHOLE = ("beam", "nbest", "max_length")
_library = c.load_library()


class TranslationError(ValueError):
    """A text or an option is wrong. The message is one line."""


class TooLongError(TranslationError):
    """A text has more subwords than the model takes."""


class StoppedError(TranslationError):
    """The time was over."""


class RuntimeFileError(OSError):
    """The model file cannot be read, is damaged or is of another version."""


ERRORS: "dict[int, type[Exception]]" = {
    c.FILE: RuntimeFileError,
    c.STOPPED: StoppedError,
    c.TOO_LONG: TooLongError,
    c.NO_MEMORY: MemoryError,
    c.INTERNAL: RuntimeError,
}


class Depth(NamedTuple):
    """A depth of the menu, with what was measured for it: None where nothing was."""

    name: str
    pair: str | None  # the language pair it is for; None: all
    encoder_layers: int
    decoder_layers: int
    seconds_per_sentence: float | None
    bleu: float | None
    chrf: float | None


class Hypothesis(NamedTuple):
    """One translation. The score is its log-probability over the length penalty."""

    text: str
    score: float
    ended: bool  # False: it ran into the limit of its length
    depth: str
    decoder_layers: float  # the mean of its tokens, which have fewer than the depth with an exit rule


class Options(TypedDict, total=False):
    """The keyword arguments of `Translator.hypotheses`, where they are explained."""

    budget: float | None
    beam: int
    nbest: int
    length_penalty: float
    max_length: int | None
    cut_long: bool
    shortlist: bool | None
    exit: str | None
    timeout: float | None


class Translator:
    """A model file, which is mapped: processes share its memory. Several threads may use it at once.

    Args:
        path: A file of `anydepth export --to runtime`.
        threads: Cores that a call with many texts uses; by default all.
        pair: Of a model of several language pairs, the one to translate, such as "en-fr".
    """

    def __init__(self, path: "str | os.PathLike[str]", *, threads: int | None = None, pair: str | None = None):
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise TranslationError(f"threads is {threads!r}: use a whole number, at least 1")
        if b"\0" in os.fsencode(path):
            raise RuntimeFileError(f"{os.fsdecode(path)!r} is no name of a file")
        self.path, self.pair = Path(path), pair
        self.threads = threads or os.cpu_count() or 1
        self._model: int | None = _library.anydepth_open(os.fsencode(path), None)
        if self._model is None:
            _fail(str(path))
        self._header: dict[str, Any] = json.loads(_library.anydepth_header(self._model))
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0
        self.depths = self._read_depths()
        if pair is not None and pair not in map("-".join, self.pairs):
            raise TranslationError(f"pair is {pair!r}: the model has {', '.join(map('-'.join, self.pairs))}")

    def __reduce__(self) -> "tuple[Any, ...]":
        """A copy, also one in another process, opens the file again, whose memory they share."""
        return _open, (str(self.path), self.threads, self.pair)

    def __del__(self) -> None:
        if getattr(self, "_model", None) is not None:
            _library.anydepth_free(self._model)

    def __repr__(self) -> str:
        return f"Translator({str(self.path)!r}, {'-'.join(self.languages)}, {len(self.depths)} depths)"

    def _read_depths(self) -> "tuple[Depth, ...]":
        count = _library.anydepth_depths(self._model)
        if count < 0:
            _fail(str(self.path))
        found, one = [], DepthStruct()
        for i in range(count):
            _library.anydepth_depth_at(self._model, i, one)
            if one.by_word:  # of classifiers, and not for this package
                continue
            figures = (one.seconds_per_sentence, one.bleu, one.chrf)
            found.append(
                Depth(
                    one.name.decode(),
                    None if one.pair is None else one.pair.decode(),
                    one.encoder_layers,
                    one.decoder_layers,
                    *(None if math.isnan(value) else value for value in figures),
                )
            )
        return tuple(found)

    @property
    def pairs(self) -> "list[tuple[str, str]]":
        """The language pairs of the model."""
        return [(one["source"], one["target"]) for one in self._header["core"]["pairs"]]

    @property
    def languages(self) -> "tuple[str, str]":
        """Of the chosen pair, or of the first."""
        return next((one for one in self.pairs if "-".join(one) == self.pair), self.pairs[0])

    @property
    def source_language(self) -> str:
        return self.languages[0]

    @property
    def target_language(self) -> str:
        return self.languages[1]

    @overload
    def translate(self, texts: str, *, depth: str | None = None, **options: Unpack[Options]) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def translate(
        self, texts: "Iterable[str]", *, depth: str | None = None, **options: Unpack[Options]
    ) -> "list[str]": ...

    def translate(
        self, texts: "str | Iterable[str]", *, depth: str | None = None, **options: Unpack[Options]
    ) -> "str | list[str]":
        """The best translation of a text, or of each of several. Options as for `hypotheses`."""
        if isinstance(texts, bytes) or not isinstance(texts, Iterable):
            raise TranslationError(f"texts is of type {type(texts).__name__}: give a string, or several")
        given = [texts] if isinstance(texts, str) else texts
        found = [best.text for best, *_ in self.hypotheses(given, depth=depth, **options)]
        return found[0] if isinstance(texts, str) else found

    def translate_text(self, text: str, *, depth: str | None = None, **options: Unpack[Options]) -> str:
        """A text of any length, sentence by sentence, with what is between them as it was. Options as for `hypotheses`.

        Needs sentencex: `pip install anydepth-runtime[text]`.
        """
        if not isinstance(text, str):
            raise TranslationError(f"the text is of type {type(text).__name__}, not a string")
        try:
            from anydepth_runtime.segments import split
        except ModuleNotFoundError as error:
            if error.name != "sentencex":
                raise
            raise ImportError("splitting a text into sentences needs: pip install anydepth-runtime[text]") from error
        readable = text.encode("utf-8", "replace").decode().replace("\0", " ")
        timeout = options.get("timeout")
        end = time.monotonic() + timeout if isinstance(timeout, (int, float)) and timeout > 0 else None
        segments = split(readable, self.source_language, lambda piece: self._fits(piece, end))
        if end is not None:
            options["timeout"] = max(1e-9, end - time.monotonic())
        sources = [segment.text for segment in segments if segment.is_for_the_model]
        made = iter(self.translate(sources, depth=depth, **options))
        return "".join(s.around(next(made) if s.is_for_the_model else s.text) for s in segments)

    def _fits(self, text: str, end: float | None) -> bool:
        """Whether it is short enough for the model, in a call that is over at the time `end`."""
        if end is not None and time.monotonic() >= end:
            raise StoppedError("splitting the text was stopped: its time was over")
        data, pair = text.encode(), None if self.pair is None else _name(self.pair, "pair")
        found = _library.anydepth_fits(self._model, data, len(data), pair)
        if found < 0:
            _fail(str(self.path))
        return bool(found)

    def hypotheses(
        self,
        texts: "Iterable[str]",
        *,
        depth: str | None = None,
        budget: float | None = None,
        beam: int = 1,
        nbest: int = 1,
        length_penalty: float = 0.6,
        max_length: int | None = None,
        cut_long: bool = False,
        shortlist: bool | None = None,
        exit: str | None = None,
        timeout: float | None = None,
    ) -> "list[list[Hypothesis]]":
        """The `nbest` best translations of each text, in order, best first.

        Args:
            texts: Sentences; `translate_text` splits longer texts into them.
            depth: Such as "4-1"; by default that of the model.
            budget: Instead of a depth: seconds per sentence, by the times that were measured.
            beam: Beam size; 1 is greedy search.
            nbest: At most the beam.
            length_penalty: GNMT's, used with a beam.
            max_length: Longest output in subwords; by default twice the source and 10 more.
            cut_long: Cut texts that are too long instead of refusing them.
            shortlist: Search among the lexical shortlist of the file: faster. By default if the file has one.
            exit: Let tokens leave the decoder early: "margin:2", "confidence:0.9" or "patience:2".
            timeout: Seconds after which a StoppedError is raised.
        """
        given = [_encoded(number, text) for number, text in enumerate(_several(texts), 1)]
        request = RequestStruct()
        _library.anydepth_defaults(request)
        request.depth = None if depth is None else _name(depth, "depth")
        request.pair = None if self.pair is None else _name(self.pair, "pair")
        request.exit = None if exit is None else _name(exit, "exit")
        request.scores = 1
        for key, value in {
            "budget": budget,
            "beam": beam,
            "nbest": nbest,
            "length_penalty": length_penalty,
            "max_length": max_length,
            "cut_long": cut_long,
            "shortlist": shortlist,
            "timeout": timeout,
        }.items():
            if value is not None:
                if isinstance(value, int) and abs(value) >= 2**31:
                    raise TranslationError(f"{key} is {value}: it is out of range")
                try:
                    setattr(request, key, value)
                except TypeError as error:
                    whole = "a whole number" if key in WHOLE else "a number"
                    raise TranslationError(f"{key} is {value!r}: use {whole}") from error
        end = time.monotonic() + timeout if timeout is not None and timeout > 0 else None
        shares = [(start, given[start : start + SHARE]) for start in range(0, len(given), SHARE)]
        if len(shares) < 2 or self.threads == 1:
            parts = [self._translate(first, share, request, end) for first, share in shares or [(0, [])]]
        else:
            parts = list(self._threads().map(lambda share: self._translate(*share, request, end), shares))
        return [one for part in parts for one in part]

    def _threads(self) -> "ThreadPoolExecutor":
        """Made when they are needed, and again in a forked process, which has none of its parent's."""
        if self._pool is None or self._pool_process != os.getpid():
            from concurrent.futures import ThreadPoolExecutor  # a megabyte that one sentence does without

            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="anydepth")
            self._pool_process = os.getpid()
        return self._pool

    def _translate(
        self, first: int, texts: "list[bytes]", request: RequestStruct, end: float | None
    ) -> "list[list[Hypothesis]]":
        """Some of the texts of a call, which is over at the time `end`."""
        if end is not None:
            request = RequestStruct.from_buffer_copy(request)
            request.timeout = max(1e-9, end - time.monotonic())
        array, lengths = (ctypes.c_char_p * len(texts))(*texts), (ctypes.c_size_t * len(texts))(*map(len, texts))
        made = _library.anydepth_translate(self._model, array, lengths, len(texts), request)
        if made is None:
            _fail("", first)
        try:
            found, one = [], OutputStruct()
            for i in range(len(texts)):
                hypotheses = []
                for rank in range(_library.anydepth_outputs(made, i)):
                    _library.anydepth_output_at(made, i, rank, one)
                    hypotheses.append(
                        Hypothesis(one.text.decode(), one.score, bool(one.ended), one.depth.decode(), one.layers)
                    )
                found.append(hypotheses)
            return found
        finally:
            _library.anydepth_translations_free(made)


def _open(path: str, threads: int, pair: str | None) -> Translator:
    return Translator(path, threads=threads, pair=pair)


def kernels() -> str:
    """The instructions that run here, such as avx2."""
    return str(_library.anydepth_kernels(None).decode())


def _several(texts: object) -> "list[object]":
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise TranslationError("this takes several texts: write [text]")
    return list(texts)


def _encoded(number: int, text: object) -> bytes:
    if not isinstance(text, str):
        raise TranslationError(f"text {number} is of type {type(text).__name__}, not a string")
    return text.encode("utf-8", "replace")


def _name(value: object, key: str) -> bytes:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        example = {"depth": "a name such as 4-1", "exit": "a rule such as margin:2"}.get(key, "a name such as en-fr")
        raise TranslationError(f"{key} is {value!r}: use {example}")
    return value.strip().encode("utf-8", "replace")


def _fail(where: str, first: int = 0) -> NoReturn:
    """Raise what the library says. It counts texts from 1 in the part that it was given, which begins at `first`."""
    code, message = _library.anydepth_error_code(), _library.anydepth_error().decode("utf-8", "replace")
    if first and message.startswith("text "):
        _, number, rest = message.split(" ", 2)
        message = f"text {int(number) + first} {rest}"
    if where and where not in message:
        message = f"{where}: {message}"
    raise ERRORS.get(code, TranslationError)(message)

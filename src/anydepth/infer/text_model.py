"""What Translator and Classifier share: a loaded model, and texts that come as strings, iterables or streams."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from anydepth.artifact.model import LoadedModel
from anydepth.depth import DepthMenu
from anydepth.device import set_torch_threads
from anydepth.engines.base import AnyEngine
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.model import Transformer

Result = TypeVar("Result")
DEFERRED = ("auto", "native")  # engines that may do without PyTorch's weights


class TooLongError(UserError):
    """A text is longer than the limit."""

    def __init__(self, number: int, length: int, limit: int) -> None:
        super().__init__(
            f"line {number:,} has {length:,} subwords, the limit is {limit:,}: "
            "split it into sentences, or cut long lines with cut_long=True"
        )
        self.number, self.length, self.limit = number, length, limit

    def __reduce__(self) -> tuple[type, tuple[int, int, int]]:
        """So that it may come from another process."""
        return TooLongError, (self.number, self.length, self.limit)


class TextModel:
    """A loaded model, whose parts it shows as its own."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.tokenizer, self.menu = loaded.tokenizer, loaded.menu
        self.folder, self.token_depths = loaded.folder, loaded.token_depths

    @property
    def model(self) -> "Transformer":
        """In PyTorch, read when it is first asked for."""
        return self.loaded.model

    @property
    def longest_source(self) -> int:
        return self.loaded.longest_source

    @property
    def device(self) -> str:
        """Where it runs, such as cpu or cuda:0."""
        cpu = self.loaded.device == "cpu"
        return "cpu" if cpu else str(next(self.model.parameters()).device)

    @property
    def fingerprint(self) -> str:
        return self.loaded.fingerprint

    def as_read(self, ids: Sequence[int]) -> list[int]:
        return self.loaded.as_read(ids)

    def parameters(self, depth: str | None = None) -> int | None:
        return self.loaded.parameters(depth)

    def bytes(self, depth: str | None = None) -> int:
        return self.loaded.bytes(depth)


def set_threads(threads: int | None) -> None:
    """PyTorch has one number of threads for the whole process."""
    if threads is None:
        return
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise UserError(f"threads is {threads!r}: use a whole number, at least 1")
    set_torch_threads(threads)


def describe_depths(menu: DepthMenu) -> str:
    """For `repr`: 18 depths 1-1..6-3, default 4-3."""
    names = menu.names
    if len(names) == 1:
        return f"depth {names[0]}"
    return f"{len(names)} depths {names[0]}..{names[-1]}, default {menu.default.name}"


def describe_engine(engine: AnyEngine) -> str:
    """For `repr`: engine native int8, 2 threads."""
    name = engine.name if engine.compute_type in engine.name else f"{engine.name} {engine.compute_type}"
    return f"engine {name}, {engine.threads} thread{'s' if engine.threads > 1 else ''}"


def check_texts(texts: Iterable[str]) -> list[str]:
    """All of them, each of which must be a string."""
    if isinstance(texts, str):
        raise UserError("give a list of texts, such as [text], not one string")
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | bytearray):
        raise UserError(f"texts is {_a(texts)}: give a string, or several in a list or another iterable")
    found = list(texts)
    for number, text in enumerate(found, 1):
        if not isinstance(text, str):
            raise UserError(f"text {number} is {_a(text)}, not a string")
    return found


def _a(value: object) -> str:
    name = type(value).__name__
    if value is None or isinstance(value, bytes):
        return "None" if value is None else name
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def batches_by_length(group: Iterable[int], sources: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """The longest first, so that a batch holds texts alike in length."""
    order = sorted(group, key=lambda i: -len(sources[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def in_chunks(lines: Iterable[str], chunk: int, process: Callable[[list[str]], Iterable[Result]]) -> Iterator[Result]:
    """What `process` makes of any number of lines, in order, with no more than a chunk in memory.

    A line that is too long or broken ends it with its number, after everything before it is given out.
    """
    if isinstance(lines, str):
        raise UserError("give lines, such as a list or an open file, not one string")
    if not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1:
        raise UserError(f"chunk is {chunk!r}: use a whole number, at least 1")
    return _in_chunks(iter(lines), chunk, process)


def _in_chunks(lines: Iterator[str], chunk: int, process: Callable[[list[str]], Iterable[Result]]) -> Iterator[Result]:
    done = 0
    problem: UserError | None = None
    while problem is None:
        texts: list[str] = []
        try:
            texts.extend(islice(lines, chunk))
        except UserError as error:  # such as broken UTF-8: first what came before it
            problem = error
        if not texts and problem is None:
            return
        try:
            yield from process(texts)
        except TooLongError as error:
            yield from process(texts[: error.number - 1])
            problem = TooLongError(done + error.number, error.length, error.limit)
        done += len(texts)
    raise problem

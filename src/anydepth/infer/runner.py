"""Where the pieces of a long job are done: in this process, one after the other, or elsewhere (export/ray.py)."""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from anydepth.infer.options import Progress
from anydepth.infer.translator import Translator

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Work = Callable[[Translator, Piece, Progress], Result]  # what is done with a piece; other processes must find it


class Runner(Protocol):
    """Gives the results of the pieces, in their order. Of `progress` it makes what use it can."""

    def __call__(
        self, work: Work[Piece, Result], translator: Translator, pieces: Iterator[Piece], progress: Progress
    ) -> Iterator[Result]: ...


def local(
    work: Work[Piece, Result], translator: Translator, pieces: Iterator[Piece], progress: Progress
) -> Iterator[Result]:
    """In this process."""
    return (work(translator, piece, progress) for piece in pieces)

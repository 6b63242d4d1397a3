"""How texts are to be translated, checked: callers pass on what users wrote."""

from collections.abc import Callable
from dataclasses import dataclass

from anydepth.errors import UserError
from anydepth.infer.decoding import SearchOptions


@dataclass(frozen=True)
class TranslationOptions:
    beam: int = 1
    nbest: int = 1
    length_penalty: float = 0.6
    batch_size: int = 32
    max_length: int | None = None  # longest output in sub-words; by default twice the source and 10 more
    max_source: int | None = None  # longest source in sub-words; longer ones are refused, or cut if `cut_long`
    cut_long: bool = False
    source_prefix: str = ""  # put before every text
    scores: bool = True  # without them greedy search is a little faster; a score is then not a number
    scale: float | None = None  # where each word has its own depth: all deeper or shallower; by default as in training
    lambda_: float | None = None  # the same, for depths from reconstruction
    progress: Callable[[int], None] | None = None  # called with the number of texts that have become ready

    def __post_init__(self) -> None:
        if self.beam < 1 or self.batch_size < 1:
            raise UserError("beam and batch size must be at least 1")
        if not 1 <= self.nbest <= self.beam:
            raise UserError(f"nbest is {self.nbest} but the beam is {self.beam}: use 1 <= nbest <= beam")
        if not 0 <= self.length_penalty <= 10:
            raise UserError(f"the length penalty {self.length_penalty} is out of range: use 0 to 10")
        if min(self.max_length or 1, self.max_source or 1) < 1:
            raise UserError("the longest source and output must be at least 1")

    @property
    def search(self) -> SearchOptions:
        return SearchOptions(self.beam, self.nbest, self.length_penalty, scores=self.scores)

    def ready(self, count: int) -> None:
        if self.progress is not None:
            self.progress(count)

    def longest_output(self, source_length: int, possible: int) -> int:
        wanted = 2 * source_length + 10 if self.max_length is None else self.max_length
        return max(1, min(wanted, possible))

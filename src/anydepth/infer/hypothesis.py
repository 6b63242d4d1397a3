"""What comes of a text: a translation, or the complaint that it is too long."""

from dataclasses import dataclass

from anydepth.errors import UserError


@dataclass(frozen=True)
class Hypothesis:
    """One translation. The score is its log-probability over the length penalty.

    One that ran into the length limit has not ended. An empty text was translated at no depth.
    """

    text: str
    tokens: tuple[int, ...]
    score: float
    ended: bool = True
    depth: str = ""


class TooLongError(UserError):
    """A text is longer than the limit."""

    def __init__(self, number: int, length: int, limit: int) -> None:
        super().__init__(
            f"line {number:,} has {length:,} sub-words, the limit is {limit:,}: "
            "split it into sentences, or have long lines cut (cut_long=True, --cut-long)"
        )
        self.number, self.length, self.limit = number, length, limit

    def __reduce__(self) -> tuple[type, tuple[int, int, int]]:
        """So that it may come from another process."""
        return TooLongError, (self.number, self.length, self.limit)

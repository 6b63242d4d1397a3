"""How texts are to be translated: the keyword arguments of `Translator`, checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TypedDict

from anydepth.engines.base import TOKEN_EXITS, ExitRule, SearchOptions
from anydepth.errors import UserError
from anydepth.selectors import Selector

AUTO = "auto"  # the model's own selector
LARGEST_BEAM = 1024  # as in csrc/c_api.cpp
Depth = str | Sequence[str] | Selector | None
Progress = Callable[[int], None]  # called with the number of texts that have become ready


class TranslateKeywords(TypedDict, total=False):
    """The keyword arguments of `Translator.translate`, where they are explained."""

    beam: int
    length_penalty: float
    batch_size: int
    max_length: int | None
    max_source: int | None
    cut_long: bool
    source_prefix: str
    scale: float | None
    lambda_: float | None
    exit: str | ExitRule | None
    keep: str | float | None
    progress: Progress | None


class HypothesesKeywords(TranslateKeywords, total=False):
    """Those of `hypotheses`, `every_depth` and `stream`: all fields of `TranslationOptions`."""

    nbest: int
    scores: bool


def check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise UserError(f"progress is {progress!r}: use a function that takes the number of texts that became ready")


@dataclass(frozen=True)
class TranslationOptions:
    beam: int = 1
    nbest: int = 1
    length_penalty: float = 0.6
    batch_size: int = 32
    max_length: int | None = None  # longest output in subwords; by default twice the source and 10 more
    max_source: int | None = None  # longest source in subwords; longer ones are refused, or cut if `cut_long`
    cut_long: bool = False
    source_prefix: str = ""  # put before every text
    scores: bool = True  # without them greedy search is a little faster; a score is then not a number
    scale: float | None = None  # where each word has its own depth: all deeper or shallower; by default as in training
    lambda_: float | None = None  # the same, for depths from reconstruction
    exit: str | ExitRule | None = None  # where tokens leave the decoder early
    keep: str | float | None = None  # the same, by a calibrated promise: so many texts are those of the full depth
    progress: Progress | None = None

    @classmethod
    def check(cls, options: HypothesesKeywords) -> "TranslationOptions":
        """From keyword arguments, of which none may be unknown."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                near = get_close_matches(name, known, 1)
                advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise UserError(f"there is no option {name}: {advice}")
        return cls(**options)

    def __post_init__(self) -> None:
        for name in ("beam", "nbest", "batch_size", "max_length", "max_source"):
            value = getattr(self, name)
            if value is None and name.startswith("max"):
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise UserError(f"{name} is {value!r}: use a whole number")
            if value < 1:
                raise UserError(f"{name} is {value}: use at least 1")
        if self.beam > LARGEST_BEAM:
            raise UserError(f"beam is {self.beam}: use at most {LARGEST_BEAM:,}")
        if self.nbest > self.beam:
            raise UserError(f"nbest is {self.nbest} but the beam is {self.beam}: use 1 <= nbest <= beam")
        if not isinstance(self.length_penalty, int | float) or not 0 <= self.length_penalty <= 10:
            raise UserError(f"length_penalty is {self.length_penalty!r}, out of range: use 0 to 10")
        if not isinstance(self.source_prefix, str):
            raise UserError(f"source_prefix is {self.source_prefix!r}: use a string")
        for name in ("cut_long", "scores"):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f"{name} is {getattr(self, name)!r}: use True or False")
        check_progress(self.progress)
        self.exit_rule  # noqa: B018  # refuses what is none
        if self.keep is not None:
            from anydepth.selectors.promise import parse_keep

            parse_keep(self.keep)
            if self.exit is not None:
                raise UserError("keep and exit both choose the exit rule: give one of the two")

    @property
    def exit_rule(self) -> ExitRule | None:
        """Without the exits, which depend on the depth."""
        if self.exit is None or isinstance(self.exit, ExitRule):
            return self.exit
        return ExitRule.parse(self.exit, TOKEN_EXITS)

    def search(self, exits: tuple[int, ...] = ()) -> SearchOptions:
        rule = self.exit_rule
        if rule is not None and not rule.exits:
            rule = replace(rule, exits=exits)
        return SearchOptions(self.beam, self.nbest, self.length_penalty, scores=self.scores, exit_rule=rule)

    def ready(self, count: int) -> None:
        if self.progress is not None:
            self.progress(count)

    def longest_output(self, source_length: int, possible: int) -> int:
        wanted = 2 * source_length + 10 if self.max_length is None else self.max_length
        return max(1, min(wanted, possible))

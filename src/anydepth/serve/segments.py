"""A text as sentences to translate and what stands between them: put together again, nothing is lost or cut."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import sentencex

BREAKS = re.compile(r"(\r\n|[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029])")
CLAUSE_ENDS = re.compile(r"[,;:)\]»”—–…،、，；：。！？]\s*|(?<=\s)-\s+")
# What a name follows, and no new sentence: a title or an initial. The library knows few of them.
BEFORE_NAMES = re.compile(
    r"(?:^|[\s('’\"«“-])(?:[^\W\d_a-zà-ÿ]|M[Mr]|M[mr]?e?s?|Mlles?|Mgr|D[Rr][as]?|Pr|Prof|Ste?|Mrs|Ms|Messrs|S[Rr]"
    r"|Sra|Srta|Sres|Hr|Fr|Sig|Dott|Gen|Gén|Col|Lt|Capt|Sgt|Rev|Hon|Gov|Sen)\.\s*$"
)
WORD_ENDS = re.compile(r"\s+")
Fits = Callable[[str], bool]


@dataclass(frozen=True)
class Segment:
    """`text` goes to the model, if there is anything in it to translate; `before` and `after` are white space."""

    before: str
    text: str
    after: str

    @property
    def is_for_the_model(self) -> bool:
        """Symbols alone, such as a line of dashes or an emoji, stay as they are."""
        return any(character.isalnum() for character in self.text)

    def around(self, translation: str) -> str:
        return f"{self.before}{translation}{self.after}"


def split(text: str, language: str, fits: Fits) -> list[Segment]:
    """Sentences, in order. What is too long for the model is divided further, at clauses where there are any."""
    return [_segment(piece) for line in BREAKS.split(text) if line for piece in _pieces(line, language, fits)]


def _pieces(line: str, language: str, fits: Fits) -> Iterator[str]:
    for sentence in _sentences(line, language):
        yield from _fitting(sentence, fits)


def _sentences(line: str, language: str) -> list[str]:
    if not line.strip():
        return [line]
    found: list[str] = []
    for sentence in map(str, sentencex.segment(language, line)):
        if found and BEFORE_NAMES.search(found[-1]):
            found[-1] += sentence
        else:
            found.append(sentence)
    return found if "".join(found) == line else [line]


def _fitting(piece: str, fits: Fits) -> Iterator[str]:
    if len(piece) < 2 or fits(piece):
        yield piece
        return
    middle = _middle(piece)
    yield from _fitting(piece[:middle], fits)
    yield from _fitting(piece[middle:], fits)


def _middle(piece: str) -> int:
    """The place nearest to the middle where it may be divided: after a clause, a word or any character."""
    half = len(piece) / 2
    for ends, tolerance in ((CLAUSE_ENDS, 0.35), (WORD_ENDS, 0.5)):
        places = [match.end() for match in ends.finditer(piece) if 0 < match.end() < len(piece)]
        near = [place for place in places if abs(place - half) <= tolerance * len(piece)]
        if near:
            return min(near, key=lambda place: abs(place - half))
    return len(piece) // 2


def _segment(piece: str) -> Segment:
    text = piece.strip()
    if not text:
        return Segment(piece, "", "")
    start = piece.index(text)
    return Segment(piece[:start], text, piece[start + len(text) :])

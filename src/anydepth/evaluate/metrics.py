"""How good a translation is: BLEU and chrF with their signatures, its length, and how often it stutters."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF

ORDER = 4  # of BLEU
LONGEST_REPEATED_SPAN = 4


@dataclass(frozen=True)
class Quality:
    bleu: float
    chrf: float
    length_ratio: float
    repetition_rate: float
    reference_repetition_rate: float
    bleu_signature: str
    chrf_signature: str

    @property
    def signatures(self) -> dict[str, str]:
        return {"BLEU": self.bleu_signature, "chrF": self.chrf_signature}


def score(outputs: Sequence[str], references: Sequence[str]) -> Quality:
    """Compare outputs with one reference each, line by line."""
    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(outputs, [references])
    chrf_score = chrf.corpus_score(outputs, [references])
    return Quality(
        bleu=float(bleu_score.score),
        chrf=float(chrf_score.score),
        length_ratio=bleu_score.sys_len / max(1, bleu_score.ref_len),
        repetition_rate=repetition_rate(outputs),
        reference_repetition_rate=repetition_rate(references),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def sentence_chrf(outputs: Sequence[str], references: Sequence[str]) -> list[float]:
    chrf = CHRF()
    pairs = zip(outputs, references, strict=True)
    return [float(chrf.sentence_score(output, [reference]).score) for output, reference in pairs]


def sentence_bleu_statistics(outputs: Sequence[str], references: Sequence[str]) -> NDArray[np.int32]:
    """What BLEU is made of, a row for each sentence: 4 counts of correct n-grams, 4 of all, the two lengths."""
    # The effective order changes the score, not the statistics; without it each call warns.
    bleu = BLEU(effective_order=True)
    scores = (bleu.sentence_score(one, [other]) for one, other in zip(outputs, references, strict=True))
    return np.array([[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in scores], np.int32)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the (seconds, quality) that no other beats: as good in both and better in one."""
    return [
        place
        for place, (seconds, quality) in enumerate(points)
        if not any(s <= seconds and q >= quality and (s, q) != (seconds, quality) for s, q in points)
    ]


def repetition_rate(texts: Sequence[str]) -> float:
    """The share of words that repeat the 1 to 4 words right before them.

    Only the second and later copies count: "the the cat" has 1 of 3. Words are what lies between spaces,
    without case and without punctuation at either end, so that "No, no" is a repetition too.
    """
    repeated = words_in_all = 0
    for text in texts:
        words = _words(text)
        words_in_all += len(words)
        repeated += len(_repeated_positions(words))
    return repeated / max(1, words_in_all)


def _repeated_positions(words: Sequence[str]) -> set[int]:
    positions: set[int] = set()
    for span in range(1, LONGEST_REPEATED_SPAN + 1):
        for second in range(span, len(words) - span + 1):
            if words[second - span : second] == words[second : second + span]:
                positions.update(range(second, second + span))
    return positions


def _words(text: str) -> list[str]:
    stripped = (_without_outer_punctuation(word) for word in text.casefold().split())
    return [word for word in stripped if word]


def _without_outer_punctuation(word: str) -> str:
    # Not str.isalnum: Indic vowel signs are marks, neither letters nor punctuation, and belong to the word.
    kept = [index for index, char in enumerate(word) if unicodedata.category(char)[0] not in "PS"]
    return word[kept[0] : kept[-1] + 1] if kept else ""

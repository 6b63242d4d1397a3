"""Text in capitals, which is read in lowercase: few subwords of a vocabulary are in capitals.

csrc/capitals.h does the same.
"""

from string import digits

LEAST = 5  # capitals; fewer may be an abbreviation
ENDS = ".!?"
# Capitals whose lowercase is `offset` further: the first, the last, from one to the next, offset.
RANGES = (
    (0x41, 0x5A, 1, 32),  # Latin
    (0xC0, 0xD6, 1, 32),
    (0xD8, 0xDE, 1, 32),
    (0x100, 0x12E, 2, 1),
    (0x132, 0x136, 2, 1),
    (0x139, 0x147, 2, 1),
    (0x14A, 0x176, 2, 1),
    (0x178, 0x178, 1, -121),
    (0x179, 0x17D, 2, 1),
    (0x1E00, 0x1E94, 2, 1),
    (0x1EA0, 0x1EFE, 2, 1),
    (0x386, 0x386, 1, 38),  # Greek
    (0x388, 0x38A, 1, 37),
    (0x38C, 0x38C, 1, 64),
    (0x38E, 0x38F, 1, 63),
    (0x391, 0x3A1, 1, 32),
    (0x3A3, 0x3AB, 1, 32),
    (0x400, 0x40F, 1, 80),  # Cyrillic
    (0x410, 0x42F, 1, 32),
    (0x460, 0x480, 2, 1),
    (0x48A, 0x4BE, 2, 1),
    (0x4C0, 0x4C0, 1, 15),
    (0x4C1, 0x4CD, 2, 1),
    (0x4D0, 0x52E, 2, 1),
)
LOWER = {chr(c): chr(c + offset) for first, last, step, offset in RANGES for c in range(first, last + 1, step)}
UPPER = {small: capital for capital, small in LOWER.items()}
TO_UPPER = str.maketrans(UPPER)


def is_in_capitals(text: str) -> bool:
    """Whether it has several capitals and no lowercase letter."""
    return UPPER.keys().isdisjoint(text) and sum(character in LOWER for character in text) >= LEAST


def to_sentence_case(text: str) -> str:
    """In lowercase, but for the first letter of a sentence and after a full stop, as in U.S.A."""
    found, is_first = [], True
    for character in text:
        found.append(character if is_first else LOWER.get(character, character))
        if character in ENDS:
            is_first = True
        elif character in LOWER or character in digits:
            is_first = False
    return "".join(found)


def to_capitals(text: str) -> str:
    return text.translate(TO_UPPER)

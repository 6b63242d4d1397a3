"""Data augmentation: text as people write it, without the final full stop, in capitals, with typos, several sentences
on a line.

The changes of a pair are sampled by (seed, epoch, pair), so that a resumed run, and each of several processes, sees the
same. The functions change text and know no tokens; `AugmentedStore` applies them to a store, an epoch at a time.
"""

import random
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from itertools import islice
from typing import NamedTuple

import numpy as np
from babel import Locale, UnknownLocaleError
from babel.dates import format_date
from babel.numbers import format_currency, format_decimal, format_percent
from babel.units import format_unit

from anydepth.config import AugmentConfig
from anydepth.data.corpus import Pair
from anydepth.data.shards import PairEncoder, PairStore, Rows, StoredIds
from anydepth.errors import UserError
from anydepth.rng import keyed_uniform

AUGMENT = 2  # a key that tells this sampling from others
MOST_JOINED = 4  # sentences on a line
TOGETHER = 10_000

FINAL = re.compile(r"\s*[.!?…]+$")
DIGITS = re.compile(r"\d++(?:[.,:/]\d++)*+(?![^\W\d_])")  # not in 21st
KEPT = re.compile(r"\b[^\W\d_][\w-]{2,}\b|\d+")  # what may be a name, or is a number
FIRST_WORD = re.compile(r"\w+")
INSIDE = re.compile(r"(?<=[\w,;] )[^\W\d_]+")  # words that do not begin a sentence
CASE_SAMPLE = 20_000  # targets that say which words are written in lowercase
NEIGHBOURS = {
    a: (row[i - 1 : i] if i else "") + row[i + 1 : i + 2]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for i, a in enumerate(row)
}
SYLLABLES = "ba be bo ca co da do el fa fe ga ha he in ja ka ke ki ko la li lo ma me mi na no or pa ra ri ro sa so ta"
SYLLABLES += " te ti to va vi wa yo za an ar ber del dor ford gen hel kov lin mar nik ov ram ros sen ska son ton vich"
UNITS = [f"length-{unit}" for unit in ("kilometer", "meter", "centimeter")]
UNITS += ["mass-kilogram", "mass-gram", "volume-liter"]
UNITS += [f"duration-{unit}" for unit in ("hour", "minute", "second", "day", "week", "month", "year")]
CURRENCIES = ("EUR", "USD", "BRL", "GBP")


class Languages(NamedTuple):
    """What is known of the two: their locales, and words that the target language writes in lowercase."""

    source: str
    target: str
    lowercase_words: frozenset[str] = frozenset()


def find_lowercase_words(texts: Iterable[str]) -> frozenset[str]:
    """Words that are in lowercase more often than not, where no sentence begins: no names, nor `I`."""
    seen = Counter(word for text in texts for word in INSIDE.findall(text))
    return frozenset(word for word, count in seen.items() if word.islower() and count > seen[word.capitalize()])


def augment(pair: Pair, kinds: Sequence[str], rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    """The pair with changes of these kinds, one after the other; `others` are those that it may be joined with."""
    together = _that_go_together(kinds)
    for kind in (kind for kind in CHANGES if kind in together):
        pair = CHANGES[kind](pair, rng, others, known)
    return pair


def _that_go_together(kinds: Sequence[str]) -> set[str]:
    """A line that is made up replaces the sentence, and the case of what is carried over must not change."""
    if "copies" in kinds:
        return {"copies"}
    if "measures" in kinds:
        return {"measures"} | ({"lower"} & set(kinds))
    return set(kinds) - ({"upper", "lower", "typos"} if "placeholders" in kinds else set())


def _copies(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    """Names, numbers, addresses or code on a line of their own."""
    shared = [word for word in _shared(pair) if word[0].isupper() or word[0].isdigit()]
    if shared and rng.random() < 0.3:
        line = " ".join(shared)
    else:
        line = rng.choice((" ", " ", ", ", " - ")).join(_carried_over(rng) for _ in range(rng.choice((1, 1, 2, 3))))
    return line, line


def _target_as_source(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    return pair[1], pair[1]


def _join(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    return " ".join([pair[0], *(source for source, _ in others)]), " ".join([pair[1], *(one for _, one in others)])


Edit = tuple[int, int, str]  # what is to stand from one character to another


def _numbers(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    """Other digits in numbers that both sides have, once, however each side writes them."""
    found = [{_digits(one[0]): one for one in DIGITS.finditer(text)} for text in pair]
    edits: tuple[list[Edit], list[Edit]] = ([], [])
    for digits in found[0]:
        if len(digits) < 2 or digits not in found[1]:
            continue
        numbers = [side[digits] for side in found]
        if any(text.count(number[0]) > 1 for text, number in zip(pair, numbers, strict=True)):
            continue
        new = str(rng.randint(1, 9)) + "".join(rng.choice(string.digits) for _ in digits[1:])
        for edit, number in zip(edits, numbers, strict=True):
            edit.append((number.start(), number.end(), _with_digits(number[0], new)))
    return _edited(pair[0], edits[0]), _edited(pair[1], edits[1])


def _edited(text: str, edits: Sequence[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _digits(number: str) -> str:
    return re.sub(r"\D", "", number)


def _with_digits(form: str, digits: str) -> str:
    """The same separators, other digits."""
    left = iter(digits)
    return re.sub(r"\d", lambda _: next(left), form)


def _measures(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    """A number, date, price or measurement, as each of the languages writes it."""
    kind = rng.choice(("decimal", "date", "date", "currency", "percent", "unit", "unit"))
    whole = rng.choice((rng.randint(2, 99), rng.randint(100, 9999), rng.randint(10_000, 5_000_000)))
    number = whole if rng.random() < 0.5 else whole + rng.randint(1, 99) / 100
    day = date.fromordinal(rng.randint(date(1800, 1, 1).toordinal(), date(2040, 1, 1).toordinal()))
    form, unit = rng.choice(("long", "full")), rng.choice(UNITS)
    length, currency = rng.choice(("long", "short")), rng.choice(CURRENCIES)
    amount = number if whole < 10_000 else whole % 1000 + 2

    def written(language: str) -> str:
        if kind == "decimal":
            return str(format_decimal(number, locale=language))
        if kind == "date":
            return str(format_date(day, form, locale=language))  # type: ignore[arg-type]
        if kind == "currency":
            return str(format_currency(number, currency, locale=language))
        if kind == "percent":
            return str(format_percent(amount % 100 / 100, "#,##0.#%", locale=language))
        return str(format_unit(amount, unit, length, locale=language))  # type: ignore[arg-type]

    source, target = (
        written(language).replace("\u202f", " ").replace("\xa0", " ") for language in (known.source, known.target)
    )
    return source, target


def _placeholders(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    """A placeholder, address, tag or code that is carried over: for a name or number of both sides, or at an end."""
    source, target = pair
    new, shared = _carried_over(rng), _shared(pair)
    if shared and rng.random() < 0.7:
        old = rf"(?<!\w){re.escape(rng.choice(shared))}(?!\w)"
        return re.sub(old, lambda _: new, source), re.sub(old, lambda _: new, target)
    form = rng.choice(("{text} {new}", "{text} ({new})", "{new} {text}", "{new}: {text}"))
    source, target = (form.format(text=text, new=new) for text in pair)
    return source, target


def _shared(pair: Pair) -> list[str]:
    """Words with a capital, and numbers, that stand once on each side."""
    words = [KEPT.findall(text) for text in pair]
    return [
        word
        for word in words[0]
        if (word[0].isupper() or word[0].isdigit()) and words[0].count(word) == 1 and words[1].count(word) == 1
    ]


def _name(rng: random.Random, parts: tuple[int, ...] = (2, 2, 3)) -> str:
    return "".join(rng.choice(SYLLABLES.split()) for _ in range(rng.choice(parts)))


def _carried_over(rng: random.Random) -> str:
    """Something that no language changes."""
    name, number = _name(rng), rng.randint(0, 9999)
    return rng.choice(
        (
            lambda: f"{{{rng.choice((name, '', str(number % 10)))}}}",
            lambda: f"%{rng.choice(('s', 'd', '1$s', '2$s', 'i', '@'))}",
            lambda: f"${{{name}}}" if number % 2 else f"${name.upper()}",
            lambda: f"<{rng.choice(('b', 'i', 'a', name, 'br/'))}>",
            lambda: f"{{{{{name}}}}}",
            lambda: f"https://{rng.choice(('www.', ''))}{name}.{rng.choice(('com', 'org', 'pt', 'br'))}/{_name(rng)}",
            lambda: f"www.{name}.{rng.choice(('com', 'org', 'net'))}",
            lambda: f"{name}@{_name(rng)}.{rng.choice(('com', 'org'))}",
            lambda: f"@{name}",
            lambda: f"#{name}",
            lambda: f"{name}_{_name(rng)}()",
            lambda: f"{name}.{rng.choice(('py', 'txt', 'html', 'conf', 'js'))}",
            lambda: f"/{rng.choice(('usr', 'home', 'etc'))}/{name}/{_name(rng)}",
            lambda: f"--{name}",
            lambda: f"{rng.randint(0, 20)}.{rng.randint(0, 20)}.{rng.randint(0, 99)}",
            lambda: f"{rng.randint(1, 31):02}/{rng.randint(1, 12):02}/{rng.randint(1900, 2030)}",
            lambda: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}",
            lambda: f"+{rng.randint(1, 99)} {rng.randint(10, 99)} {rng.randint(10**6, 10**9)}",
            lambda: str(rng.randint(0, 10 ** rng.randint(1, 9))),
            lambda: f"{''.join(rng.choices(string.ascii_uppercase, k=3))}-{number}",
            lambda: name.capitalize(),
            lambda: f"{name.capitalize()} {_name(rng).capitalize()}",
            lambda: name.upper(),
        )
    )()


def _no_final_punctuation(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    source, target = (FINAL.sub("", text) for text in pair)
    return (source, target) if source and target and source != pair[0] and target != pair[1] else pair


def _upper(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    return pair[0].upper(), pair[1].upper()


def _lower(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    """The target keeps the capitals that its language asks for, but begins with a small letter if its first word is
    one that is written so."""
    source, target = pair
    first = FIRST_WORD.search(target)
    if first and first.start() == 0 and first[0] == first[0].capitalize() and first[0].lower() in known.lowercase_words:
        target = target[0].lower() + target[1:]
    return source.lower(), target


def _no_accents(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    parts = unicodedata.normalize("NFD", pair[0])
    return unicodedata.normalize("NFC", "".join(c for c in parts if not unicodedata.combining(c))), pair[1]


def _typos(pair: Pair, rng: random.Random, others: Sequence[Pair], known: Languages) -> Pair:
    """One in about forty characters of the source: left out, doubled, swapped with the next, or a key beside it."""
    text = list(pair[0])
    for _ in range(1 + len(text) // 40):
        i = rng.randrange(len(text))
        around = text[max(0, i - 1) : i + 2]
        if len(around) < 3 or not all(map(str.isalpha, around)):
            continue  # inside words only
        kind = rng.randrange(4)
        if kind == 0:
            text[i] = ""
        elif kind == 1:
            text[i] *= 2
        elif kind == 2:
            text[i], text[i + 1] = text[i + 1], text[i]
        else:
            text[i] = rng.choice(NEIGHBOURS.get(text[i]) or text[i])
    return "".join(text), pair[1]


Change = Callable[[Pair, random.Random, Sequence[Pair], Languages], Pair]
CHANGES: dict[str, Change] = {  # in the order in which they are applied
    "copies": _copies,
    "measures": _measures,
    "join": _join,
    "target_as_source": _target_as_source,
    "numbers": _numbers,
    "placeholders": _placeholders,
    "no_final_punctuation": _no_final_punctuation,
    "upper": _upper,
    "lower": _lower,
    "no_accents": _no_accents,
    "typos": _typos,
}


class Augmenter:
    """Samples the changes of each pair, by its number, and makes them."""

    def __init__(self, config: AugmentConfig, languages: Pair, seed: int) -> None:
        self.kinds = [kind for kind in CHANGES if getattr(config, kind)]
        self.probability_k = np.array([getattr(config, kind) for kind in self.kinds])
        self.seed = seed
        self.languages = Languages(*(map(_locale, languages) if config.measures else languages))

    def sample(self, epoch: int, rows: Rows) -> dict[int, list[str]]:
        """The kinds of change of each row that has some."""
        keys = rows[:, None], np.arange(len(self.kinds))[None]
        chosen_rk = keyed_uniform(self.seed, AUGMENT, epoch, *keys) < self.probability_k
        found: dict[int, list[str]] = {}
        for i, k in np.argwhere(chosen_rk):
            found.setdefault(int(rows[i]), []).append(self.kinds[k])
        return found

    def rng(self, epoch: int, row: int) -> random.Random:
        return random.Random(int(keyed_uniform(self.seed, AUGMENT, epoch, row, -1)[0] * 2**53))

    def text(self, pairs: Iterator[Pair], epoch: int = 0) -> Iterator[Pair]:
        """All of them, changed as that epoch has it; joined with those that come before."""
        start, earlier = 0, list[Pair]()
        while chunk := list(islice(pairs, TOGETHER)):
            sampled = self.sample(epoch, np.arange(start, start + len(chunk)))
            for row, pair in enumerate(chunk, start):
                if row in sampled:
                    rng = self.rng(epoch, row)
                    others = rng.sample(earlier, min(len(earlier), rng.randint(1, MOST_JOINED - 1)))
                    yield augment(pair, sampled[row], rng, others, self.languages)
                else:
                    yield pair
            start, earlier = start + len(chunk), chunk


def _locale(language: str) -> str:
    try:
        return str(Locale.parse(language.replace("-", "_")))
    except (UnknownLocaleError, ValueError) as error:
        raise UserError(
            f"data.augment.measures writes numbers and dates as languages do, and Babel does not know the language "
            f"{language!r}: set data.source_language and data.target_language, or leave out measures"
        ) from error


class AugmentedStore:
    """A store of which each epoch has some pairs changed. Those are made when the epoch begins, and kept as tokens."""

    def __init__(self, store: PairStore, augmenter: Augmenter, encoding: PairEncoder) -> None:
        self._store, self._augmenter, self._encoding = store, augmenter, encoding
        self._languages = augmenter.languages
        if "lower" in augmenter.kinds:
            rows = np.linspace(0, len(store) - 1, min(len(store), CASE_SAMPLE), dtype=np.int64).tolist()
            words = find_lowercase_words(self._text(row)[1] for row in rows)
            self._languages = self._languages._replace(lowercase_words=words)

    def __len__(self) -> int:
        return len(self._store)

    def epoch(self, number: int) -> "AugmentedEpoch":
        return AugmentedEpoch(self._store, dict(self._changed(number)))

    def _changed(self, epoch: int) -> Iterator[tuple[int, tuple[StoredIds, StoredIds]]]:
        for start in range(0, len(self._store), TOGETHER):
            sampled = self._augmenter.sample(epoch, np.arange(start, min(start + TOGETHER, len(self._store))))
            pairs = [self._pair(epoch, row, kinds) for row, kinds in sampled.items()]
            sources = self._encoding.sources([source for source, _ in pairs])
            targets = self._encoding.targets([target for _, target in pairs])
            for row, source, target in zip(sampled, sources, targets, strict=True):
                source, kind = [*self._encoding.first, *source], self._store.pair(row)[0].dtype
                whole = [*self._encoding.first_target, *target]
                if source and target and max(len(source), len(whole)) <= self._encoding.max_tokens:
                    yield row, (np.array(source, kind), np.array(whole, kind))

    def _pair(self, epoch: int, row: int, kinds: list[str]) -> Pair:
        rng, others = self._augmenter.rng(epoch, row), list[Pair]()
        if "join" in kinds:
            others = [self._text(rng.randrange(len(self._store))) for _ in range(rng.randint(1, MOST_JOINED - 1))]
        return augment(self._text(row), kinds, rng, others, self._languages)

    def _text(self, row: int) -> Pair:
        source, target = self._store.pair(row)
        decode = self._encoding.tokenizer.decode
        return decode(source[len(self._encoding.first) :].tolist()), decode(target.tolist())


class AugmentedEpoch:
    """The pairs of one epoch, as a store."""

    def __init__(self, store: PairStore, changed: dict[int, tuple[StoredIds, StoredIds]]) -> None:
        self._store, self._changed = store, changed
        self.source_lengths, self.target_lengths = store.source_lengths.copy(), store.target_lengths.copy()
        for row, (source, target) in changed.items():
            self.source_lengths[row], self.target_lengths[row] = len(source), len(target)

    def pair(self, index: int) -> tuple[StoredIds, StoredIds]:
        return self._changed.get(index) or self._store.pair(index)

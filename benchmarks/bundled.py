"""How good the bundled model is, on test sets that others use, and on text as people write it.

python benchmarks/bundled.py EVAL [--model models/pt-en] [--depths 6-3 1-1] [--set flores200.devtest]

EVAL is a folder with SET.pt, SET.en and, beside them, what other systems made of SET.pt: SET.SYSTEM.en. FLORES-200 and
Tatoeba's test set are on the OPUS-MT-testsets pages. BLEU and chrF by sacrebleu, greedy search, native engine.

- every depth, beside the other systems
- SET in capitals, in small letters, without accents, without final punctuation: BLEU without case, below the plain form
- numbers of the source that are in the output; outputs in which four words come three times
- the everyday list of tests/bundled: the share of acceptable outputs, of all and by whether the phrasebook that it was
  trained with has the input, or a phrase with one other word; and all the others, to be read
"""

import argparse
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

from common import print_versions
from sacrebleu.metrics import BLEU, CHRF

import anydepth
from anydepth.artifact import bundled_model
from anydepth.infer.translator import Translator

ROOT = Path(__file__).parents[1]
EVERYDAY = ROOT / "tests" / "bundled" / "everyday.tsv"
sys.path.insert(0, str(ROOT / "recipes"))
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
FINAL = re.compile(r"\s*[.!?…]+$")


def without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


FORMS: dict[str, Callable[[str], str]] = {
    "in capitals": str.upper,
    "in small letters": str.lower,
    "without accents": without_accents,
    "without final punctuation": lambda text: FINAL.sub("", text),
}


def digits(text: str) -> list[str]:
    """The numbers of a text, without separators, which languages write differently."""
    return [re.sub(r"\D", "", number) for number in NUMBER.findall(text)]


def numbers_kept(sources: Sequence[str], outputs: Sequence[str]) -> float:
    found = total = 0
    for source, output in zip(sources, outputs, strict=True):
        there = digits(output)
        for number in digits(source):
            total += 1
            if number in there:
                there.remove(number)
                found += 1
    return found / max(1, total)


def has_loop(text: str) -> bool:
    """The same four words in a row, three times: a loop. Twice is in good translations, too."""
    words = text.lower().split()
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return any(grams.count(gram) >= 3 for gram in set(grams))


def normal(text: str) -> str:
    return re.sub(r"[\s.!?…]+$", "", re.sub(r"^[¿¡\s]+", "", text.lower().replace("’", "'")))


def nearness(phrasebook: Path) -> Callable[[str], str]:
    """Says of an input whether the phrasebook of the training has it, or a phrase with one other word."""
    import pt_en

    def words(text: str) -> tuple[str, ...]:
        return tuple(without_accents(pt_en.plain(text)).split())

    def with_gaps(one: tuple[str, ...]) -> set[tuple[str, ...]]:
        return {(*one[:i], "", *one[i + 1 :]) for i in range(len(one))} if len(one) > 1 else set()

    known = {words(text) for text in pt_en.expand(phrasebook)}
    near = {gap for one in known for gap in with_gaps(one)}

    def of_input(text: str) -> str:
        if words(text) in known:
            return "in the phrasebook"
        return "elsewhere" if near.isdisjoint(with_gaps(words(text))) else "one word from it"

    return of_input


def everyday(translator: Translator, depth: str) -> tuple[dict[str, float], list[tuple[str, str]]]:
    """The share of acceptable outputs, of all inputs and by their nearness to the phrasebook; and the wrong ones."""
    rows = [line.split("\t") for line in EVERYDAY.read_text("utf-8").splitlines()]
    outputs = translator.translate([text for text, _ in rows], depth=depth)
    of_input = nearness(ROOT / "recipes" / "phrases.pt-en.txt")
    right: dict[str, list[bool]] = {"everyday": []}
    wrong = []
    for (text, pattern), output in zip(rows, outputs, strict=True):
        is_right = re.fullmatch(pattern, normal(output)) is not None
        for group in ("everyday", f"everyday, {of_input(text)}"):
            right.setdefault(group, []).append(is_right)
        if not is_right:
            wrong.append((text, output))
    return {f"{name} ({len(each)})": sum(each) / len(each) for name, each in sorted(right.items())}, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("eval", type=Path)
    parser.add_argument("--model", type=Path, default=bundled_model())
    parser.add_argument("--depths", nargs="*")
    parser.add_argument("--set", dest="name", default="flores200.devtest")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    print_versions()
    translator = anydepth.load(arguments.model, engine="native")
    assert isinstance(translator, Translator)
    sources, references = (
        (arguments.eval / f"{arguments.name}.{side}").read_text("utf-8").splitlines() for side in ("pt", "en")
    )
    bleu, chrf, uncased = BLEU(), CHRF(), BLEU(lowercase=True)
    figures: dict[str, dict[str, float]] = {}
    for path in sorted(arguments.eval.glob(f"{arguments.name}.*.en")):
        outputs = path.read_text("utf-8").splitlines()
        name = path.name.removeprefix(f"{arguments.name}.").removesuffix(".en")
        figures[name] = measure(bleu, chrf, sources, outputs, references)
        show(name, figures[name])
    default = translator.menu.default.name
    depths = arguments.depths or translator.menu.names
    plain: dict[str, float] = {}
    for depth in depths:
        outputs = translator.translate(sources, depth=depth)
        figures[depth] = measure(bleu, chrf, sources, outputs, references)
        plain[depth] = float(uncased.corpus_score(outputs, [references]).score)
        show(f"{depth} (default)" if depth == default else depth, figures[depth])
    print(bleu.get_signature(), chrf.get_signature(), sep="\n")
    for depth in dict.fromkeys((default, depths[0])) if default in depths else depths[:1]:
        for name, change in FORMS.items():
            outputs = translator.translate([change(text) for text in sources], depth=depth)
            of_form = float(uncased.corpus_score(outputs, [references]).score)
            figures[depth][name] = plain[depth] - of_form
            print(f"{depth} {name}: {of_form:.1f} BLEU without case, {plain[depth] - of_form:.1f} below the plain form")
        shares, wrong = everyday(translator, depth)
        figures[depth] |= shares
        print(f"{depth}: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items()) + "; wrong:")
        for text, output in wrong:
            print(f"    {text}  ->  {output}")
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def measure(
    bleu: BLEU, chrf: CHRF, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
) -> dict[str, float]:
    return {
        "bleu": float(bleu.corpus_score(outputs, [references]).score),
        "chrf": float(chrf.corpus_score(outputs, [references]).score),
        "numbers": numbers_kept(sources, outputs),
        "loops": sum(map(has_loop, outputs)) / len(outputs),
    }


def show(name: str, of_one: dict[str, float]) -> None:
    print(
        f"{name:28} BLEU {of_one['bleu']:5.1f}  chrF {of_one['chrf']:5.1f}  "
        f"numbers kept {of_one['numbers']:.1%}  loops {of_one['loops']:.2%}"
    )


if __name__ == "__main__":
    main()

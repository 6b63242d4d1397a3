"""A program as users write it, for mypy --strict (make lint): what is right has no errors, and what is wrong has one.

Nothing runs it; an `ignore` that is not needed is an error here.
"""

from collections.abc import Iterator

from anydepth import Classifier, Translator, UserError, __version__, load, train


def lines() -> Iterator[str]:
    yield "Bonjour."


def right() -> None:
    t = Translator.load("runs/demo", engine="auto")
    one: str = t.translate("Bonjour.")
    several: list[str] = t.translate(["Bonjour."], depth="3-1", beam=4)
    lazy: list[str] = t.translate(lines(), length_penalty=1.0)
    score: float = t.hypotheses(lines(), nbest=2, beam=2)[0][0].score
    print(one, several, lazy, score)
    for best, *_ in t.stream(lines(), chunk=16):
        print(best.text, best.depth)
    label: str = Classifier.load("runs/reviews").classify("a truly terrible thriller").label
    labels: list[str] = [found.label for found in Classifier.load("runs/reviews").classify(lines())]
    print(label, labels, repr(load("runs/demo")), __version__, train("recipe.yaml", out="runs/mine"))
    try:
        t.translate("Bonjour.")
    except UserError as error:
        print(error)


def wrong() -> None:
    t = Translator.load("runs/demo")
    t.translate("Bonjour.", beem=4)  # type: ignore[call-overload]
    t.translate("Bonjour.", beam="4")  # type: ignore[call-overload]
    t.translate([3])  # type: ignore[list-item]
    t.hypotheses(["Bonjour."], beem=4)  # type: ignore[call-arg]
    Translator.load("runs/demo", engin="torch")  # type: ignore[call-arg]
    load("runs/demo").translate("Bonjour.")  # type: ignore[union-attr]

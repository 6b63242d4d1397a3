"""Explain classifications: what a text was found to be, and how deep each of its words went, by one or more models."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from anydepth.evaluate.report import Heading, Levels, Report, Section, Text, Where, Word, Words
from anydepth.infer.classifier import Classifier


@dataclass(frozen=True)
class ShownWord:
    """As in the text. `spaced` says whether a space comes before it. What is only a sign has depth 0."""

    text: str
    spaced: bool
    depth: int


MORE = ShownWord("…", True, 0)


@dataclass(frozen=True)
class Explanation:
    """What a model found a text to be, and how deep its words went, of `layers` layers."""

    model: str
    label: str
    probability: float
    depth: float
    layers: int
    words: tuple[ShownWord, ...]

    def first(self, count: int) -> "Explanation":
        """With these words alone, and a sign that there were more."""
        if len(self.words) <= count:
            return self
        return replace(self, words=(*self.words[:count], MORE))

    def section(self, title: str, levels: int, *, bars: bool = False, where: Where = "both") -> Words:
        """The words in the colours of their depths, on a scale of `levels` layers."""
        words = [Word(one.text, one.depth, one.spaced, f"depth {one.depth}") for one in self.words]
        return Words(words, levels, title, bars, where)


def explain(
    classifier: Classifier,
    text: str,
    name: str,
    *,
    depth: str | None = None,
    scale: float | None = None,
    lambda_: float | None = None,
) -> Explanation:
    """What the model called `name` makes of a text."""
    found, words = classifier.explain(text, depth=depth, scale=scale, lambda_=lambda_)
    shown = tuple(ShownWord(_visible(word.text.strip()), word.text[:1].isspace(), word.depth) for word in words)
    if len(classifier.tokenizer.encode_many([text])[0]) > classifier.longest_source:  # then the rest was cut off
        shown = (*shown, MORE)
    layers = classifier.loaded.config.encoder_layers
    return Explanation(name, found.label, found.probability, found.depth, layers, shown)


def explain_report(texts: Sequence[Sequence[Explanation]]) -> Report:
    """Of several texts, each with what every model makes of it."""
    levels = max((one.layers for those in texts for one in those), default=1)
    sections: list[Section] = [
        Text("Each word runs as many layers as its colour and its bar say, and then keeps its state.", where="page"),
        depth_scale(levels),
    ]
    for number, those in enumerate(texts, 1):
        sections.append(Heading(f"Text {number}" if len(texts) > 1 else "Text"))
        sections += explain_sections(those, levels)
    data = {"texts": [[asdict(one) for one in those] for those in texts]}
    return Report("How deep words go", sections, data)


def explain_sections(explanations: Sequence[Explanation], levels: int) -> list[Section]:
    """Of one text, for each model."""
    return [one.section(_headline(one, len(explanations) > 1), levels, bars=True) for one in explanations]


def depth_scale(levels: int, where: Where = "both") -> Levels:
    return Levels("depth in layers", levels, where)


def _headline(one: Explanation, with_name: bool) -> str:
    name = f"{one.model}: " if with_name else ""
    depth = f"mean depth {one.depth:.2f} of {one.layers}, with the ends of the text"
    return f"{name}{one.label} (probability {one.probability:.2f}), {depth}"


def _visible(text: str) -> str:
    """Without characters that would move the cursor of a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)

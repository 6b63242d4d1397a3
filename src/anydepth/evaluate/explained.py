"""A text with the depth of each of its words, and the colours of depths."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from matplotlib import colormaps
from matplotlib.colors import to_hex

from anydepth.evaluate.heat_maps import INK
from anydepth.infer.classifier import Classifier

MAP = "viridis_r"  # light to dark: as good in grey, and with any kind of colour vision
DARKEST = 0.92  # of the map: a deep word is to be seen on a dark page too
DARK = 0.22  # relative luminance: on darker grounds white letters stand out more than dark ones


@dataclass(frozen=True)
class Colour:
    ground: str
    letters: str


@dataclass(frozen=True)
class Word:
    """As in the text. `spaced` says whether a space comes before it. What is only a sign has depth 0."""

    text: str
    spaced: bool
    depth: int


MORE = Word("…", True, 0)


@dataclass(frozen=True)
class Explanation:
    """What a model found a text to be, and how deep its words went, of `layers` layers."""

    model: str
    label: str
    probability: float
    depth: float
    layers: int
    words: tuple[Word, ...]

    def first(self, count: int) -> "Explanation":
        """With these words alone, and a sign that there were more."""
        if len(self.words) <= count:
            return self
        return replace(self, words=(*self.words[:count], MORE))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explain(
    classifier: Classifier,
    text: str,
    name: str,
    *,
    depth: str | None = None,
    scale: float | None = None,
    lambda_: float | None = None,
) -> Explanation:
    found, words = classifier.explain(text, depth=depth, scale=scale, lambda_=lambda_)
    shown = tuple(Word(_visible(word.text.strip()), word.text[:1].isspace(), word.depth) for word in words)
    if len(classifier.tokenizer.encode_many([text])[0]) > classifier.longest_source:  # then the rest was cut off
        shown = (*shown, MORE)
    layers = classifier.model.config.encoder_layers
    return Explanation(name, found.label, found.probability, found.depth, layers, shown)


def colours(layers: int) -> list[Colour]:
    """Of each depth, 1 to `layers`, under its number; 0 is what has no depth."""
    return [Colour("transparent", "inherit"), *(_colour(depth, layers) for depth in range(1, layers + 1))]


def deepest(explanations: Sequence[Explanation]) -> int:
    """The layers of the deepest model: one scale of colours for all of them."""
    return max(one.layers for one in explanations)


def _colour(depth: int, layers: int) -> Colour:
    red, green, blue, _ = colormaps[MAP](DARKEST * (depth - 1) / max(layers - 1, 1))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    is_dark = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < DARK
    return Colour(to_hex((red, green, blue)), "#ffffff" if is_dark else INK)


def _visible(text: str) -> str:
    """Without characters that would move the cursor of a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)

"""Words on the terminal, on a ground in the colour of their depth, with the depth below each."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from anydepth.evaluate.explained import Colour, Explanation, Word, colours, deepest


def print_scale(explanations: Sequence[Explanation], console: Console) -> None:
    """The legend."""
    line = Text("depth in layers:")
    for depth, colour in enumerate(colours(deepest(explanations))[1:], 1):
        line.append(" ")
        line.append(f" {depth} ", _style(colour))
    console.print(line)


def print_explanations(explanations: Sequence[Explanation], console: Console, *, with_names: bool) -> None:
    """The same text by each model."""
    scale = colours(deepest(explanations))
    for one in explanations:
        console.print()
        console.print(_headline(one, with_names), soft_wrap=True)
        for words, depths in _lines(one.words, scale, console.width):
            console.print(words, soft_wrap=True)
            console.print(depths, soft_wrap=True)
        if not one.words:
            console.print("(no words)", highlight=False)


def _headline(one: Explanation, with_name: bool) -> Text:
    line = Text(f"{one.model}: " if with_name else "")
    line.append(one.label, "bold")
    line.append(
        f" (probability {one.probability:.2f}), mean depth {one.depth:.2f} of {one.layers}, with the ends of the text"
    )
    return line


def _lines(words: Sequence[Word], scale: Sequence[Colour], width: int) -> Iterator[tuple[Text, Text]]:
    """As many words to a line as there is room for, and the line of their depths."""
    above, below = Text(), Text()
    for word in words:
        number = str(word.depth or "")
        cells = max(cell_len(word.text), len(number))
        touches = below.plain[-1:].isdigit() and number.center(cells)[:1].isdigit()  # 3 and 1 are not to read as 31
        gap = " " if above and (word.spaced or touches) else ""
        if above and above.cell_len + len(gap) + cells > width:
            yield above, below
            above, below, gap = Text(), Text(), ""
        above.append(gap)
        above.append(word.text + " " * (cells - cell_len(word.text)), _style(scale[word.depth]) if word.depth else "")
        below.append(gap + number.center(cells))
    if above:
        below.rstrip()
        yield above, below


def _style(colour: Colour) -> str:
    return f"{colour.letters} on {colour.ground}"

"""The picture of word depths, after Figure 1 of Liu et al. 2021: where words lie, and how deep a text then goes.

Both panels share their scale across: 0 to the number of layers, where depth n reaches from n - 1 to n.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from anydepth.evaluate.figures import SERIES
from anydepth.evaluate.heat_maps import INK, new_figure, png_of
from anydepth.evaluate.word_depths_table import DepthRow, depth_rows, mean_depth
from anydepth.files import write_atomically
from anydepth.word_depths.table import WordDepths

COLUMNS = 48  # at least; each depth has a whole number of them
WORDS_PER_PLACE = 3
LETTER = 0.012  # of the width of the picture: what a letter of a note takes, generously
MARGIN = 0.01  # of the scale across, on both sides
FAINT = "#d9dde2"


def plot_word_depths(depths: WordDepths, words: Mapping[str, int], path: Path) -> None:
    """Draw how the words of a text, each with its number of occurrences, spread over the depths, into a PNG."""
    rows = depth_rows(depths, words)
    known = {word: depths.values[word][0] - 0.5 for word in words if word in depths.values}
    upper = depths.kind == "mi" and bool(known)
    figure = new_figure(8.4, 6.4 if upper else 3.9)
    panels = figure.subplots(2, 1, sharex=True, height_ratios=(1.15, 1)) if upper else [figure.subplots()]
    lower = panels[-1]
    _draw_shares(lower, rows)
    if upper:
        _draw_values(panels[0], depths, known)
    _note_words(panels[0], _examples(rows, known if upper else {}), depths.layers, threads=upper)
    _finish(figure, panels, depths)
    write_atomically(path, png_of(figure))


def _examples(rows: Sequence[DepthRow], known: Mapping[str, float]) -> list[tuple[str, float]]:
    """A few words of a shallow, a middling and a deep row, and where they are; of the shallow one the shallowest."""
    used = [row for row in rows if row.examples]
    if not used:
        return []
    middle = min(used, key=lambda row: abs(row.depth - (used[0].depth + used[-1].depth) / 2))
    notes = []
    for row in dict.fromkeys((used[0], middle, used[-1])):
        words = row.examples
        if row == used[0] and known:
            words = tuple(sorted(row.telling, key=lambda word: known.get(word, row.depth)))
        notes += [(word, known.get(word, row.depth - 0.5)) for word in words[:WORDS_PER_PLACE]]
    return notes


def _draw_shares(axes: Axes, rows: Sequence[DepthRow]) -> None:
    """A bar for each depth: how much of the text goes that deep."""
    shares = [100 * row.share for row in rows]
    places = [row.depth - 0.5 for row in rows]
    axes.bar(places, shares, width=0.86, color=SERIES[0], linewidth=0)
    for place, row in zip(places, rows, strict=True):
        if row.occurrences:
            axes.annotate(
                f"{100 * row.share:.{1 if row.share < 0.1 else 0}f}%",
                (place, 100 * row.share),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=INK,
                path_effects=[withStroke(linewidth=3, foreground="white")],
                zorder=4,
            )
    mean = mean_depth(list(rows))
    axes.axvline(mean - 0.5, color=SERIES[1], linewidth=1.4, linestyle="--")
    axes.set_xticks(places, [str(row.depth) for row in rows])
    axes.set_xlabel(f"depth, in layers (dashed: the mean, {mean:.2f})", color=INK)
    axes.set_ylabel("share of occurrences in %", color=INK)
    axes.set_ylim(0, 1.16 * max(*shares, 1))


def _draw_values(axes: Axes, depths: WordDepths, known: Mapping[str, float]) -> None:
    """How the different words lie on the continuous scale that the depths are cut from."""
    columns = depths.layers * -(-COLUMNS // depths.layers)
    places = np.linspace(0, depths.layers, columns + 1).tolist()
    axes.hist(np.fromiter(known.values(), np.float64), bins=places, color=SERIES[5], linewidth=0)
    for border in range(1, depths.layers):
        axes.axvline(border, color=FAINT, linewidth=0.8, zorder=0)
    axes.set_ylabel("different words", color=INK)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axes.tick_params(axis="x", labelbottom=False, length=0)
    low, high = (depths.facts.get(f"{end} -log MI") for end in ("lowest", "highest"))
    if isinstance(low, float | int) and isinstance(high, float | int) and low < high:
        above = axes.secondary_xaxis("top", functions=_line(low, (high - low) / depths.layers))
        above.set_xlabel("−log mutual information of word and label", color=INK)
        above.spines["top"].set_visible(False)
        above.xaxis.set_major_locator(MaxNLocator(8))


def _line(start: float, slope: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A straight line and its inverse."""
    return lambda x: start + slope * x, lambda y: (y - start) / slope


def _note_words(axes: Axes, notes: Sequence[tuple[str, float]], layers: int, *, threads: bool) -> None:
    """Words above what is drawn, each with a thread down to its place or without; as many lines as keep them apart."""
    lines: list[float] = []  # where each line of notes is free again
    placed = []
    for word, x in sorted(notes, key=lambda note: note[1]):
        half = LETTER * layers * (len(word) + 1) / 2
        centre = min(max(x, half), layers - half)
        line = next((number for number, free in enumerate(lines) if free <= centre - half), len(lines))
        lines[line : line + 1] = [centre + half]
        placed.append((word, x, centre, line))
    floor, top = 0.0, axes.get_ylim()[1]
    step = 0.11 * top
    for word, x, centre, line in placed:
        height = top + (line + 0.35) * step
        if threads:
            axes.plot([x, x, centre], [floor, top, height], color=INK, linewidth=0.5, alpha=0.45, zorder=1)
        axes.text(
            centre,
            height,
            word,
            ha="center",
            va="bottom",
            fontsize=8.5,
            color=INK,
            parse_math=False,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            zorder=3,
        )
    axes.set_ylim(floor, top + (len(lines) + 0.5) * step)


def _finish(figure: Figure, panels: Sequence[Axes], depths: WordDepths) -> None:
    made = {"mi": "from mutual information", "reconstruction": "from reconstruction losses"}[depths.kind]
    figure.suptitle(f"How deep words go, {made}", fontsize=12, color=INK)
    for axes in panels:
        axes.set_xlim(-MARGIN * depths.layers, (1 + MARGIN) * depths.layers)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)

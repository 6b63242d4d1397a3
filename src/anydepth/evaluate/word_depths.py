"""How the words of a text spread over depths: a table, and a chart after Figure 1 of Liu et al. 2021."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from anydepth.evaluate.figures import INK, LINE, PAPER, SERIES, outlined, with_tip
from anydepth.evaluate.report import Column, Figure, Report, Text, tabulate
from anydepth.word_depths.table import WordDepths

EXAMPLES = 6
COLUMNS = 48  # at least; each depth has a whole number of them
WORDS_PER_PLACE = 3
LETTER = 0.012  # of the width of the chart: what a letter of a note takes, generously
MARGIN = 0.01  # of the scale across, on both sides
MADE = {"mi": "from mutual information", "reconstruction": "from reconstruction losses"}


@dataclass(frozen=True)
class DepthRow:
    """The words of one depth, the most frequent first."""

    depth: int
    words: tuple[str, ...]
    occurrences: int
    share: float  # of all occurrences

    @property
    def telling(self) -> tuple[str, ...]:
        """Those that say something to people: of letters, and more than one."""
        return tuple(word for word in self.words if len(word) > 1 and word.isalpha())

    @property
    def examples(self) -> tuple[str, ...]:
        return self.telling[:EXAMPLES]


def depth_rows(depths: WordDepths, words: Mapping[str, int]) -> list[DepthRow]:
    """A row for each depth, the unused ones too. `words` says how often each word occurs."""
    ordered = sorted(words, key=lambda word: (-words[word], word))
    of_depth: dict[int, list[str]] = {depth: [] for depth in range(1, depths.layers + 1)}
    for word, depth in zip(ordered, depths.depths(ordered), strict=True):
        of_depth[depth].append(word)
    total = max(sum(words.values()), 1)
    rows = []
    for depth, those in of_depth.items():
        occurrences = sum(words[word] for word in those)
        rows.append(DepthRow(depth, tuple(those), occurrences, occurrences / total))
    return rows


def mean_depth(rows: Sequence[DepthRow]) -> float:
    """Over occurrences."""
    return sum(row.depth * row.share for row in rows)


def word_depths_report(depths: WordDepths, words: Mapping[str, int]) -> Report:
    """Of a table of depths and the words of a text, each with its number of occurrences."""
    rows = depth_rows(depths, words)
    columns = [
        Column("depth", lambda row: str(row.depth)),
        Column("words", lambda row: len(row.words), ","),
        Column("occurrences", lambda row: row.occurrences, ","),
        Column("share", lambda row: row.share, ".1%"),
        Column("examples", lambda row: ", ".join(row.examples), align="left"),
    ]
    mean = Text(f"mean depth by occurrence: {mean_depth(rows):.2f} of {len(rows)}")
    title = f"How deep words go, {MADE[depths.kind]}"
    data = {"mean_depth": mean_depth(rows), "depths": [asdict(row) for row in rows]}
    return Report(title, [tabulate(columns, rows), mean, _figure(title, depths, words, rows)], data)


def _figure(title: str, depths: WordDepths, words: Mapping[str, int], rows: Sequence[DepthRow]) -> Figure:
    """Where words lie, and how deep a text then goes, on one scale: depth n reaches from n - 1 to n."""
    known = {word: depths.values[word][0] - 0.5 for word in words if word in depths.values}
    upper = depths.kind == "mi" and bool(known)

    def drawing(canvas: Canvas) -> None:
        panels = canvas.subplots(2, 1, sharex=True, height_ratios=(1.15, 1)) if upper else [canvas.subplots()]
        _draw_shares(panels[-1], rows)
        if upper:
            _draw_values(panels[0], depths, known)
        _note_words(panels[0], _examples(rows, known if upper else {}), depths.layers, threads=upper)
        canvas.suptitle(title, fontsize=12)
        for axes in panels:
            axes.set_xlim(-MARGIN * depths.layers, (1 + MARGIN) * depths.layers)
            axes.grid(axis="y")

    return Figure("word-depths", title, drawing, size=(8.4, 6.4 if upper else 3.9))


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
    for bar, row in zip(axes.bar(places, shares, width=0.86, color=SERIES[0], linewidth=0), rows, strict=True):
        with_tip(bar, f"depth {row.depth}: {row.share:.1%} of the occurrences, {len(row.words):,} words")
        if row.occurrences:
            axes.annotate(
                f"{100 * row.share:.{1 if row.share < 0.1 else 0}f}%",
                (row.depth - 0.5, 100 * row.share),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                path_effects=outlined(3),
                zorder=4,
            )
    mean = mean_depth(rows)
    axes.axvline(mean - 0.5, color=SERIES[1], linewidth=1.4, linestyle="--")
    axes.set_xticks(places, [str(row.depth) for row in rows])
    axes.set_xlabel(f"depth, in layers (dashed: the mean, {mean:.2f})")
    axes.set_ylabel("share of occurrences in %")
    axes.set_ylim(0, 1.16 * max(*shares, 1))


def _draw_values(axes: Axes, depths: WordDepths, known: Mapping[str, float]) -> None:
    """How the different words lie on the continuous scale that the depths are cut from."""
    columns = depths.layers * -(-COLUMNS // depths.layers)
    places = np.linspace(0, depths.layers, columns + 1).tolist()
    axes.hist(np.fromiter(known.values(), np.float64), bins=places, color=SERIES[5], linewidth=0)
    for border in range(1, depths.layers):
        axes.axvline(border, color=LINE, linewidth=0.8, zorder=0)
    axes.set_ylabel("different words")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axes.tick_params(axis="x", labelbottom=False, length=0)
    low, high = (depths.facts.get(f"{end} -log MI") for end in ("lowest", "highest"))
    if isinstance(low, float | int) and isinstance(high, float | int) and low < high:
        slope = (high - low) / depths.layers
        above = axes.secondary_xaxis("top", functions=_straight_line(low, slope))
        above.set_xlabel("−log mutual information of word and label")
        above.spines["top"].set_visible(False)
        above.xaxis.set_major_locator(MaxNLocator(8))


def _straight_line(start: float, slope: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """And its inverse."""
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
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}
    for word, x, centre, line in placed:
        height = top + (line + 0.35) * step
        if threads:
            axes.plot([x, x, centre], [floor, top, height], color=INK, linewidth=0.5, alpha=0.45, zorder=1)
        axes.text(centre, height, word, ha="center", va="bottom", fontsize=8.5, bbox=box, zorder=3)
    axes.set_ylim(floor, top + (len(lines) + 0.5) * step)

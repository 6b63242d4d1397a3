"""Charts in the house style: drawn once with matplotlib, as a PNG on white and as an SVG in the colours of a page.

A drawing uses INK, SOFT, LINE, PAPER and SERIES for whatever should follow the reader's light or dark theme: in the
SVG they become the page's CSS variables. Other colours, such as those of a colour map, stay as they are.
"""

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from matplotlib import colormaps, rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from anydepth.evaluate.report import Figure

DPI = 150
LETTERS_IN_LEGEND = 60
LETTERS_PER_INCH = 9  # of a title
INK, SOFT, LINE, PAPER = "#22262b", "#5b6571", "#d9dde2", "#fefefe"
# Okabe and Ito's colours, told apart with any kind of colour vision; the shapes are for print.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
SHAPES = ("o", "s", "^", "D", "v", "P")
ON_DARK, ON_LIGHT = "#ffffff", "#111418"  # letters on a colour of a map, whatever the theme

_VARIABLES = {INK: "--ink", SOFT: "--soft", LINE: "--line", PAPER: "--card"} | {
    colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)
}
_STYLE = {
    "text.color": INK,
    "text.parse_math": False,  # names are not formulas
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
}
_TIP = "tip:"

Cells = Mapping[tuple[int, int], float]  # by encoder and decoder layers


def draw(figure: Figure) -> tuple[bytes, str]:
    """The PNG and the SVG, the latter to stand within a page. The same data give the same bytes."""
    with rc_context(_STYLE | {"svg.hashsalt": figure.name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name may have letters that the font has not
        canvas = Canvas(figsize=figure.size, dpi=DPI, layout="compressed", facecolor="none")
        FigureCanvasAgg(canvas)
        figure.draw(canvas)
        png, svg = io.BytesIO(), io.BytesIO()
        canvas.savefig(png, format="png", facecolor="white", metadata={"Software": None})
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.savefig(svg, format="svg", transparent=True, metadata=nothing)
    return png.getvalue(), _for_page(svg.getvalue(), figure.title)


def with_tip(artist: Any, tip: str) -> Any:
    """Let the chart on the page say `tip` where the pointer rests on this artist."""
    artist.set_gid(_TIP + tip)
    return artist


def tip_points(axes: Axes, x: Sequence[float], y: Sequence[float], tips: Sequence[str], size: float = 12) -> None:
    """Spots without colour that say a tip each, for the points of a curve."""
    for one_x, one_y, tip in zip(x, y, tips, strict=True):
        (spot,) = axes.plot([one_x], [one_y], "o", markersize=size, alpha=0, zorder=9, label="_nolegend_")
        with_tip(spot, tip).set_in_layout(False)


def legend_below(canvas: Canvas, entries: Mapping[str, Artist], columns: int = 3) -> None:
    """A legend below the chart. The texts are set last: matplotlib would leave out a label that begins with _."""
    columns, look = max(min(len(entries), columns), 1), {"loc": "outside lower center", "fontsize": 9}
    drawn = canvas.legend(list(entries.values()), ["-"] * len(entries), ncols=columns, **look)
    for text, label in zip(drawn.get_texts(), entries, strict=True):
        text.set_text(shortened(label, LETTERS_IN_LEGEND))


def shortened(text: str, letters: int) -> str:
    """Without its middle, if it is longer: the end says what is special."""
    text = " ".join(text.split())
    return text if len(text) <= letters else f"{text[: letters // 2]}…{text[-(letters // 2 - 1) :]}"


@dataclass(frozen=True)
class PointName:
    """A name beside a point of a chart; `minor` names are smaller and paler."""

    text: str
    x: float
    y: float
    colour: str = INK
    minor: bool = False


def name_points(
    canvas: Canvas, axes: Axes, names: Sequence[PointName], keep_clear: Sequence[tuple[float, float]]
) -> None:
    """Write each name in a free place around its point, or not at all; the first ones have the choice.

    No name covers another, nor the places of `keep_clear`: points, and some along the lines.
    """
    canvas.draw_without_rendering()  # settles the layout, and with it where the points are
    renderer = FigureCanvasAgg(canvas).get_renderer()
    places = axes.transData.transform(keep_clear) if keep_clear else ()
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in places]
    for name in names:
        for dx, dy in ((-6, 6), (7, -6), (7, 6), (-6, -6), (0, 9), (0, -10), (-9, 0), (0, -20), (0, 18)):
            note = axes.annotate(
                name.text,
                (name.x, name.y),
                (dx, dy),
                textcoords="offset points",
                ha="center" if dx == 0 else "right" if dx < 0 else "left",
                va="top" if dy < 0 else "bottom",
                fontsize=8 if name.minor else 9,
                alpha=0.9 if name.minor else 1.0,
                color=name.colour,
                zorder=7,
                path_effects=outlined(),
            )
            box = note.get_window_extent(renderer)
            if axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            note.remove()


def outlined(width: float = 2.5) -> list[Any]:
    """Path effects that keep letters legible on lines and points."""
    return [withStroke(linewidth=width, foreground=PAPER)]


@dataclass(frozen=True)
class Scale:
    """How a heat map colours and writes its numbers. `unit` follows them in the tips. Ends that are not given are
    those of the values."""

    cmap: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    number: str = ""

    def over(self, values: Iterable[float]) -> tuple[Normalize, str]:
        found = list(values)
        low, high = min(found) if self.low is None else self.low, max(found) if self.high is None else self.high
        if low == high:  # one entry: a scale needs two ends
            low, high = low - 0.5, high + 0.5
        return Normalize(low, high), self.number or ("{:.1f}" if high < 1000 else "{:.0f}")


def depth_map(
    name: str,
    title: str,
    cells: Cells,
    scale: Scale,
    *,
    beside: Iterable[Cells] = (),
    boxed: Collection[tuple[int, int]] = (),
) -> Figure:
    """A heat map over encoder depths n (down) and decoder depths m (across), its number in each cell.

    It has room for the depths of the maps that stand `beside` it, and with them one scale. `boxed` cells have a frame.
    """
    every = [cells, *beside]
    down, across = (sorted({place[side] for one in every for place in one}) for side in (0, 1))
    size = min(max(1.0 + 0.62 * len(across), 4.2), 12.0), min(max(2.0, 1.0 + 0.52 * len(down)), 12.0)

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        norm, number = scale.over(value for one in every for value in one.values())
        for (n, m), value in cells.items():
            row, column, text = down.index(n), across.index(m), number.format(value)
            red, green, blue, _ = colormaps[scale.cmap](norm(value))
            patch = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=(red, green, blue), linewidth=0)
            axes.add_patch(with_tip(patch, f"{n}-{m}: {text} {scale.unit}".strip()))
            letters = axes.text(column, row, text, ha="center", va="center", fontsize=10)
            letters.set_color(ON_DARK if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else ON_LIGHT)
            if (n, m) in boxed:
                box = Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, fill=False, edgecolor=ON_LIGHT, linewidth=1.8)
                axes.add_patch(box).set_path_effects([withStroke(linewidth=4, foreground=ON_DARK)])
        axes.set_xlim(-0.5, len(across) - 0.5)
        axes.set_ylim(len(down) - 0.5, -0.5)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xticks(range(len(across)), map(str, across))
        axes.set_yticks(range(len(down)), map(str, down))
        axes.set_xlabel("decoder layers m")
        axes.set_ylabel("encoder layers n")
        axes.set_title(textwrap.fill(title, int(LETTERS_PER_INCH * size[0])))

    return Figure(name, title, drawing, size=size)


@dataclass(frozen=True)
class Series:
    """Points of a chart, with a tip for each; `look` is as matplotlib's `plot` takes it.

    `errors` go up and down from each point: as a band, or as strokes.
    """

    x: Sequence[float]
    y: Sequence[float]
    look: Mapping[str, Any]
    label: str = ""
    tips: Sequence[str] = ()
    errors: Sequence[float | None] = ()
    strokes: bool = False

    def draw(self, axes: Axes) -> Artist:
        ends = [(x, y - e, y + e) for x, y, e in zip(self.x, self.y, self.errors, strict=False) if e is not None]
        if ends and not self.strokes:
            x, low, high = zip(*ends, strict=True)
            axes.fill_between(x, low, high, color=self.look["color"], alpha=0.17, linewidth=0)
        for at, *stroke in ends if self.strokes else ():
            axes.plot([at, at], stroke, "-_", color=self.look["color"], linewidth=1, markersize=6, alpha=0.7)
        (drawn,) = axes.plot(self.x, self.y, **{"linewidth": 1.6, **self.look})
        if self.tips:
            tip_points(axes, self.x, self.y, self.tips)
        return drawn


def series_style(place: int) -> dict[str, Any]:
    """Colour and shape of the series at this place among several."""
    return {"color": SERIES[place % len(SERIES)], "marker": SHAPES[place % len(SHAPES)]}


def plot(
    series: Iterable[Series],
    x: str,
    y: str,
    *,
    title: str = "",
    legend: int = 3,
    then: Callable[[Canvas, Axes], None] = lambda canvas, axes: None,
) -> Callable[[Canvas], None]:
    """What draws a chart with axes called `x` and `y`, and a legend of so many columns below it; `then` adds to it."""

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        drawn = [(one.label, one.draw(axes)) for one in series]
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_title(title)
        axes.margins(x=0.06, y=0.1)
        axes.grid()
        legend_below(canvas, {label: artist for label, artist in drawn if label}, legend)
        then(canvas, axes)

    return drawing


def level_colours(levels: int) -> list[tuple[str, str]]:
    """Ground and letters of each level, 1 to `levels`, under its number; 0 has none.

    Light to dark: as good in grey, and with any kind of colour vision.
    """
    found = [("transparent", "inherit")]
    for level in range(levels):
        red, green, blue, _ = colormaps["viridis_r"](0.92 * level / max(levels - 1, 1))
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
        is_dark = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.22
        ground = "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue))
        found.append((ground, ON_DARK if is_dark else ON_LIGHT))
    return found


def _for_page(svg: bytes, title: str) -> str:
    """Without namespaces, sizes, fonts and colours of its own; tips as titles, which browsers show."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():  # within HTML they are known without a namespace
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", title)
    for metadata in root.findall("metadata"):
        root.remove(metadata)
    for element in root.iter():
        identity = element.get("id", "")
        if identity.startswith(_TIP):
            tip = ElementTree.Element("title")
            tip.text = identity.removeprefix(_TIP)
            element.insert(0, tip)
        if element.tag == "g" and identity:
            del element.attrib["id"]  # several figures of a page would have the same
        for name in ("style", "fill", "stroke"):
            if name in element.attrib:
                element.set(name, _themed(element.attrib[name]))
    return ElementTree.tostring(root, encoding="unicode")


def _themed(style: str) -> str:
    style = re.sub(r"font: (bold |700 )?(?:\w+ )*?([\d.]+px) [^;]*", _font, style)
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: _variable(found[0]), style)


def _font(found: re.Match[str]) -> str:
    return f"font-size: {found[2]}" + ("; font-weight: bold" if found[1] else "")


def _variable(colour: str) -> str:
    name = _VARIABLES.get(colour)
    return colour if name is None else f"var({name})"

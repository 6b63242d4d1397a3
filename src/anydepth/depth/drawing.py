"""Pictures made of text: the layers of each depth, and the teacher layers that each student layer learns from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from textwrap import wrap

from anydepth.depth.assignment import Assignment, Layers
from anydepth.depth.maps import MAPS, LayerMap, layer_map

GAP = "  "
RULER_STEP = 10
LEAST_SPACE_FOR_A_LIST = 12


@dataclass(frozen=True)
class Marks:
    """The characters for a layer that is used and one that is not."""

    used: str
    unused: str


BLOCKS = Marks("■", "·")
ASCII = Marks("#", ".")


def marks_for(encoding: str | None) -> Marks:
    """Block characters if the output encoding has them, else ASCII."""
    try:
        (BLOCKS.used + BLOCKS.unused).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


@dataclass(frozen=True)
class Grid:
    """Layers across, a row for each choice of layers, and below optionally a number for each layer."""

    total: int
    rows: list[Layers]
    labels: list[str]  # of the ruler, of each row, and of the numbers
    numbers: list[int] = field(default_factory=list)

    def space(self, width: int) -> int:
        """The part of `width` that the labels leave."""
        return width - max(map(len, self.labels)) - len(GAP)


def draw(assignment: Assignment, width: int, marks: Marks = BLOCKS) -> list[str]:
    """A row for each depth and the tasks of each layer."""
    grid = _grid(assignment, ["layer", *(f"depth {depth}" for depth in assignment.depths), "tasks per layer"])
    return draw_grid(grid, width, cell_for(grid.total, grid.space(width)), marks)


def draw_small(assignment: Assignment, width: int, marks: Marks = BLOCKS) -> list[str]:
    """The same, one character for a layer, headed by the name of the strategy."""
    grid = _grid(assignment, ["", *map(str, assignment.depths), "tasks"])
    lines = [assignment.strategy]
    for panel in _panels(grid.total, grid.space(width)):
        lines += _labelled(grid.labels, _picture(grid, panel, 1, marks))
    return lines


def cell_for(total: int, space: int) -> int:
    """How wide a layer is drawn: wide enough for its number, or one character if that takes too much space."""
    cell = len(str(total)) + 1
    return cell if cell * total <= space else 1


def draw_grid(grid: Grid, width: int, cell: int, marks: Marks = BLOCKS) -> list[str]:
    """Lines of at most `width`; a long stack goes on below."""
    space = grid.space(width)
    panels = _panels(grid.total, space // cell)
    pictures = [_picture(grid, panel, cell, marks) for panel in panels]
    if len(panels) == 1:
        pictures = [_with_lists(pictures[0], grid.rows, space)]
    blocks = [_labelled(grid.labels, picture) for picture in pictures]
    return [line for number, block in enumerate(blocks) for line in ([""] if number else []) + block]


def side_by_side(drawings: list[list[str]], width: int, gap: int = 4) -> list[str]:
    """As many drawings beside each other as fit into `width`, the others below, separated by an empty line."""
    wide = max(len(line) for drawing in drawings for line in drawing)
    across = max(1, (width + gap) // (wide + gap))
    lines: list[str] = []
    for start in range(0, len(drawings), across):
        rows = zip_longest(*drawings[start : start + across], fillvalue="")
        lines += [""] if start else []
        lines += [(" " * gap).join(f"{part:<{wide}}" for part in row).rstrip() for row in rows]
    return lines


def listed(layers: Layers, space: int) -> str:
    """Layers counted from 1, such as "1 to 3, 7", shortened in the middle to fit `space`, or empty."""
    parts = [str(first) if first == last else f"{first} to {last}" for first, last in _runs(layers)]
    whole = ", ".join(parts)
    if len(whole) <= space:
        return whole
    shortened = (", ".join([*parts[:kept], "...", parts[-1]]) for kept in range(len(parts) - 2, 0, -1))
    return next((text for text in shortened if len(text) <= space), "")


def _panels(total: int, space: int) -> list[range]:
    """All layers, or as many at a time as there is space for, in tens."""
    if total <= space:
        return [range(total)]
    size = max(RULER_STEP, space // RULER_STEP * RULER_STEP)
    return [range(start, min(start + size, total)) for start in range(0, total, size)]


def _grid(assignment: Assignment, labels: list[str]) -> Grid:
    rows = [assignment.layers(depth) for depth in assignment.depths]
    return Grid(assignment.total, rows, labels, assignment.tasks_per_layer)


def _picture(grid: Grid, panel: range, cell: int, marks: Marks) -> list[str]:
    """A ruler, the rows, and the numbers, which may take two lines."""
    uses = map(set, grid.rows)
    rows = ["".join(f"{marks.used if i in used else marks.unused:>{cell}}" for i in panel) for used in uses]
    picture = [_ruler(panel) if cell == 1 else _in_cells((layer + 1 for layer in panel), cell), *rows]
    if numbers := grid.numbers[panel.start : panel.stop]:
        picture += _upright(numbers) if cell == 1 else [_in_cells(numbers, cell)]
    return picture


def _in_cells(numbers: Iterable[int], cell: int) -> str:
    return "".join(f"{number:>{cell}}" for number in numbers)


def _ruler(panel: range) -> str:
    """The number of the first layer, and of every tenth, which ends where that layer stands."""
    line = str(panel.start + 1)
    for number in range(panel.start + 2, panel.stop + 1):
        if number % RULER_STEP == 0:
            line += f"{number:>{number - panel.start - len(line)}}"
    return line


def _upright(numbers: list[int]) -> list[str]:
    """One character wide, so that numbers of two digits stand on top of each other."""
    height = len(str(max(numbers)))
    digits = [f"{number:>{height}}" for number in numbers]
    return ["".join(digit[line] for digit in digits) for line in range(height)]


def _with_lists(picture: list[str], rows: list[Layers], space: int) -> list[str]:
    """The layers also as numbers, right of the picture, if that leaves space for them."""
    left = space - len(picture[1]) - len(GAP)
    if left < LEAST_SPACE_FOR_A_LIST:
        return picture
    lists = ["", *(GAP + listed(layers, left) for layers in rows)]
    return [line + numbers for line, numbers in zip_longest(picture, lists, fillvalue="")]


def _labelled(labels: list[str], picture: list[str]) -> list[str]:
    wide = max(map(len, labels))
    rows = zip_longest(labels, picture, fillvalue="")
    return [f"{label:<{wide}}{GAP}{row}".rstrip() for label, row in rows]


def _runs(layers: Layers) -> list[tuple[int, int]]:
    """First and last of each run of neighbours, from 1. Two neighbours count as two runs."""
    runs: list[tuple[int, int]] = []
    for layer in (index + 1 for index in layers):
        if runs and layer == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], layer)
        else:
            runs.append((layer, layer))
    pairs = [[run] if run[1] - run[0] != 1 else [(run[0], run[0]), (run[1], run[1])] for run in runs]
    return [run for pair in pairs for run in pair]


LEAST_WIDTH_FOR_WORDS = 30
MEANINGS = {
    "last": "the last layer of each regular block (PKD)",
    "regular": "contiguous blocks of near-equal length (RC)",
    "overlap": "each regular block and its neighbour on each side (OC)",
    "skip": "shorter runs, so that the layers between them are left out (SC)",
    "cross": "the two ends of each regular block (CC)",
    "interleave": "every S-th layer, as cards are dealt (CC as drawn in Fig. 2)",
}


def draw_maps(teacher: int, student: int, width: int, marks: Marks = BLOCKS) -> list[str]:
    """Every map there is: what it does, its picture and how a recipe asks for it."""
    maps = {name: layer_map(name, teacher, student) for name in MAPS}
    drawings = [[name, *draw_map(found, teacher, width, marks)] for name, found in maps.items()]
    return [
        *_wrapped(f"Each row is a student layer; {marks.used} marks the teacher layers it learns from.", width),
        "",
        *side_by_side(drawings, width),
        "",
        *_meanings(width),
        "",
        *_wrapped("In a recipe, by name or by layers (a student layer left out is not matched):", width),
        "  teacher: {method: ckd, map: overlap}",
        f"  teacher: {{method: ckd, map: {_for_a_recipe(maps['cross'], at_most=2)}}}",
    ]


def draw_map(layers: LayerMap, teacher: int, width: int, marks: Marks = BLOCKS) -> list[str]:
    """The teacher's layers across, a row for each student layer."""
    rows = [tuple(source - 1 for source in sources) for sources in layers.values()]
    grid = Grid(teacher, rows, labels=["", *map(str, layers)])
    room_for_drawings_beside_it = grid.space(width) // 3
    return draw_grid(grid, width, cell_for(teacher, room_for_drawings_beside_it), marks)


def _meanings(width: int) -> list[str]:
    indent = max(map(len, MAPS)) + 2
    return [line for name in MAPS for line in _wrapped(f"{name:<{indent}}{MEANINGS[name]}", width, indent)]


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    return wrap(text, max(width, LEAST_WIDTH_FOR_WORDS), subsequent_indent=" " * indent)


def _for_a_recipe(layers: LayerMap, at_most: int) -> str:
    return str({layer: list(layers[layer]) for layer in list(layers)[:at_most]})

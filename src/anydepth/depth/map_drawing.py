"""Which teacher layers each student layer learns from, as pictures made of text."""

from textwrap import wrap

from anydepth.depth.drawing import BLOCKS, Grid, Marks, cell_for, draw_grid, side_by_side
from anydepth.depth.maps import MAPS, LayerMap, layer_map

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

import pytest

from anydepth.depth.drawing import draw_map, draw_maps
from anydepth.depth.maps import MAPS, layer_map


def test_each_student_layer_is_a_row() -> None:
    assert draw_map(layer_map("cross", 6, 2), 6, 80) == [
        "    1 2 3 4 5 6",
        "1   ■ · ■ · · ·  1, 3",
        "2   · · · ■ · ■  4, 6",
    ]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize(("teacher", "student"), [(1, 1), (6, 2), (12, 3), (3, 12), (100, 7)])
def test_lines_keep_to_the_width_and_show_every_layer(teacher: int, student: int, width: int) -> None:
    lines = draw_maps(teacher, student, width)
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    used = sum(len(layers) for name in MAPS for layers in layer_map(name, teacher, student).values())
    drawn = "".join(lines)
    assert drawn.count("■") == used + 1  # one more where the words name it
    assert drawn.count("·") == len(MAPS) * teacher * student - used

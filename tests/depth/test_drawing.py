import pytest

from anydepth.depth.assignment import STRATEGIES, assign
from anydepth.depth.drawing import ASCII, draw, draw_map, draw_maps, draw_small, listed, side_by_side
from anydepth.depth.maps import MAPS, layer_map


def test_each_depth_is_a_row() -> None:
    assert draw(assign("optimal", 6), 80) == [
        "layer             1 2 3 4 5 6",
        "depth 1           · · · ■ · ·  4",
        "depth 2           · ■ · · · ■  2, 6",
        "depth 3           ■ · ■ · ■ ·  1, 3, 5",
        "depth 6           ■ ■ ■ ■ ■ ■  1 to 6",
        "tasks per layer   2 2 2 2 2 2",
    ]


def test_ascii_needs_nothing_else() -> None:
    "\n".join(draw(assign("optimal", 12), 80, ASCII)).encode("ascii")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("total", [1, 7, 60, 840])
def test_lines_keep_to_the_width_and_show_every_layer(strategy: str, total: int) -> None:
    assignment = assign(strategy, total)
    for lines in (draw(assignment, 80), draw_small(assignment, 80)):
        assert all(len(line) <= 80 and line == line.rstrip() for line in lines)
        drawn = "".join(lines)
        assert drawn.count("■") == sum(assignment.depths)
        assert drawn.count("·") == total * len(assignment.depths) - sum(assignment.depths)


def test_a_long_stack_goes_on_below() -> None:
    lines = draw(assign("left", 100), 80)
    rulers = [line.split() for line in lines if line.startswith("layer")]
    assert rulers == [["layer", "1", *map(str, range(10, 61, 10))], ["layer", "61", *map(str, range(70, 101, 10))]]
    first = lines[0]
    assert lines[1][first.index("1")] == "■"
    assert len(lines[1]) == first.index("60") + 2


def test_tasks_of_two_digits_stand_upright() -> None:
    lines = draw(assign("head", 60), 80)
    assert lines[-2].split()[-1] == "111"  # 12, 11 and 10 depths use the first three layers
    assert lines[-1].split()[-1].startswith("2109")


def test_lists_shorten_in_the_middle() -> None:
    assert listed((0, 1, 2, 6, 7, 9), 40) == "1 to 3, 7, 8, 10"
    assert listed(tuple(range(0, 60, 2)), 20) == "1, 3, 5, 7, ..., 59"
    assert listed(tuple(range(0, 60, 2)), 5) == ""


def test_drawings_flow() -> None:
    drawings = [["ab", "c"], ["d"], ["ef"]]
    assert side_by_side(drawings, 8) == ["ab    d", "c", "", "ef"]
    assert side_by_side(drawings, 80) == ["ab    d     ef", "c"]
    assert side_by_side(drawings, 1) == ["ab", "c", "", "d", "", "ef"]


def test_each_student_layer_is_a_row() -> None:
    assert draw_map(layer_map("cross", 6, 2), 6, 80) == [
        "    1 2 3 4 5 6",
        "1   ■ · ■ · · ·  1, 3",
        "2   · · · ■ · ■  4, 6",
    ]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize(("teacher", "student"), [(1, 1), (3, 12), (100, 7)])
def test_maps_keep_to_the_width_and_show_every_layer(teacher: int, student: int, width: int) -> None:
    lines = draw_maps(teacher, student, width)
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    used = sum(len(layers) for name in MAPS for layers in layer_map(name, teacher, student).values())
    drawn = "".join(lines)
    assert drawn.count("■") == used + 1  # one more where the words name it
    assert drawn.count("·") == len(MAPS) * teacher * student - used

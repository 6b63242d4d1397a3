"""The maps against the paper (6 to 2 layers), against maps made by hand, and what holds of all of them."""

from itertools import product

import pytest

from anydepth.depth.maps import MAPS, check_map, layer_map
from anydepth.errors import UserError

BY_HAND = {
    (6, 2): {
        "last": [[3], [6]],
        "regular": [[1, 2, 3], [4, 5, 6]],
        "overlap": [[1, 2, 3, 4], [3, 4, 5, 6]],
        "skip": [[1, 2], [5, 6]],
        "cross": [[1, 3], [4, 6]],
        "interleave": [[1, 3, 5], [2, 4, 6]],
    },
    (5, 2): {
        "last": [[2], [5]],
        "regular": [[1, 2], [3, 4, 5]],
        "overlap": [[1, 2, 3], [2, 3, 4, 5]],
        "skip": [[1, 2], [4, 5]],
        "cross": [[1, 2], [3, 5]],
        "interleave": [[1, 3, 5], [2, 4]],
    },
    (4, 1): {
        "last": [[4]],
        "regular": [[1, 2, 3, 4]],
        "overlap": [[1, 2, 3, 4]],
        "skip": [[2, 3, 4]],
        "cross": [[1, 4]],
        "interleave": [[1, 2, 3, 4]],
    },
    (3, 3): {
        "last": [[1], [2], [3]],
        "regular": [[1], [2], [3]],
        "overlap": [[1, 2], [1, 2, 3], [2, 3]],
        "skip": [[1], [2], [3]],
        "cross": [[1], [2], [3]],
        "interleave": [[1], [2], [3]],
    },
    (3, 5): {
        "last": [[1], [2], [2], [3], [3]],
        "regular": [[1], [2], [2], [3], [3]],
        "overlap": [[1, 2], [1, 2, 3], [1, 2, 3], [2, 3], [2, 3]],
        "skip": [[1], [1], [2], [3], [3]],
        "cross": [[1], [2], [2], [3], [3]],
        "interleave": [[1], [2], [3], [1], [2]],
    },
}
SIZES = list(product(range(1, 14), repeat=2))


@pytest.mark.parametrize(("teacher", "student"), BY_HAND)
def test_maps_by_hand(teacher: int, student: int) -> None:
    found = {name: list(map(list, layer_map(name, teacher, student).values())) for name in MAPS}
    assert found == BY_HAND[teacher, student]


@pytest.mark.parametrize("name", MAPS)
def test_every_map_passes_as_an_explicit_one_and_is_in_order(name: str) -> None:
    for teacher, student in SIZES:
        found = layer_map(name, teacher, student)
        assert list(found) == list(range(1, student + 1))
        assert list(check_map(found, teacher, student).items()) == list(found.items())


def test_no_teacher_layer_is_wasted_where_all_combine() -> None:
    for name, (teacher, student) in product(("regular", "overlap", "interleave"), SIZES):
        if student <= teacher:
            assert set().union(*layer_map(name, teacher, student).values()) == set(range(1, teacher + 1))


def test_the_last_layers_meet() -> None:
    for name, (teacher, student) in product(set(MAPS) - {"interleave"}, SIZES):
        assert layer_map(name, teacher, student)[student][-1] == teacher


def test_skip_leaves_layers_out_and_uses_none_twice() -> None:
    for teacher, student in SIZES:
        if student < teacher:
            used = [layer for layers in layer_map("skip", teacher, student).values() for layer in layers]
            assert len(set(used)) == len(used) < teacher


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("best", 6, 2), "no layer map 'best': choose from last, regular, overlap, skip, cross, interleave"),
        (("last", 0, 2), "a teacher of 0 layers"),
        (("last", 6, -1), "a student of -1 layers"),
    ],
)
def test_refuses(arguments: tuple[str, int, int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        layer_map(*arguments)


def test_an_explicit_map_is_put_in_order_and_may_leave_students_out() -> None:
    assert list(check_map({3: [6, 1], 1: [2]}, 6, 3).items()) == [(1, (2,)), (3, (1, 6))]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "teacher.map is empty: name the layers, as in "),
        ({1: [1], 3: [2]}, "gives student layer 3, but the student has 2 layers: count from 1, so that the last is 2"),
        ({0: [1]}, "gives student layer 0, but the student has 2 layers: "),
        ({1: []}, "gives student layer 1 no teacher layer: name one or more, or leave student layer 1 out"),
        ({2: [1, 7]}, "gives student layer 2 teacher layer 7, but the teacher has 6 layers: "),
        ({2: [0]}, "gives student layer 2 teacher layer 0, but the teacher has 6 layers: "),
        ({2: [4, 1, 4]}, "gives student layer 2 teacher layer 4 more than once: name it once"),
    ],
)
def test_an_explicit_map_is_checked(given: dict[int, list[int]], said: str) -> None:
    with pytest.raises(UserError) as raised:
        check_map(given, teacher=6, student=2)
    message = str(raised.value)
    assert message.startswith("teacher.map ")
    assert said in message
    assert "\n" not in message

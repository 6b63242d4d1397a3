"""The strategies against the paper (Table 3, D = 12) and against tables made by hand (D = 6)."""

import pytest

from anydepth.depth.assignment import STRATEGIES, assign, divisors, make_menu, prime_warning, spread
from anydepth.errors import UserError

BY_HAND_FOR_6 = {
    "head": {1: (0,), 2: (0, 1), 3: (0, 1, 2), 6: (0, 1, 2, 3, 4, 5)},
    "seq": {1: (0,), 2: (1, 2), 3: (3, 4, 5), 6: (0, 1, 2, 3, 4, 5)},
    "left": {1: (0,), 2: (0, 3), 3: (0, 2, 4), 6: (0, 1, 2, 3, 4, 5)},
    "middle-left": {1: (2,), 2: (1, 4), 3: (0, 2, 4), 6: (0, 1, 2, 3, 4, 5)},
    "optimal": {1: (3,), 2: (1, 5), 3: (0, 2, 4), 6: (0, 1, 2, 3, 4, 5)},
}


@pytest.mark.parametrize(
    ("strategy", "task_balance", "layer_distance"),
    [
        ("head", 1.78, 1.00),
        ("seq", 0.49, 1.00),
        ("left", 1.50, 2.00),
        ("middle-left", 0.78, 2.00),
        ("optimal", 0.49, 2.05),
    ],
)
def test_measures_of_the_paper(strategy: str, task_balance: float, layer_distance: float) -> None:
    found = assign(strategy, 12)
    assert (round(found.task_balance, 2), round(found.average_layer_distance, 2)) == (task_balance, layer_distance)


def test_optimal_layers_of_12() -> None:
    counted_from_1 = {d: [layer + 1 for layer in assign("optimal", 12).layers(d)] for d in divisors(12)}
    assert counted_from_1 == {
        1: [7],
        2: [4, 10],
        3: [2, 6, 10],
        4: [2, 6, 8, 12],
        6: [1, 3, 5, 7, 9, 11],
        12: list(range(1, 13)),
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tables_by_hand(strategy: str) -> None:
    assert assign(strategy, 6).chosen == BY_HAND_FOR_6[strategy]


def test_seq_goes_round_and_runs_in_order() -> None:
    found = assign("seq", 12)
    assert found.chosen[6] == (10, 11, 0, 1, 2, 3)
    assert found.layers(6) == (0, 1, 2, 3, 10, 11)


def test_measures_by_hand() -> None:
    head = assign("head", 6)
    assert head.tasks_per_layer == [4, 3, 2, 1, 1, 1]
    assert head.task_balance == pytest.approx((8 / 5) ** 0.5)
    assert assign("left", 6).average_layer_distance == pytest.approx((3 + 2 + 2 + 5 * 1) / 8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_depth_has_its_number_of_layers(strategy: str) -> None:
    for total in range(1, 61):
        found = assign(strategy, total)
        assert found.depths == divisors(total)
        for depth in found.depths:
            layers = found.layers(depth)
            assert len(set(layers)) == depth
            assert set(layers) <= set(range(total))
            if strategy in ("left", "middle-left", "optimal"):
                assert [layer // (total // depth) for layer in layers] == list(range(depth))


def test_a_stack_of_one_layer() -> None:
    found = assign("optimal", 1)
    assert found.chosen == {1: (0,)}
    assert (found.task_balance, found.average_layer_distance) == (0, 0)


def test_what_cannot_be_assigned() -> None:
    with pytest.raises(UserError, match="no strategy 'best': choose from head, seq, left, middle-left, optimal"):
        assign("best", 12)
    with pytest.raises(UserError, match="give 1 or more"):
        assign("head", 0)


def test_primes_and_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert [number for number in range(1, 14) if prime_warning(number)] == [3, 5, 7, 11, 13]


def test_spread_serves_any_depth() -> None:
    assert spread(12, 5) == (0, 2, 4, 7, 9)
    assert spread(6, 4) == (0, 1, 3, 4)
    for total in range(1, 30):
        for depth in range(1, total + 1):
            assert len(set(spread(total, depth))) == depth


def test_menu_has_every_pair_from_shallow_to_deep() -> None:
    menu = make_menu(assign("seq", 2).chosen, assign("optimal", 3).chosen)
    assert menu.names == ["1-1", "1-3", "2-1", "2-3"]
    assert menu["2-1"].subnetwork.encoder == (0, 1)
    assert menu["1-3"].subnetwork.decoder == (0, 1, 2)

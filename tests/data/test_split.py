import random
from collections import Counter

import pytest

from anydepth.data.split import HoldOut, split_pairs
from anydepth.errors import UserError


def linked_corpus() -> list[tuple[str, str]]:
    """Many small components with sentences shared on both sides."""
    rng = random.Random(3)
    return [
        (f"s{group}-{rng.randrange(3)}", f"t{group}-{rng.randrange(3)}")
        for group in range(300)
        for _ in range(rng.randrange(1, 6))
    ]


def test_no_sentence_crosses_between_parts():
    pairs = linked_corpus()
    parts = split_pairs(pairs, {"valid": 30, "test": 50}, seed=1)
    assert {name: len(part) for name, part in parts.items() if name != "train"} == {"valid": 30, "test": 50}
    for side in (0, 1):
        sentences = {name: {pair[side] for pair in part} for name, part in parts.items()}
        assert not sentences["train"] & sentences["valid"]
        assert not sentences["train"] & sentences["test"]
        assert not sentences["valid"] & sentences["test"]
        assert len(sentences["valid"]) == 30
        assert len(sentences["test"]) == 50


def test_a_chain_of_links_is_one_group():
    chain = [("a", "1"), ("b", "1"), ("b", "2"), ("c", "2")]
    apart = [(f"x{i}", f"y{i}") for i in range(5)]
    for seed in range(20):
        parts = split_pairs([*chain, *apart], {"test": 1}, seed)
        if parts["test"][0] in chain:
            assert parts["train"] == apart
        else:
            assert len(parts["train"]) == 8


def test_split_follows_the_seed():
    pairs = linked_corpus()
    assert split_pairs(pairs, {"test": 20}, 1) == split_pairs(pairs, {"test": 20}, 1)
    assert split_pairs(pairs, {"test": 20}, 1)["test"] != split_pairs(pairs, {"test": 20}, 2)["test"]


def test_split_of_too_few_groups():
    with pytest.raises(UserError, match="has 1 groups"):
        split_pairs([("a", "1"), ("a", "2")], {"test": 1}, 1)


def chosen(sources: list[str], size: int, seed: int) -> set[str]:
    hold_out = HoldOut(size, seed)
    for source in sources:
        hold_out.see(source)
    hold_out.choose()
    return {source for source in sources if source in hold_out}


def test_hold_out_takes_exactly_so_many_sources_whatever_their_order():
    sources = [f"sentence {number % 500}" for number in range(1700)]
    first = chosen(sources, 40, seed=1)
    assert len(first) == 40
    assert chosen(sources[::-1], 40, seed=1) == first
    assert chosen(sources, 40, seed=2) != first


def test_hold_out_is_a_fair_draw():
    sources = [f"{number}" for number in range(100)]
    times = Counter(source for seed in range(400) for source in chosen(sources, 10, seed))
    assert all(10 <= times[source] <= 75 for source in sources)  # 40 expected, standard deviation 6


def test_hold_out_leaves_at_least_as_many_sources():
    sources = [f"{number}" for number in range(19)] * 5
    with pytest.raises(UserError, match="only 19 different source sentences"):
        chosen(sources, 10, seed=1)
    assert len(chosen([*sources, "one more"], 10, seed=1)) == 10

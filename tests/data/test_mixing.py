import numpy as np
import pytest
import torch

from anydepth.data import BatchStream, PairStore, PairStream
from anydepth.data.batching import turns_by_size
from anydepth.data.shards import StoreWriter


def write_store(folder, name: str, lengths: list[int], first: int) -> PairStore:
    """Sentence number i has the token `first` + i alone."""
    with StoreWriter(folder, name, 10_000) as writer:
        for number, length in enumerate(lengths):
            writer.add([first + number] * length, [first + number] * length)
    return PairStore(folder, name)


@pytest.fixture
def streams(tmp_path) -> list[BatchStream]:
    """Two and three sentences, each of which fills a batch."""
    stores = [write_store(tmp_path, "small", [7, 7], 100), write_store(tmp_path, "large", [7, 7, 7], 200)]
    return [BatchStream(store, 8, seed=3) for store in stores]


def mixed(
    streams: list[BatchStream], sampling: str = "each", sizes: tuple[int, ...] = (2, 3), temperature: float = 5.0
):
    return PairStream(streams, sizes, sampling, temperature, seed=3)


def test_each_takes_turns_at_the_positions_computed_by_hand(streams):
    stream = mixed(streams)
    assert [own.batches_in(0) for own in streams] == [2, 3]
    assert stream.together == 2
    assert stream.batches_in(0) == stream.batches_in(1) == 6
    expected = {  # (pair, its own epoch, its own batch)
        0: [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1), (0, 1, 0), (1, 0, 2)],
        1: [(0, 1, 1), (1, 1, 0), (0, 2, 0), (1, 1, 1), (0, 2, 1), (1, 1, 2)],
    }
    for epoch, turns in expected.items():
        for index, (language, *own_place) in enumerate(turns):
            batch, own = stream.at(epoch, index), streams[language].at(*own_place)
            assert batch.language == language
            assert batch.place == (epoch, index)
            assert torch.equal(batch.source, own.source)
            assert batch.source[0, 0] // 100 == language + 1


def test_an_epoch_of_each_has_every_batch_of_the_largest_once(streams):
    stream = mixed(streams)
    for epoch in (0, 5):
        batches = [stream.at(epoch, index) for index in range(stream.batches_in(epoch))]
        assert sorted(int(batch.source[0, 0]) for batch in batches if batch.language == 1) == [200, 201, 202]


@pytest.mark.parametrize(
    ("temperature", "turns"),
    [
        (1.0, [1, 10]),  # 1 and 100 of 101: 0.1 and 9.9 of 10 batches, and at least one
        (2.0, [1, 9]),  # 10 and 100 of 110: 0.9 and 9.1
        (1e9, [5, 5]),
    ],
)
def test_turns_by_size(temperature, turns):
    assert turns_by_size([2, 8], [100, 10_000], temperature) == turns


@pytest.fixture
def uneven(tmp_path) -> list[BatchStream]:
    rng = np.random.default_rng(0)
    sizes = {"a": 30, "b": 200, "c": 90}
    stores = [write_store(tmp_path, n, rng.integers(1, 9, size).tolist(), 1000) for n, size in sizes.items()]
    return [BatchStream(store, 40, seed=3) for store in stores]


def test_the_number_of_batches_is_the_same_in_every_epoch(uneven):
    for stream in uneven:
        assert len({stream.batches_in(epoch) for epoch in range(8)}) == 1


def test_drawn_pairs_go_through_their_own_batches_in_order(uneven):
    stream = mixed(uneven, "temperature", (30, 200, 90), 3.0)
    assert stream.together == 1
    own = [0, 0, 0]
    for epoch in range(3):
        for index in range(stream.batches_in(epoch)):
            batch = stream.at(epoch, index)
            there = uneven[batch.language]
            expected = there.at(*divmod(own[batch.language], there.batches_in(0)))
            assert np.array_equal(batch.indices, expected.indices)
            own[batch.language] += 1
        assert own == [(epoch + 1) * turns for turns in stream.turns]
    assert stream.batches_in(0) == sum(stream.turns)


def test_drawn_pairs_are_mixed_and_differ_from_epoch_to_epoch(uneven):
    stream = mixed(uneven, "temperature", (30, 200, 90), 3.0)
    orders = [[stream.at(epoch, i).language for i in range(stream.batches_in(0))] for epoch in (0, 1)]
    assert orders[0] != orders[1]
    for order in orders:
        assert order != sorted(order)
        assert sorted(order) == sorted(orders[0])


@pytest.mark.parametrize("sampling", ["each", "temperature"])
def test_position_is_all_the_state(uneven, sampling):
    used = mixed(uneven, sampling, (30, 200, 90))
    seen = {(e, i): used.at(e, i) for e in range(3) for i in range(used.batches_in(e))}
    for place in ((2, 5), (0, 7), (1, 0)):
        fresh = mixed(uneven, sampling, (30, 200, 90))
        for stream in (fresh, used):
            assert torch.equal(stream.at(*place).source, seen[place].source)
            assert stream.at(*place).language == seen[place].language
        assert fresh.at(*place).to("cpu").language == seen[place].language

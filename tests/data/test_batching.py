import numpy as np
import pytest
import torch

from anydepth.data import Batch, BatchStream, PairStore, plan_epoch
from anydepth.data.batching import make_batch
from anydepth.data.shards import StoreWriter


def random_lengths(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    source = rng.integers(1, 60, count).astype(np.int32)
    target = np.maximum(1, source + rng.integers(-15, 15, count)).astype(np.int32)
    return source, target


@pytest.fixture
def store(tmp_path) -> PairStore:
    source, target = random_lengths(500)
    with StoreWriter(tmp_path, "train", 1000) as writer:
        for number, (s, t) in enumerate(zip(source, target, strict=True)):
            writer.add([4 + number] * int(s), [4 + number] * int(t))
    return PairStore(tmp_path, "train")


def test_batch_by_hand():
    batch = Batch.from_rows([[5, 6], [7]], [[8], [9, 10, 11]])
    assert batch.source.tolist() == [[5, 6, 3], [7, 3, 0]]
    assert batch.target_in.tolist() == [[2, 8, 0, 0], [2, 9, 10, 11]]
    assert batch.target_out.tolist() == [[8, 3, 0, 0], [9, 10, 11, 3]]
    assert batch.source_padding is not None
    assert batch.source_padding.tolist() == [[False, False, False], [False, False, True]]
    assert batch.target_tokens == 6
    assert batch.indices.tolist() == [0, 1]
    assert batch.source.dtype == torch.int64


def test_no_padding_mask_where_nothing_is_padded():
    assert Batch.from_rows([[5], [6]], [[7], [8, 9]]).source_padding is None


def test_make_batch_reads_the_store(store):
    batch = make_batch(store, np.array([3, 499]))
    for row, index in enumerate((3, 499)):
        source, target = store.pair(index)
        assert batch.source[row, : len(source) + 1].tolist() == [*source.tolist(), 3]
        assert batch.target_out[row, : len(target) + 1].tolist() == [*target.tolist(), 3]
    moved = batch.to("cpu")
    assert torch.equal(moved.source, batch.source)
    assert moved.target_tokens == batch.target_tokens


@pytest.mark.parametrize("batch_tokens", [16, 64, 1000, 10**6])
def test_plan_covers_every_pair_once_within_the_budget(batch_tokens):
    source, target = random_lengths(3000)
    plan = plan_epoch(source, target, batch_tokens, seed=1, epoch=0)
    assert sorted(np.concatenate(plan).tolist()) == list(range(3000))
    for indices in plan:
        longest = max(source[indices].max(), target[indices].max()) + 1
        assert len(indices) * longest <= batch_tokens or len(indices) == 1


def test_plan_wastes_little():
    source, target = random_lengths(20_000)
    plan = plan_epoch(source, target, 2048, seed=1, epoch=0)
    for lengths, least in ((source, 0.9), (target, 0.98)):
        padded = sum(len(indices) * (lengths[indices].max() + 1) for indices in plan)
        assert (lengths + 1).sum() / padded > least


def as_lists(plan: list[np.ndarray]) -> list[list[int]]:
    return [indices.tolist() for indices in plan]


def test_plan_follows_from_seed_and_epoch():
    source, target = random_lengths(3000)

    def plan(seed, epoch):
        return as_lists(plan_epoch(source, target, 500, seed, epoch))

    assert plan(1, 4) == plan(1, 4)
    members = {frozenset(batch) for batch in plan(1, 4)}
    for other in (plan(1, 5), plan(2, 4)):
        shared = sum(frozenset(batch) in members for batch in other)
        assert shared < len(other) / 2


def test_plan_order_mixes_lengths():
    source, target = random_lengths(3000)
    first_half = plan_epoch(source, target, 500, 1, 0)[:100]
    means = [target[indices].mean() for indices in first_half]
    assert min(means) < 15
    assert max(means) > 45


def test_stream_position_is_all_the_state(store):
    stream = BatchStream(store, 200, seed=3)
    seen = [stream.at(0, index) for index in range(stream.batches_in(0))]
    assert sum(map(len, seen)) == len(store)
    stream.at(1, 0)
    fresh = BatchStream(store, 200, seed=3)
    for index in (7, 2):
        assert torch.equal(fresh.at(0, index).source, seen[index].source)
        assert torch.equal(stream.at(0, index).target_in, seen[index].target_in)


def test_a_plan_of_half_a_million_pairs():
    source, target = random_lengths(500_000)
    plan = plan_epoch(source, target, 4096, 1, 0)
    assert np.array_equal(np.sort(np.concatenate(plan)), np.arange(500_000))

import numpy as np
import pytest

from anydepth.data import PairStore
from anydepth.data.shards import StoreWriter
from anydepth.errors import UserError

PAIRS = [([4, 5, 6], [7]), ([], [8, 9]), ([10], [11, 12, 13, 14])]


def write(folder, vocabulary=100, pairs=PAIRS):
    with StoreWriter(folder, "train", vocabulary) as writer:
        for source, target in pairs:
            writer.add(source, target)


def read(folder):
    store = PairStore(folder, "train")
    return [tuple(side.tolist() for side in store.pair(i)) for i in range(len(store))]


@pytest.mark.parametrize(("vocabulary", "bytes_each"), [(65536, 2), (65537, 4)])
def test_round_trip(tmp_path, vocabulary, bytes_each):
    pairs = [*PAIRS, ([vocabulary - 1], [0])]
    write(tmp_path, vocabulary, pairs)
    assert read(tmp_path) == pairs
    assert (tmp_path / "train.source.tokens").stat().st_size == 5 * bytes_each


def test_lengths(tmp_path):
    write(tmp_path)
    store = PairStore(tmp_path, "train")
    assert store.source_lengths.tolist() == [3, 0, 1]
    assert store.target_lengths.tolist() == [1, 2, 4]
    assert store.source_lengths.dtype == np.int32


def test_empty_store(tmp_path):
    write(tmp_path, pairs=[])
    assert len(PairStore(tmp_path, "train")) == 0


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("kind", ["tokens", "offsets"])
@pytest.mark.parametrize("lost", [1, 2, 8])
def test_truncation_is_noticed(tmp_path, side, kind, lost):
    write(tmp_path)
    path = tmp_path / f"train.{side}.{kind}"
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(UserError, match="damaged: delete that folder and run again"):
        PairStore(tmp_path, "train")


def test_missing_or_senseless_files_are_noticed(tmp_path):
    write(tmp_path)
    offsets = tmp_path / "train.source.offsets"
    np.array([0, 4, 3, 4], np.int64).tofile(offsets)
    with pytest.raises(UserError, match="damaged"):
        PairStore(tmp_path, "train")
    offsets.unlink()
    with pytest.raises(UserError, match="damaged"):
        PairStore(tmp_path, "train")

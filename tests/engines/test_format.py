"""Files of the native engine: whatever is wrong with one, it is refused with a reason, and nothing crashes."""

import math
import random
import struct
import threading
import zlib

import pytest
from conftest import toy_pairs
from random_models import random_translator

import anydepth
from anydepth.depth import SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.native import NativeModel
from anydepth.engines.native_format import packed
from anydepth.errors import UserError
from anydepth.infer.translator import on_engine

OPTIONS = SearchOptions()


@pytest.fixture(scope="module")
def toy(toy_run):
    return anydepth.load(toy_run, engine="torch")


@pytest.fixture(scope="module")
def data(toy):
    return packed(random_translator(toy.tokenizer).model)


def with_checksum(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def test_the_same_model_gives_the_same_bytes(toy, data):
    assert packed(random_translator(toy.tokenizer).model) == data
    assert zlib.crc32(data[:-4]) == struct.unpack("<I", data[-4:])[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "too short"),
        (lambda data: data[:100], "checksum is wrong"),
        (lambda data: b"SAFETENS" + data[8:], "not a file of anydepth"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "checksum is wrong"),
        (lambda data: with_checksum(data[:-5]), "shorter than its header says"),
        (lambda data: with_checksum(data[:-4] + b"\0"), "longer than its header says"),
        (lambda data: with_checksum(data[:8] + struct.pack("<i", 99) + data[12:-4]), "another version"),
        (lambda data: with_checksum(data[:12] + struct.pack("<i", 1 << 30) + data[16:-4]), "out of range"),
        (lambda data: with_checksum(data[:12] + struct.pack("<i", 65536) + data[16:-4]), "shorter than its header"),
        (lambda data: with_checksum(data[:36] + struct.pack("<f", math.nan) + data[40:-4]), "not finite"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(data, change, reason):
    with pytest.raises(UserError, match=reason):
        NativeModel(change(data))


def test_thousands_of_damaged_files_are_refused_or_run(data):
    """With the checksum put right, so that what is behind it is reached. What is still a model has to run."""
    rng = random.Random(7)
    batch, sub = SearchBatch([[5, 3], [6, 7, 3]], [4, 4]), SubNetwork.prefix(1, 1)
    ran = refused = 0
    for _ in range(2000):
        body = bytearray(data[:-4])
        for _ in range(rng.choice((1, 1, 2, 8))):
            place = rng.randrange(8, 200) if rng.random() < 0.5 else rng.randrange(8, len(body))
            body[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.1:
            body = body[: rng.randrange(8, len(body))]
        try:
            model = NativeModel(with_checksum(bytes(body)))
            model.search(sub, batch, OPTIONS)
            ran += 1
        except UserError:
            refused += 1
    assert ran > 100
    assert refused > 100


@pytest.mark.parametrize(
    ("sub", "batch", "reason"),
    [
        (SubNetwork.prefix(4, 1), SearchBatch([[5, 3]], [4]), "no such layers"),
        (SubNetwork((0, 7), (0,)), SearchBatch([[5, 3]], [4]), "must be there"),
        (SubNetwork.prefix(1, 1), SearchBatch([[5, 99_999]], [4]), "not in the vocabulary"),
        (SubNetwork.prefix(1, 1), SearchBatch([[-1, 3]], [4]), "not in the vocabulary"),
        (SubNetwork.prefix(1, 1), SearchBatch([[5] * 200], [4]), "longer than the model takes"),
        (SubNetwork.prefix(1, 1), SearchBatch([[5, 3]], [4000]), "limit is longer"),
        (SubNetwork.prefix(1, 1), SearchBatch([[5, 3], []], [4, 4]), "is empty"),
    ],
)
def test_what_cannot_be_asked_is_refused(data, sub, batch, reason):
    with pytest.raises(UserError, match=reason):
        NativeModel(data).search(sub, batch, OPTIONS)


def test_a_draft_needs_fewer_layers_and_a_shortlist_has_to_be_there(data):
    model, batch = NativeModel(data), SearchBatch([[5, 3]], [4])
    with pytest.raises(UserError, match="fewer layers"):
        model.search(SubNetwork.prefix(1, 1), batch, OPTIONS, draft_layers=1)
    with pytest.raises(UserError, match="no shortlist"):
        model.search(SubNetwork.prefix(1, 1), batch, OPTIONS, shortlist=True)
    with pytest.raises(UserError, match="does not have these instructions"):
        NativeModel(data, "abacus")


def test_one_model_serves_every_depth_to_several_threads_at_once(toy):
    native = on_engine(toy, "native", 2)
    texts = [source for source, _ in toy_pairs(40, seed=4)]
    depths = toy.menu.names * 3
    expected = [native.translate(texts, depth=depth, batch_size=4) for depth in depths]
    found: dict[int, list[str]] = {}

    def run(number: int) -> None:
        found[number] = native.translate(texts, depth=depths[number], batch_size=4)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(depths))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(depths))] == expected

"""Model files: whatever is wrong with one, it is refused with a reason, and nothing crashes."""

import json
import math
import random
import struct
import threading
import zlib

import numpy as np
import pytest
from conftest import toy_pairs
from random_models import random_translator

import anydepth
from anydepth.artifact.model_file import (
    ENTRY,
    INT4,
    LINE,
    PREAMBLE,
    SINUSOIDAL,
    VERSION,
    FileSection,
    Kind,
    ModelFile,
    build_model_file,
)
from anydepth.depth import SubNetwork
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.core import NativeModel
from anydepth.engines.native_format import packed
from anydepth.errors import UserError
from anydepth.infer.translator import on_engine
from anydepth.tensors import sinusoids

OPTIONS = SearchOptions()


@pytest.fixture(scope="module")
def toy(toy_run):
    return anydepth.load(toy_run, engine="torch")


@pytest.fixture(scope="module")
def data(toy):
    return packed(random_translator(toy.tokenizer).model)


def corrected(data: bytes | bytearray) -> bytes:
    """With the checksums of its sections and header put right, where these can be found."""
    made = bytearray(data)
    length, count = struct.unpack_from("<Q", made, 16)[0], struct.unpack_from("<I", made, 32)[0]
    for i in range(min(count, 4096)):
        place = PREAMBLE.size + ENTRY.size * i
        if place + ENTRY.size > len(made):
            break
        _, _, offset, size, _ = ENTRY.unpack_from(made, place)
        if offset + size <= len(made):
            struct.pack_into("<I", made, place + 24, zlib.crc32(made[offset : offset + size]))
    if 16 <= length <= len(made):
        struct.pack_into("<I", made, 12, zlib.crc32(made[16:length]))
    return bytes(made)


def patched(data: bytes, place: int, layout: str, value: float) -> bytes:
    made = bytearray(data)
    struct.pack_into(layout, made, place, value)
    return corrected(made)


def with_core(data: bytes, **changes: object) -> bytes:
    """With other values in the header."""
    core, sections = taken_apart(data)
    return build_model_file({"core": core | changes}, sections, SINUSOIDAL)


def taken_apart(data: bytes, version: int = SINUSOIDAL) -> tuple[dict[str, object], list[FileSection]]:
    length, count = struct.unpack_from("<Q", data, 16)[0], struct.unpack_from("<I", data, 32)[0]
    header = json.loads(data[PREAMBLE.size + ENTRY.size * count : length])
    entries = [ENTRY.unpack_from(data, PREAMBLE.size + ENTRY.size * i) for i in range(count)]
    sections = [FileSection(kind, index, data[offset : offset + size]) for kind, index, offset, size, _ in entries]
    assert build_model_file(header, sections, version) == data
    return header["core"], sections


def section(data: bytes, kind: Kind, index: int = 0) -> tuple[int, int]:
    """Where it begins, and its size."""
    count = struct.unpack_from("<I", data, 32)[0]
    entries = [ENTRY.unpack_from(data, PREAMBLE.size + ENTRY.size * i) for i in range(count)]
    return next((offset, size) for found, number, offset, size, _ in entries if (found, number) == (kind, index))


def test_the_same_model_gives_the_same_bytes(toy, data):
    assert packed(random_translator(toy.tokenizer).model) == data
    assert corrected(data) == data


def test_sections_are_aligned_and_lie_in_the_order_of_depth(toy, data, tmp_path):
    path = tmp_path / "model.anydepth"
    path.write_bytes(data)
    places = ModelFile.open(path).places
    assert all(place.offset % LINE == 0 for place in places)
    layers = [(place.kind, place.index) for place in places if place.kind >= Kind.ENCODER_LAYER]
    encoder, decoder = Kind.ENCODER_LAYER, Kind.DECODER_LAYER
    assert layers == [(encoder, 0), (decoder, 0), (encoder, 1), (decoder, 1), (encoder, 2)]
    assert ModelFile.open(path).check()
    assert [place.kind for place in places[:2]] == [Kind.EMBEDDINGS, Kind.OUTPUT]


def test_a_mapped_file_runs_as_its_bytes(toy, data, tmp_path):
    path = tmp_path / "model.anydepth"
    path.write_bytes(data)
    batch = SearchBatch([[5, 3], [6, 7, 3]], [6, 6])
    for sub in (SubNetwork.prefix(1, 1), SubNetwork.prefix(3, 2)):
        assert NativeModel(path).search(sub, batch, OPTIONS) == NativeModel(data).search(sub, batch, OPTIONS)


def test_positions_that_the_core_computes_are_those_that_earlier_files_store(data):
    """A file of format 3, with the table at the beginning of the embeddings, runs as before and to the same bits."""
    core, sections = taken_apart(data)
    assert core.pop("sinusoidal")
    assert struct.unpack_from("<I", data, 8) == (SINUSOIDAL,)
    table = sinusoids(core["positions"], core["width"]).tobytes()
    assert len(table) % LINE == 0
    first = FileSection(Kind.EMBEDDINGS, 0, table + sections[0].data)
    earlier, now = build_model_file({"core": core}, [first, *sections[1:]], VERSION), NativeModel(data)
    assert len(earlier) > len(data)
    source, target = [*(4 + i % 20 for i in range(38)), 3], [2, *(4 + i % 7 for i in range(39))]  # nearly all positions
    for sub in (SubNetwork.prefix(1, 1), SubNetwork.prefix(3, 2)):
        expected, found = (
            model.logits(sub, source, target, core["vocabulary"], 7) for model in (NativeModel(earlier), now)
        )
        np.testing.assert_array_equal(found, expected)


def test_int4_files_have_a_version_of_their_own_and_wrong_factors_are_refused(toy):
    data = packed(random_translator(toy.tokenizer).model, int4=True)
    assert struct.unpack_from("<I", data, 8) == (INT4,)
    model = NativeModel(data)
    assert model.memory < NativeModel(packed(random_translator(toy.tokenizer).model)).memory
    offset, size = section(data, Kind.ENCODER_LAYER)
    outputs, groups = 32, 2  # of its last matrix, with 48 inputs
    factors = offset + size - outputs * groups * 16 - outputs * groups
    with pytest.raises(UserError, match="a factor of int4 weights is out of range"):
        NativeModel(patched(data, factors, "<b", 16))
    core, sections = taken_apart(data, INT4)
    of_int8 = build_model_file({"core": {**core, "int4": False}}, sections, INT4)
    with pytest.raises(UserError, match=r"section of the file is .* than its header says|a weight is -128|not finite"):
        NativeModel(of_int8)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "too short"),
        (lambda data: data[:50], "too short"),
        (lambda data: data[:100], "not complete"),
        (lambda data: data[:-1], "not complete"),
        (lambda data: data + b"\0", "longer than its header says"),
        (lambda data: b"SAFETENS" + data[8:], "not a model file of anydepth"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "checksum of its header"),
        (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "checksum of a section"),
        (lambda data: patched(data, 8, "<I", 99), "another version"),
        (lambda data: patched(data, 16, "<Q", 1 << 40), "out of range"),
        (lambda data: patched(data, 32, "<I", 5000), "out of range"),
        (lambda data: patched(data, 24, "<Q", len(data) + 64), "do not add up"),
        (lambda data: patched(data, 64 + 8, "<Q", 7), "do not follow one another"),
        (lambda data: patched(data, 64 + 16, "<Q", (1 << 64) - 1), "out of range"),
        (lambda data: patched(data, 64 + 32, "<I", Kind.EMBEDDINGS), "twice"),
        (lambda data: patched(data, 64 + 32, "<I", 77), "lacks a section"),
        (lambda data: with_core(data, width=16), "longer than its header says"),
        (lambda data: with_core(data, width=128), "shorter than its header says"),
        (lambda data: with_core(data, width=7), "out of range"),
        (lambda data: with_core(data, heads=3), "multiple of the heads"),
        (lambda data: with_core(data, width=9, heads=3), "an even width"),
        (lambda data: with_core(data, sinusoidal=False), "shorter than its header says"),
        (lambda data: with_core(data, sinusoidal=1), "wrong type"),
        (lambda data: with_core(data, norm_epsilon=0), "not positive"),
        (lambda data: with_core(data, norm="batch"), "does not have: batch"),
        (lambda data: with_core(data, encoder=[0, 2, 1]), "out of range"),
        (lambda data: patched(data, sum(section(data, Kind.DECODER_LAYER)) - 1, "<b", -128), "-128"),
        (lambda data: patched(data, section(data, Kind.ENCODER_LAYER)[0], "<f", math.nan), "not finite"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(data, change, reason):
    with pytest.raises(UserError, match=reason):
        NativeModel(change(data))


def test_sizes_that_wrap_in_32_bits_are_refused(data):
    """A width of 65,536 makes matrices of 2^32 bytes, which are none where sizes have 32 bits."""
    for changes in ({"width": 65536, "heads": 4}, {"vocabulary": 1 << 24}, {"ffn": 131072}):
        with pytest.raises(UserError, match="shorter than its header says"):
            NativeModel(with_core(data, **changes))


def test_python_refuses_what_the_core_refuses(data, tmp_path):
    path = tmp_path / "model.anydepth"
    for change, reason in (
        (lambda data: data[:50], "not a model file"),
        (lambda data: data[:100], "is damaged"),
        (lambda data: data[:-1], "copy it again"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "is damaged"),
        (lambda data: patched(data, 8, "<I", 99), "another version"),
    ):
        path.write_bytes(change(data))
        with pytest.raises(UserError, match=reason):
            ModelFile.open(path)


def test_thousands_of_damaged_files_are_refused_or_run(data):
    """With the checksums put right, so that what is behind them is reached. What is still a model has to run."""
    rng = random.Random(7)
    batch, sub = SearchBatch([[5, 3], [6, 7, 3]], [4, 4]), SubNetwork.prefix(1, 1)
    length = struct.unpack_from("<Q", data, 16)[0]
    ran = refused = 0
    for _ in range(2000):
        body = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            place = rng.randrange(12, length) if rng.random() < 0.5 else rng.randrange(8, len(body))
            body[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.1:
            body = body[: rng.randrange(64, len(body))]
        try:
            model = NativeModel(corrected(body))
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

"""The C++ core under the address and undefined-behaviour sanitizers: a short form of csrc/tests/sanitizers.sh."""

import os
import random
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

import anydepth
from anydepth.engines.native_format import packed

CORE = Path(__file__).parents[2] / "csrc"
GOLDEN = Path(__file__).parents[1] / "golden" / "model"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
FLAGS = ("-std=c++17", "-O0", "-g1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
DAMAGED = 24

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),  # a busy machine compiles slowly
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler"),
]


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that runs a model through all of the C API, compiled with the sanitizers."""
    program = tmp_path_factory.mktemp("sanitized") / "drive"
    sources = [*sorted(CORE.glob("*.cpp")), CORE / "tests" / "drive.cpp"]
    subprocess.run([COMPILER, *FLAGS, f"-I{CORE}", *sources, "-o", program], check=True, timeout=1200)
    return program


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden model in the core's format, with its sizes beside it."""
    golden = anydepth.load(GOLDEN, engine="torch").model
    path = tmp_path_factory.mktemp("model") / "golden"
    path.write_bytes(packed(golden))
    write_sizes(path, golden.config.encoder_layers, golden.config.decoder_layers, golden.vocabulary)
    return path


def write_sizes(path: Path, *sizes: int) -> None:
    path.with_name(f"{path.name}.sizes").write_text(" ".join(map(str, sizes)))


def run(drive: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([drive, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert "Sanitizer" not in done.stderr, done.stderr
    assert "runtime error" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("kernels", ["plain", "avx2", "avx512-vnni", "neon", "neon-dot"])
def test_every_search_with_every_kernel(drive, model, kernels):
    done = run(drive, model, kernels)
    if "does not have these instructions" in done.stdout:
        assert kernels != "plain"
        return  # there is nothing to run on this processor
    assert done.returncode == 0, done.stdout
    assert {"1-1", "2-2"} <= {line.split()[0] for line in done.stdout.splitlines()}


def test_damaged_files_are_refused_or_run(drive, model, tmp_path):
    data, rng = model.read_bytes(), random.Random(1)
    sizes = model.with_name("golden.sizes").read_text().split()
    refused = 0
    for number in range(DAMAGED):
        damaged = bytearray(data)
        if number % 2:
            del damaged[rng.randrange(len(data)) :]
        else:
            damaged[rng.randrange(400)] ^= 1 << rng.randrange(8)
        if number % 3 and len(damaged) > 4:  # with a correct checksum, so that the rest of the reader is reached
            damaged[-4:] = struct.pack("<I", zlib.crc32(damaged[:-4]))
        path = tmp_path / f"damaged{number}"
        path.write_bytes(damaged)
        write_sizes(path, *map(int, sizes))
        done = run(drive, path)
        assert done.returncode in (0, 1), done.stderr
        refused += done.stdout.startswith("refused")
    assert refused >= DAMAGED // 2

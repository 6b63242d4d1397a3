#!/usr/bin/env bash
# The core under the address and undefined-behaviour sanitizers: every kind of model, every kernel that runs here, intact
# and damaged files. A short form of it is tests/engines/test_core_sanitized.py.
#   csrc/tests/sanitizers.sh     (needs g++ or clang++; CXX names one)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
python=${PYTHON:-$root/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CXX:-g++}" -std=c++17 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -w \
  -I"$root/csrc" "$root"/csrc/*.cpp "$here/drive.cpp" -o "$work/drive"
"$python" "$here/make_models.py" "$work/models"
for model in plain dense after recurrent; do
  for kernels in plain avx2 avx512-vnni; do
    "$work/drive" "$work/models/$model" $kernels > "$work/$model.$kernels" || {
      grep -q 'does not have these instructions' "$work/$model.$kernels" && continue
      cat "$work/$model.$kernels"; exit 1
    }
    echo "$model with $kernels: $(wc -l < "$work/$model.$kernels") outputs"
  done
done
# Damaged files are refused with exit code 1, or still run: never a crash.
"$python" - "$work/models/plain" "$work/damaged" <<'PYTHON'
import random, struct, sys, zlib
from pathlib import Path
data, rng = Path(sys.argv[1]).read_bytes(), random.Random(1)
for number in range(60):
    damaged = bytearray(data)
    if number % 2:
        damaged = damaged[: rng.randrange(len(data))]
    else:
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if number % 3 == 0:  # with a correct checksum, so that the rest of the reader is reached
        damaged = damaged[:-4] + struct.pack("<I", zlib.crc32(damaged[:-4]))
    Path(f"{sys.argv[2]}.{number}").write_bytes(damaged)
    Path(f"{sys.argv[2]}.{number}.sizes").write_text("2 3 61\n")
PYTHON
for damaged in "$work"/damaged.*; do
  case $damaged in *.sizes) continue ;; esac
  code=0; "$work/drive" "$damaged" > "$work/said" || code=$?
  if [ $code -gt 1 ]; then echo "$damaged: exit code $code"; cat "$work/said"; exit 1; fi
done
echo "60 damaged files did no harm"

#!/usr/bin/env bash
# Fuzzes opening and running with libFuzzer under the sanitizers, from small models of every kind: whole files and files
# that arrive in pieces. Without libFuzzer, `mutate` (built by CMake) does it with mutations of its own.
#   csrc/tests/fuzz.sh [SECONDS]      (60; needs clang++ with its runtime, Debian's clang and libclang-rt-*-dev)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
python=${PYTHON:-$root/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CXX:-clang++}" -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -w -DANYDEPTH_LIBFUZZER \
  -I"$root/csrc" "$root"/csrc/*.cpp "$here/mutate.cpp" -o "$work/fuzz"
"$python" "$here/make_models.py" "$work/models" --tiny
mkdir "$work/found" "$work/seeds"
for model in "$work"/models/*; do  # the first byte says how it arrives
  for first in '\000' '\011'; do
    { printf "$first"; cat "$model"; } > "$work/seeds/$(basename "$model")${first#\\}"
  done
done
"$work/fuzz" "$work/found" "$work/seeds" -max_total_time="${1:-60}" -timeout=20 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 2>&1 | tail -12

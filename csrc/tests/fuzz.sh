#!/usr/bin/env bash
# Fuzzes loading and running with libFuzzer under the sanitizers, from small models of every kind.
#   csrc/tests/fuzz.sh [SECONDS]      (60; needs clang++ with its runtime, Debian's clang and libclang-rt-*-dev)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
python=${PYTHON:-$root/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CXX:-clang++}" -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -w \
  -I"$root/csrc" "$root"/csrc/*.cpp "$here/fuzz.cpp" -o "$work/fuzz"
"$python" "$here/make_models.py" "$work/seeds" --tiny
mkdir "$work/found"
"$work/fuzz" "$work/found" "$work/seeds" -max_total_time="${1:-60}" -timeout=20 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 2>&1 | tail -12
